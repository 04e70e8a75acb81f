/*
 * The output side of a stream: the bytes that the host has not acknowledged, in the order they were read, and which
 * output each of them came from. Positions (`acked`, `sent`, `produced`) count from the start of the stream.
 */
#ifndef ATOLL_RING_H
#define ATOLL_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RING_FIRST 4096
#define RING_FIRST_SEGMENTS 16

struct ring {
    uint64_t acked, sent, produced;
    uint32_t window;
    /* The last attempt to make room failed: reading waits for an acknowledgement. */
    bool full;
    /* A power of two; a byte is stored at its position modulo this. */
    uint32_t capacity;
    uint8_t *data;
    /* Each segment is its end position, shifted left by one, with its output minus one in the lowest bit. */
    uint64_t *segments;
    uint32_t segment_capacity;
    /* Sequence numbers; a segment is stored at its number modulo `segment_capacity`. `cursor` is the segment with
     * the byte at `sent`. */
    uint32_t head, cursor, tail;
    /* The number of bytes of each output below `acked` and below `sent`. */
    uint64_t acked_of[2], sent_of[2];
    uint64_t first_segments[RING_FIRST_SEGMENTS];
    uint8_t first[RING_FIRST];
};

struct chunk {
    uint64_t at;
    uint64_t offset;
    uint8_t output;
    size_t length;
    struct iovec pieces[2];
    int count;
};

/* The other memory of a ring is its `first` buffers, so a ring works, if slowly, when memory is short. */
void ring_init(struct ring *r, uint32_t window);
/* Frees grown memory and drops all bytes. */
void ring_clear(struct ring *r);
/* Returns up to two pieces of free space, and grows where the window and the budget of all rings allow; returns 0
 * when the writer has to wait. */
int ring_space(struct ring *r, struct iovec pieces[2], size_t most);
void ring_commit(struct ring *r, uint8_t output, size_t length);
/* Copies all of `bytes`, or nothing. */
bool ring_append(struct ring *r, uint8_t output, const void *bytes, size_t length);
/* Frees grown memory if the ring is empty; for a ring that will not be written to any more. */
void ring_trim(struct ring *r);
/* Returns the next bytes to send: of one output, at most `most`. Returns false when all is sent. */
bool ring_next(struct ring *r, struct chunk *chunk, size_t most);
void ring_advance(struct ring *r, const struct chunk *chunk);
/* Returns false when `at` is not between what is acknowledged and what is sent. */
bool ring_ack(struct ring *r, uint64_t at);
/* Returns false when `at` is not between what is acknowledged and what is produced. */
bool ring_rewind(struct ring *r, uint64_t at);
bool ring_full(const struct ring *r);

/* Returns the bytes that all grown rings have together. */
size_t ring_memory(void);

#endif
