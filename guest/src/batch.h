/* Frames gathered for one writev: small ones are copied, output is taken straight from the rings. */
#ifndef ATOLL_BATCH_H
#define ATOLL_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "ring.h"

#define BATCH_PIECES 128
#define BATCH_SCRATCH 16384
/* A batch takes no more frames once it has this many bytes. */
#define BATCH_ENOUGH 65536

struct batch {
    struct iovec pieces[BATCH_PIECES];
    int count;
    size_t bytes;
    size_t used;
    uint8_t scratch[BATCH_SCRATCH];
};

struct stream;

void batch_start(struct batch *b);
bool batch_full(const struct batch *b);
void batch_borrow(struct batch *b, void *bytes, size_t length);
void batch_frame(struct batch *b, uint8_t type, uint32_t id, const void *payload, size_t length);
void batch_output(struct batch *b, uint32_t id, const struct chunk *chunk);

/* Adds what the host does not know yet of the state of one stream, at most one OUTPUT frame, and marks it as sent. */
void stream_emit(struct stream *s, struct batch *b);

#endif
