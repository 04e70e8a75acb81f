#include "host_input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "dispatch.h"
#include "host_output.h"
#include "protocol.h"
#include "wire.h"

#define FRAME_MAX (ATOLL_HEADER_SIZE + ATOLL_MAX_TO_GUEST + ATOLL_TRAILER_SIZE)
#define HELLO_LONGEST 1024
#define END_RETRY_MS 1000

static uint8_t buffer[FRAME_MAX];
static size_t start, end;
static bool resyncing = true;
static uint64_t quiet_until;

void in_init(void) {
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
}

void in_resync(void) {
    resyncing = true;
}

bool in_wants_poll(uint64_t now_ms) {
    return !out_throttled() && now_ms >= quiet_until;
}

void in_read(void) {
    if (start > 0) {
        memmove(buffer, buffer + start, end - start);
        end -= start;
        start = 0;
    }
    /* The buffer is full only while answers are queued: any frame fits, so otherwise the pump would have taken one. */
    if (end == sizeof buffer)
        return;
    ssize_t n = read(STDIN_FILENO, buffer + end, sizeof buffer - end);
    if (n > 0)
        end += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        quiet_until = clock_ms() + END_RETRY_MS;
}

struct frame {
    uint32_t length, id;
    uint8_t type;
};

static bool parse_header(const uint8_t *at, struct frame *f) {
    struct reader r = reader_over(at, ATOLL_HEADER_SIZE);
    uint32_t magic = read_u32(&r);
    f->length = read_u32(&r);
    uint32_t type = read_u32(&r);
    f->type = (uint8_t)type;
    f->id = read_u32(&r);
    return magic == ATOLL_MAGIC && type <= 0xff && f->length <= ATOLL_MAX_TO_GUEST;
}

static bool trailer_fits(const uint8_t *at, const struct frame *f) {
    struct reader r = reader_over(at + ATOLL_HEADER_SIZE + f->length, ATOLL_TRAILER_SIZE);
    return read_u32(&r) == trailer_of(f->type, f->id, f->length);
}

static size_t frame_size(const struct frame *f) {
    return ATOLL_HEADER_SIZE + (size_t)f->length + ATOLL_TRAILER_SIZE;
}

/* Moves `start` to the next position that may still become a HELLO. Returns true when there is a complete one. */
static bool find_hello(struct frame *f) {
    while (start < end) {
        uint8_t *candidate = memchr(buffer + start, ATOLL_MAGIC & 0xff, end - start);
        if (candidate == NULL) {
            start = end;
            return false;
        }
        start = (size_t)(candidate - buffer);
        if (end - start < ATOLL_HEADER_SIZE)
            return false;
        bool plausible = parse_header(candidate, f) && f->type == ATOLL_FRAME_HELLO && f->id == 0 &&
                         f->length >= ATOLL_HELLO_SIZE && f->length <= HELLO_LONGEST;
        if (plausible && end - start < frame_size(f))
            return false;
        if (plausible && trailer_fits(candidate, f))
            return true;
        start++;
    }
    return false;
}

static bool next_frame(struct frame *f) {
    while (!resyncing) {
        if (end - start < ATOLL_HEADER_SIZE)
            return false;
        if (!parse_header(buffer + start, f)) {
            start++;
            resyncing = true;
        } else if (end - start < frame_size(f)) {
            return false;
        } else if (!trailer_fits(buffer + start, f)) {
            /* A torn frame may contain anything, even bytes that look like a HELLO, so the search for HELLO begins
             * after it. */
            start += frame_size(f);
            resyncing = true;
        } else {
            return true;
        }
    }
    return find_hello(f);
}

void in_pump(void) {
    struct frame f;
    while (!out_throttled() && next_frame(&f)) {
        const uint8_t *payload = buffer + start + ATOLL_HEADER_SIZE;
        start += frame_size(&f);
        resyncing = false;
        dispatch_frame(f.type, f.id, payload, f.length);
    }
}
