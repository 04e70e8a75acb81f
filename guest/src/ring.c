#include "ring.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET ((size_t)64 << 20)
#define MOST_SEGMENTS 1024

static size_t grown;

size_t ring_memory(void) {
    return grown;
}

static uint64_t segment_end(const struct ring *r, uint32_t number) {
    return r->segments[number & (r->segment_capacity - 1)] >> 1;
}

static unsigned segment_output(const struct ring *r, uint32_t number) {
    return r->segments[number & (r->segment_capacity - 1)] & 1;
}

void ring_init(struct ring *r, uint32_t window) {
    memset(r, 0, offsetof(struct ring, first_segments));
    r->window = window;
    r->capacity = RING_FIRST;
    r->data = r->first;
    r->segment_capacity = RING_FIRST_SEGMENTS;
    r->segments = r->first_segments;
}

static void shrink(struct ring *r) {
    if (r->data != r->first) {
        free(r->data);
        grown -= r->capacity;
        r->data = r->first;
        r->capacity = RING_FIRST;
    }
    if (r->segments != r->first_segments) {
        free(r->segments);
        r->segments = r->first_segments;
        r->segment_capacity = RING_FIRST_SEGMENTS;
    }
}

void ring_clear(struct ring *r) {
    r->acked = r->sent = r->produced;
    r->head = r->cursor = r->tail;
    r->full = false;
    shrink(r);
}

static bool grow_data(struct ring *r) {
    if (r->capacity >= r->window)
        return false;
    uint32_t capacity = r->capacity * 2;
    /* A stream that fills its first buffer is likely to fill the next ones too. */
    while (capacity < r->window && capacity < r->capacity * 8)
        capacity *= 2;
    if (capacity > BUDGET - grown)
        return false;
    uint8_t *data = malloc(capacity);
    if (data == NULL)
        return false;
    grown += capacity;
    for (uint64_t at = r->acked; at < r->produced;) {
        uint32_t from = at & (r->capacity - 1), to = at & (capacity - 1);
        uint32_t run = r->capacity - from;
        if (run > capacity - to)
            run = capacity - to;
        if (run > r->produced - at)
            run = (uint32_t)(r->produced - at);
        memcpy(data + to, r->data + from, run);
        at += run;
    }
    if (r->data != r->first) {
        free(r->data);
        grown -= r->capacity;
    }
    r->data = data;
    r->capacity = capacity;
    return true;
}

/* Makes sure that one more segment can be added. */
static bool segment_room(struct ring *r) {
    uint32_t count = r->tail - r->head;
    if (count < r->segment_capacity)
        return true;
    uint32_t capacity = r->segment_capacity * 4;
    if (capacity > MOST_SEGMENTS)
        return false;
    uint64_t *segments = malloc(capacity * sizeof *segments);
    if (segments == NULL)
        return false;
    for (uint32_t n = r->head; n != r->tail; n++)
        segments[n & (capacity - 1)] = r->segments[n & (r->segment_capacity - 1)];
    if (r->segments != r->first_segments)
        free(r->segments);
    r->segments = segments;
    r->segment_capacity = capacity;
    return true;
}

bool ring_full(const struct ring *r) {
    return r->full;
}

int ring_space(struct ring *r, struct iovec pieces[2], size_t most) {
    uint64_t held = r->produced - r->acked;
    r->full = held >= r->window || !segment_room(r) || (held >= r->capacity && !grow_data(r));
    if (r->full)
        return 0;
    size_t room = (r->capacity < r->window ? r->capacity : r->window) - (size_t)held;
    if (room > most)
        room = most;
    uint32_t from = r->produced & (r->capacity - 1);
    size_t run = r->capacity - from;
    if (run > room)
        run = room;
    pieces[0] = (struct iovec){r->data + from, run};
    pieces[1] = (struct iovec){r->data, room - run};
    return room > run ? 2 : 1;
}

void ring_commit(struct ring *r, uint8_t output, size_t length) {
    if (length == 0)
        return;
    r->produced += length;
    r->full = r->produced - r->acked >= r->window;
    uint64_t segment = r->produced << 1 | (output - 1u);
    if (r->tail == r->head || segment_output(r, r->tail - 1) != output - 1u)
        r->tail++;
    r->segments[(r->tail - 1) & (r->segment_capacity - 1)] = segment;
}

bool ring_append(struct ring *r, uint8_t output, const void *bytes, size_t length) {
    const uint8_t *next = bytes;
    if (length > r->window - (r->produced - r->acked))
        return false;
    while (r->capacity - (r->produced - r->acked) < length)
        if (!grow_data(r))
            return false;
    while (length > 0) {
        struct iovec pieces[2];
        if (ring_space(r, pieces, length) == 0)
            return false;
        memcpy(pieces[0].iov_base, next, pieces[0].iov_len);
        next += pieces[0].iov_len;
        length -= pieces[0].iov_len;
        ring_commit(r, output, pieces[0].iov_len);
    }
    return true;
}

void ring_trim(struct ring *r) {
    if (r->acked == r->produced)
        shrink(r);
}

bool ring_next(struct ring *r, struct chunk *chunk, size_t most) {
    if (r->sent == r->produced)
        return false;
    while (segment_end(r, r->cursor) <= r->sent)
        r->cursor++;
    unsigned output = segment_output(r, r->cursor);
    uint64_t length = segment_end(r, r->cursor) - r->sent;
    if (length > most)
        length = most;
    uint32_t from = r->sent & (r->capacity - 1);
    size_t run = r->capacity - from;
    if (run > length)
        run = length;
    chunk->at = r->sent;
    chunk->offset = r->sent_of[output];
    chunk->output = (uint8_t)(output + 1);
    chunk->length = length;
    chunk->pieces[0] = (struct iovec){r->data + from, run};
    chunk->pieces[1] = (struct iovec){r->data, length - run};
    chunk->count = length > run ? 2 : 1;
    return true;
}

void ring_advance(struct ring *r, const struct chunk *chunk) {
    r->sent += chunk->length;
    r->sent_of[chunk->output - 1] += chunk->length;
}

/* Counts the bytes between `from` and `to` by output, starting at segment `number`. Returns the segment that `to` is
 * in. */
static uint32_t count_outputs(const struct ring *r, uint32_t number, uint64_t from, uint64_t to, uint64_t counts[2]) {
    while (from < to) {
        uint64_t end = segment_end(r, number);
        if (end <= from) {
            number++;
            continue;
        }
        uint64_t until = end < to ? end : to;
        counts[segment_output(r, number)] += until - from;
        from = until;
    }
    return number;
}

bool ring_ack(struct ring *r, uint64_t at) {
    if (at < r->acked || at > r->sent)
        return false;
    r->head = count_outputs(r, r->head, r->acked, at, r->acked_of);
    r->acked = at;
    r->full = r->produced - r->acked >= r->window;
    if (r->head != r->tail && segment_end(r, r->head) <= at)
        r->head++;
    if ((int32_t)(r->cursor - r->head) < 0)
        r->cursor = r->head;
    /* While the budget is not used up, an empty ring keeps its memory for the next burst. */
    if (r->acked == r->produced && grown > BUDGET / 2)
        shrink(r);
    return true;
}

bool ring_rewind(struct ring *r, uint64_t at) {
    if (at < r->acked || at > r->produced)
        return false;
    r->sent_of[0] = r->acked_of[0];
    r->sent_of[1] = r->acked_of[1];
    r->cursor = count_outputs(r, r->head, r->acked, at, r->sent_of);
    r->sent = at;
    return true;
}
