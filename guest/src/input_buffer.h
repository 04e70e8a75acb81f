/* The input side of a stream: bytes from the host that the reader inside has not taken yet. */
#ifndef ATOLL_INPUT_BUFFER_H
#define ATOLL_INPUT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inbuf {
    uint8_t *data;
    size_t capacity, start, length;
};

/* Returns false, and adds nothing, when there is no memory. The caller keeps to STDIN_WINDOW. */
bool inbuf_add(struct inbuf *b, const uint8_t *bytes, size_t length);
void inbuf_drop(struct inbuf *b, size_t length);
void inbuf_clear(struct inbuf *b);

#endif
