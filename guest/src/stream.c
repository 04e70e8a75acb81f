#include "stream.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress.h"
#include "clock.h"
#include "host_output.h"
#include "pollset.h"
#include "procfs.h"
#include "pty.h"
#include "undo.h"

#define HUNG_MS 100

static struct stream *streams[ATOLL_MAX_STREAMS];
static int count;

struct stream *stream_find(uint32_t id) {
    for (int i = 0; i < count; i++)
        if (streams[i]->id == id)
            return streams[i];
    return NULL;
}

struct stream *stream_of_pid(pid_t pid) {
    for (int i = 0; i < count; i++)
        if (streams[i]->kind == KIND_PROCESS && streams[i]->process.pid == pid && !streams[i]->process.reaped)
            return streams[i];
    return NULL;
}

int stream_count(void) {
    return count;
}

struct stream *stream_nth(int n) {
    return streams[n];
}

struct stream *stream_new(uint32_t id, enum stream_kind kind, uint32_t window) {
    if (stream_find(id) != NULL) {
        errno = EEXIST;
        return NULL;
    }
    if (count == ATOLL_MAX_STREAMS) {
        errno = EAGAIN;
        return NULL;
    }
    struct stream *s = malloc(sizeof *s);
    if (s == NULL)
        return NULL;
    memset(s, 0, offsetof(struct stream, out));
    ring_init(&s->out, window == 0 ? ATOLL_WINDOW_DEFAULT : window);
    s->id = id;
    s->kind = kind;
    s->attached = out_greeted();
    s->out_fd[0] = s->out_fd[1] = s->in_fd = -1;
    s->process.file_size_limit = UINT64_MAX;
    streams[count++] = s;
    return s;
}

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void stream_free(struct stream *s) {
    for (int i = 0; i < count; i++) {
        if (streams[i] != s)
            continue;
        /* The order is kept, because the next stream to be sent is found by its position. */
        memmove(&streams[i], &streams[i + 1], (size_t)(count - i - 1) * sizeof streams[0]);
        count--;
        break;
    }
    pollset_forget(s);
    egress_free(s);
    undo_free(s->process.undo);
    close_fd(&s->out_fd[0]);
    close_fd(&s->out_fd[1]);
    close_fd(&s->in_fd);
    input_buffer_clear(&s->in);
    ring_clear(&s->out);
    free(s);
}

uint64_t stream_memory(void) {
    uint64_t bytes = ring_memory() + (uint64_t)count * sizeof(struct stream);
    for (int i = 0; i < count; i++)
        bytes += streams[i]->in.capacity;
    return bytes;
}

bool stream_output_ended(const struct stream *s) {
    return s->out_fd[0] < 0 && s->out_fd[1] < 0 && !s->connecting;
}

bool stream_input_done(const struct stream *s) {
    return s->input == INPUT_ENDED || s->input == INPUT_CLOSED;
}

bool stream_over(const struct stream *s) {
    if (s->kind == KIND_PROCESS)
        return s->process.exited && stream_output_ended(s);
    return s->egress == NULL && stream_output_ended(s) && stream_input_done(s);
}

void stream_close_output(struct stream *s, int output) {
    close_fd(&s->out_fd[output]);
    s->readable[output] = false;
    s->owed[0] = s->owed[1] = 0;
    s->process.undrained[output] = 0;
    /* A terminal that hung up has no reader either. */
    if (s->process.pty)
        stream_close_input(s);
}

void stream_close_input(struct stream *s) {
    if (s->kind != KIND_PROCESS && s->in_fd >= 0)
        shutdown(s->in_fd, SHUT_WR);
    close_fd(&s->in_fd);
    input_buffer_clear(&s->in);
    if (!stream_input_done(s))
        s->input = INPUT_CLOSED;
}

bool stream_keep_terminal(struct stream *s) {
    if (!s->process.pty || s->process.reaped)
        return false;
    s->process.hung_until = clock_ms() + HUNG_MS;
    return true;
}

void stream_detach(struct stream *s) {
    s->attached = false;
    s->in_sent = s->in_handed;
    s->closed_sent = s->input == INPUT_CLOSED;
}

bool stream_attach(struct stream *s, uint64_t at) {
    if (!ring_rewind(&s->out, at))
        return false;
    s->attached = true;
    s->exit_sent = s->end_sent = false;
    if (s->egress != NULL)
        s->egress->announced = false;
    return true;
}

void stream_release(struct stream *s) {
    if (s->kind != KIND_PROCESS || stream_over(s)) {
        stream_free(s);
        return;
    }
    s->released = true;
    s->attached = false;
    ring_clear(&s->out);
}

/* A process that does not handle this signal ignores it, so the whole session may get it. */
static bool signal_new_size(pid_t pid, void *session) {
    if (getsid(pid) == *(pid_t *)session)
        kill(pid, SIGWINCH);
    return true;
}

void stream_resize(struct stream *s, uint16_t rows, uint16_t columns) {
    if (!s->process.pty || s->out_fd[0] < 0)
        return;
    if (!pty_resize(s->out_fd[0], rows, columns) && !s->process.exited)
        procfs_each(signal_new_size, &s->process.pid);
}

/* A connection has exited when both of its sides have ended. */
static uint8_t state_of(const struct stream *s) {
    if (s->egress != NULL)
        return 3;
    if (s->kind == KIND_PROCESS)
        return s->process.exited ? 2 : 1;
    return stream_over(s) ? 2 : 1;
}

uint8_t *stream_entry(const struct stream *s, uint8_t *to) {
    bool ended = s->egress == NULL && stream_output_ended(s);
    uint8_t flags = (s->process.pty ? 1 : 0) | (ended ? 2 : 0) | (stream_input_done(s) ? 4 : 0);
    to = put_u32(to, s->id);
    to = put_u8(to, (uint8_t)s->kind);
    to = put_u8(to, state_of(s));
    to = put_u8(to, flags);
    to = put_u8(to, 0);
    to = put_u32(to, (uint32_t)s->process.pid);
    to = put_u64(to, s->out.acked);
    to = put_u64(to, s->out.produced);
    to = put_u64(to, s->in_received);
    to = put_u64(to, s->in_handed);
    /* The host does not learn of an exit before EXIT is sent. */
    if (s->process.exited)
        memcpy(to, s->process.exit, ATOLL_EXIT_SIZE);
    else
        memset(to, 0, ATOLL_EXIT_SIZE);
    return to + ATOLL_EXIT_SIZE;
}
