#include "host_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "batch.h"
#include "clock.h"
#include "protocol.h"
#include "stream.h"
#include "wire.h"

/* No input is taken beyond THROTTLE. One more frame, and all connections being dialled, must still be able to
 * answer, so the queue has room for that too. */
#define THROTTLE ((size_t)256 << 10)
#define QUEUE_SIZE ((size_t)640 << 10)
#define QUEUE_SLICE 65536
#define ROUNDS 16
#define BROKEN_RETRY_MS 1000

enum voice { VOICE_NONE, VOICE_FULL, VOICE_LAST_WORDS };

static enum voice voice = VOICE_NONE;
static uint8_t queue[QUEUE_SIZE];
static size_t queue_start, queue_end;
/* The rest of a batch after a short write. It is sent before everything else, so no frame is ever interrupted by
 * another. */
static uint8_t rest[QUEUE_SLICE + BATCH_ENOUGH + ATOLL_MAX_DATA + BATCH_SCRATCH];
static size_t rest_start, rest_end;
static bool blocked, unfinished;
static uint64_t broken_until;
static int next_stream;
static struct batch batch;

void out_init(void) {
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
}

bool out_greeted(void) {
    return voice == VOICE_FULL;
}

bool out_throttled(void) {
    return queue_end - queue_start > THROTTLE;
}

bool out_unfinished(void) {
    return unfinished;
}

bool out_wants_poll(uint64_t now_ms) {
    return blocked && now_ms >= broken_until;
}

bool out_broken(uint64_t now_ms) {
    return blocked && now_ms < broken_until;
}

void out_frame(uint8_t type, uint32_t id, const void *payload, size_t length) {
    size_t size = ATOLL_HEADER_SIZE + length + ATOLL_TRAILER_SIZE;
    if (voice != VOICE_FULL)
        return;
    if (QUEUE_SIZE - queue_end < size && queue_start > 0) {
        memmove(queue, queue + queue_start, queue_end - queue_start);
        queue_end -= queue_start;
        queue_start = 0;
    }
    if (QUEUE_SIZE - queue_end < size)
        return;
    uint8_t *next = put_header(queue + queue_end, type, id, (uint32_t)length);
    if (length > 0)
        memcpy(next, payload, length);
    put_u32(next + length, trailer_of(type, id, (uint32_t)length));
    queue_end += size;
}

void out_failed(uint32_t id, int error, const char *what, ...) {
    char text[256];
    uint8_t payload[8 + sizeof text];
    va_list arguments;
    va_start(arguments, what);
    int length = vsnprintf(text, sizeof text, what, arguments);
    va_end(arguments);
    if (length < 0)
        length = 0;
    if ((size_t)length >= sizeof text)
        length = sizeof text - 1;
    uint8_t *end = put_text(put_u32(payload, (uint32_t)error), text, (size_t)length);
    out_frame(ATOLL_FRAME_FAILED, id, payload, (size_t)(end - payload));
}

void out_greet(void) {
    queue_start = queue_end = 0;
    rest_start = rest_end = 0;
    voice = VOICE_FULL;
}

void out_silence(void) {
    voice = VOICE_LAST_WORDS;
}

void out_prepare(uint32_t id) {
    out_frame(ATOLL_FRAME_READY, id, NULL, 0);
    out_silence();
}

/* Returns false when nothing could be written. A broken pipe is no reason to stop: the next host opens it again. */
static bool write_pieces(const struct iovec *pieces, int count, size_t *written) {
    ssize_t n = writev(STDOUT_FILENO, pieces, count);
    *written = n > 0 ? (size_t)n : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        broken_until = clock_ms() + BROKEN_RETRY_MS;
    return n > 0;
}

static bool write_rest(void) {
    size_t written;
    struct iovec piece = {rest + rest_start, rest_end - rest_start};
    if (piece.iov_len == 0)
        return true;
    write_pieces(&piece, 1, &written);
    rest_start += written;
    return rest_start == rest_end;
}

static void gather(void) {
    batch_start(&batch);
    size_t queued = queue_end - queue_start;
    if (queued > 0) {
        size_t slice = queued < QUEUE_SLICE ? queued : QUEUE_SLICE;
        batch_borrow(&batch, queue + queue_start, slice);
        queue_start += slice;
        if (queue_start < queue_end)
            return;
        queue_start = queue_end = 0;
    }
    int count = stream_count();
    if (voice != VOICE_FULL || count == 0)
        return;
    for (int i = 0; i < count && !batch_full(&batch); i++) {
        next_stream = (next_stream + 1) % count;
        stream_emit(stream_nth(next_stream), &batch);
    }
}

/* Copies the part of the batch after the first `written` bytes to `rest`. */
static void keep_rest(size_t written) {
    rest_start = rest_end = 0;
    for (int i = 0; i < batch.count; i++) {
        struct iovec *piece = &batch.pieces[i];
        size_t skip = written < piece->iov_len ? written : piece->iov_len;
        written -= skip;
        memcpy(rest + rest_end, (uint8_t *)piece->iov_base + skip, piece->iov_len - skip);
        rest_end += piece->iov_len - skip;
    }
}

void out_pump(void) {
    unfinished = false;
    blocked = true;
    for (int round = 0; round < ROUNDS; round++) {
        size_t written;
        if (!write_rest())
            return;
        gather();
        if (batch.count == 0) {
            blocked = false;
            return;
        }
        write_pieces(batch.pieces, batch.count, &written);
        if (written < batch.bytes) {
            keep_rest(written);
            return;
        }
    }
    blocked = false;
    unfinished = true;
}
