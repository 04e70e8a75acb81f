#include "batch.h"

#include <string.h>

#include "egress.h"
#include "protocol.h"
#include "stream.h"
#include "wire.h"

/* Acknowledging input in small steps would cost a frame per step; the host waits for more only when the buffer is
 * empty. */
#define INPUT_ACK_STEP 65536

/* The most scratch bytes and pieces that one stream adds. */
#define STREAM_SCRATCH 640
#define STREAM_PIECES 6

void batch_start(struct batch *b) {
    b->count = 0;
    b->bytes = 0;
    b->used = 0;
}

bool batch_full(const struct batch *b) {
    return b->bytes >= BATCH_ENOUGH || b->used + STREAM_SCRATCH > BATCH_SCRATCH ||
           b->count + STREAM_PIECES > BATCH_PIECES;
}

void batch_borrow(struct batch *b, void *bytes, size_t length) {
    if (length == 0)
        return;
    struct iovec *last = b->count > 0 ? &b->pieces[b->count - 1] : NULL;
    if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == (uint8_t *)bytes)
        last->iov_len += length;
    else
        b->pieces[b->count++] = (struct iovec){bytes, length};
    b->bytes += length;
}

static uint8_t *scratch(struct batch *b, size_t length) {
    uint8_t *at = b->scratch + b->used;
    b->used += length;
    return at;
}

void batch_frame(struct batch *b, uint8_t type, uint32_t id, const void *payload, size_t length) {
    size_t size = ATOLL_HEADER_SIZE + length + ATOLL_TRAILER_SIZE;
    uint8_t *at = scratch(b, size);
    uint8_t *next = put_header(at, type, id, (uint32_t)length);
    memcpy(next, payload, length);
    put_u32(next + length, trailer_of(type, id, (uint32_t)length));
    batch_borrow(b, at, size);
}

void batch_output(struct batch *b, uint32_t id, const struct chunk *chunk) {
    uint32_t length = (uint32_t)(ATOLL_OUTPUT_HEAD_SIZE + chunk->length);
    uint8_t *head = scratch(b, ATOLL_HEADER_SIZE + ATOLL_OUTPUT_HEAD_SIZE);
    uint8_t *next = put_header(head, ATOLL_FRAME_OUTPUT, id, length);
    next = put_u64(next, chunk->at);
    next = put_u64(next, chunk->offset);
    next = put_u8(next, chunk->output);
    batch_borrow(b, head, (size_t)(next - head));
    for (int i = 0; i < chunk->count; i++)
        batch_borrow(b, chunk->pieces[i].iov_base, chunk->pieces[i].iov_len);
    uint8_t *tail = scratch(b, ATOLL_TRAILER_SIZE);
    put_u32(tail, trailer_of(ATOLL_FRAME_OUTPUT, id, length));
    batch_borrow(b, tail, ATOLL_TRAILER_SIZE);
}

static void emit_position(struct batch *b, uint8_t type, uint32_t id, uint64_t position) {
    uint8_t payload[8];
    put_u64(payload, position);
    batch_frame(b, type, id, payload, sizeof payload);
}

static void emit_input(struct stream *s, struct batch *b) {
    uint64_t unacknowledged = s->in_handed - s->in_sent;
    if (unacknowledged >= INPUT_ACK_STEP || (unacknowledged > 0 && s->in.length == 0)) {
        emit_position(b, ATOLL_FRAME_STDIN_ACK, s->id, s->in_handed);
        s->in_sent = s->in_handed;
    }
    if (s->input == INPUT_CLOSED && !s->closed_sent) {
        emit_position(b, ATOLL_FRAME_STDIN_CLOSED, s->id, s->in_handed);
        s->closed_sent = true;
    }
}

void stream_emit(struct stream *s, struct batch *b) {
    if (!s->attached || s->connecting)
        return;
    if (s->egress != NULL) {
        egress_emit(s, b);
        return;
    }
    emit_input(s, b);
    struct chunk chunk;
    if (ring_next(&s->out, &chunk, ATOLL_MAX_DATA)) {
        batch_output(b, s->id, &chunk);
        ring_advance(&s->out, &chunk);
    }
    if (s->process.exited && !s->exit_sent && s->out.sent >= s->process.exit_at) {
        batch_frame(b, ATOLL_FRAME_EXIT, s->id, s->process.exit, ATOLL_EXIT_SIZE);
        s->exit_sent = true;
    }
    if (!s->end_sent && stream_output_ended(s) && s->out.sent == s->out.produced) {
        emit_position(b, ATOLL_FRAME_END, s->id, s->out.produced);
        s->end_sent = true;
    }
}
