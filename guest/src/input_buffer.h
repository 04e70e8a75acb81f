/* The input side of a stream: bytes from the host that the reader inside has not taken yet. */
#ifndef ATOLL_INPUT_BUFFER_H
#define ATOLL_INPUT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct input_buffer {
    uint8_t *data;
    size_t capacity, start, length;
};

/* Returns false, and adds nothing, when there is no memory. The caller keeps to STDIN_WINDOW. */
bool input_buffer_add(struct input_buffer *b, const uint8_t *bytes, size_t length);
void input_buffer_drop(struct input_buffer *b, size_t length);
void input_buffer_clear(struct input_buffer *b);

#endif
