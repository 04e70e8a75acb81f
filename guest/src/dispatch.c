#include "dispatch.h"

#include <errno.h>
#include <string.h>

#include "egress.h"
#include "dial.h"
#include "host_input.h"
#include "host_output.h"
#include "process.h"
#include "protocol.h"
#include "requests.h"
#include "spawn.h"
#include "stream.h"
#include "wire.h"

/* Checks after a handler's last field that the payload was neither too short nor too long. */
static bool is_complete(uint32_t id, const struct reader *r) {
    if (!r->bad && reader_left(r) == 0)
        return true;
    out_failed(id, EBADMSG, "read the request");
    return false;
}

static void on_hello(struct reader *r) {
    static uint8_t payload[ATOLL_WELCOME_HEAD_SIZE + ATOLL_MAX_STREAMS * ATOLL_WELCOME_ENTRY_SIZE];
    uint32_t version = read_u32(r);
    const uint8_t *nonce = read_bytes(r, ATOLL_NONCE_SIZE);
    read_u64(r);
    if (r->bad)
        return;
    out_greet();
    uint8_t *to = put_u32(payload, ATOLL_VERSION);
    memcpy(to, nonce, ATOLL_NONCE_SIZE);
    to += ATOLL_NONCE_SIZE;
    uint8_t *count_at = to;
    uint32_t count = 0;
    to = put_u32(to, 0);
    for (int i = stream_count() - 1; i >= 0; i--) {
        struct stream *s = stream_nth(i);
        stream_detach(s);
        /* A connection that is still being dialled is dropped: the host asks again, as for any answer that it
         * missed. */
        if (s->connecting)
            stream_free(s);
    }
    for (int i = 0; version == ATOLL_VERSION && i < stream_count(); i++) {
        struct stream *s = stream_nth(i);
        if (s->released)
            continue;
        to = stream_entry(s, to);
        count++;
    }
    put_u32(count_at, count);
    out_frame(ATOLL_FRAME_WELCOME, 0, payload, (size_t)(to - payload));
    if (version != ATOLL_VERSION) {
        out_silence();
        in_resync();
    }
}

static void on_stdin(struct stream *s, uint32_t id, struct reader *r) {
    uint64_t offset = read_u64(r);
    size_t length = reader_left(r);
    const uint8_t *data = read_bytes(r, length);
    if (is_complete(id, r) && s != NULL)
        stream_take_input(s, offset, data, length);
}

static void on_stdin_eof(struct stream *s, uint32_t id, struct reader *r) {
    uint64_t offset = read_u64(r);
    if (is_complete(id, r) && s != NULL)
        stream_end_input(s, offset);
}

static void on_ack(struct stream *s, uint32_t id, struct reader *r) {
    uint64_t at = read_u64(r);
    if (!is_complete(id, r) || s == NULL || s->released)
        return;
    ring_ack(&s->out, at);
    if (stream_output_ended(s))
        ring_trim(&s->out);
    process_settle(s);
}

static void on_signal(struct stream *s, uint32_t id, struct reader *r) {
    uint32_t signal = read_u32(r);
    uint32_t scope = read_u32(r);
    if (!is_complete(id, r) || s == NULL || s->kind != KIND_PROCESS)
        return;
    if (signal >= 1 && signal <= 64)
        process_signal(s, (int)signal, scope);
}

static void on_resize(struct stream *s, uint32_t id, struct reader *r) {
    uint16_t rows = read_u16(r);
    uint16_t columns = read_u16(r);
    if (is_complete(id, r) && s != NULL)
        stream_resize(s, rows, columns);
}

static void on_release(struct stream *s, uint32_t id, struct reader *r) {
    struct text reason = {"", 0};
    if (!is_complete(id, r) || s == NULL || s->released)
        return;
    if (s->egress != NULL)
        /* The client gets an answer, as after a refusal. */
        egress_verdict(s, VERDICT_UNREACHABLE, reason);
    else
        stream_release(s);
}

static void on_attach(struct stream *s, uint32_t id, struct reader *r) {
    uint64_t at = read_u64(r);
    if (!is_complete(id, r))
        return;
    if (s == NULL || s->released)
        out_failed(id, ESRCH, "attach to stream %u", id);
    else if (!stream_attach(s, at))
        out_failed(id, EINVAL, "attach at %llu", (unsigned long long)at);
}

static void on_verdict(struct stream *s, uint32_t id, struct reader *r) {
    uint8_t verdict = read_u8(r);
    struct text reason = read_text(r);
    if (is_complete(id, r) && s != NULL)
        egress_verdict(s, verdict, reason);
}

static bool dispatch_stream_frame(uint8_t type, uint32_t id, struct reader *r) {
    /* A frame for a stream that is gone is no mistake: it was on its way when the stream failed or was released. */
    struct stream *s = stream_find(id);
    switch (type) {
    case ATOLL_FRAME_STDIN:
        on_stdin(s, id, r);
        return true;
    case ATOLL_FRAME_STDIN_EOF:
        on_stdin_eof(s, id, r);
        return true;
    case ATOLL_FRAME_ACK:
        on_ack(s, id, r);
        return true;
    case ATOLL_FRAME_SIGNAL:
        on_signal(s, id, r);
        return true;
    case ATOLL_FRAME_RESIZE:
        on_resize(s, id, r);
        return true;
    case ATOLL_FRAME_RELEASE:
        on_release(s, id, r);
        return true;
    case ATOLL_FRAME_ATTACH:
        on_attach(s, id, r);
        return true;
    case ATOLL_FRAME_VERDICT:
        on_verdict(s, id, r);
        return true;
    default:
        return false;
    }
}

void dispatch_frame(uint8_t type, uint32_t id, const uint8_t *payload, size_t length) {
    struct reader r = reader_over(payload, length);
    if (type == ATOLL_FRAME_HELLO)
        on_hello(&r);
    else if (type == ATOLL_FRAME_SPAWN)
        spawn_frame(id, payload, length);
    else if (type == ATOLL_FRAME_DIAL)
        dial_frame(id, &r);
    else if (!dispatch_stream_frame(type, id, &r) && !request_frame(type, id, &r))
        out_failed(id, ENOSYS, "understand frame type 0x%02x", type);
}
