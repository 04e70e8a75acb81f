/* How bytes pass between a stream's descriptors and its buffers. */
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#include "stream.h"

#define READ_MOST 65536

static bool again(int error) {
    return error == EAGAIN || error == EINTR;
}

/* Input that comes before a connection is established, or before its verdict, is kept. */
static bool input_reachable(const struct stream *s) {
    return s->in_fd >= 0 && !s->connecting && s->egress == NULL;
}

/* EIO from a terminal means that no process has its other side open. */
static void end_output(struct stream *s, int output) {
    if (!stream_keep_terminal(s))
        stream_close_output(s, output);
}

bool stream_has_turn(const struct stream *s, int output) {
    return s->owed[output] == 0 && !ring_full(&s->out);
}

/* Makes an output wait for the bytes that the other has now. */
static void wait_for_other(struct stream *s, int output) {
    int other = 1 - output, bytes = 0;
    if (s->readable[other] && ioctl(s->out_fd[other], FIONREAD, &bytes) == 0 && bytes > 0)
        s->owed[output] = (uint64_t)bytes;
}

void stream_ready(struct stream *s, int output) {
    if (!s->readable[output]) {
        s->readable[output] = true;
        wait_for_other(s, output);
    }
    if (stream_has_turn(s, output))
        stream_read(s, output);
}

static void reduce_owed(uint64_t *owed, size_t bytes) {
    *owed -= bytes < *owed ? bytes : *owed;
}

/* Handles the result of a read of `wanted` bytes: `n` bytes, 0 at the end, or -1 with errno. */
static void note_read(struct stream *s, int output, ssize_t n, size_t wanted) {
    int other = 1 - output;
    bool owing = s->owed[other] > 0;
    s->readable[output] = n > 0 && (size_t)n == wanted;
    if (n > 0) {
        reduce_owed(&s->process.undrained[output], (size_t)n);
        reduce_owed(&s->owed[other], (size_t)n);
        if (owing && s->owed[other] == 0)
            wait_for_other(s, output);
    } else if (n == 0 || !again(errno)) {
        end_output(s, output);
    } else if (errno == EAGAIN) {
        s->process.undrained[output] = 0;
    }
    if (!s->readable[output])
        s->owed[other] = 0;
}

/* Reads output and throws it away: a released process must not notice that there is no reader. */
static void read_away(struct stream *s, int output) {
    static uint8_t waste[READ_MOST];
    note_read(s, output, read(s->out_fd[output], waste, sizeof waste), sizeof waste);
}

void stream_read(struct stream *s, int output) {
    uint64_t owed = s->owed[1 - output];
    size_t most = owed > 0 && owed < READ_MOST ? (size_t)owed : READ_MOST;
    if (s->out_fd[output] < 0)
        return;
    if (s->released) {
        read_away(s, output);
        return;
    }
    struct iovec pieces[2];
    int count = ring_space(&s->out, pieces, most);
    if (count == 0)
        return;
    size_t wanted = pieces[0].iov_len + (count > 1 ? pieces[1].iov_len : 0);
    ssize_t n = readv(s->out_fd[output], pieces, count);
    if (n > 0)
        ring_commit(&s->out, (uint8_t)(output + 1), (size_t)n);
    note_read(s, output, n, wanted);
}

/* Types the end-of-file character, which is the only end of file that a terminal has: once at the start of a line,
 * twice within a line. Returns false when the terminal is full. */
static bool type_end(struct stream *s) {
    struct termios mode;
    char end = 4;
    if (tcgetattr(s->in_fd, &mode) == 0)
        end = (char)mode.c_cc[VEOF];
    char text[2] = {end, end};
    bool within = s->in_handed > 0 && s->in_last != '\n' && s->in_last != '\r';
    return write(s->in_fd, text, within ? 2 : 1) > 0 || !again(errno);
}

static void write_end(struct stream *s) {
    if (s->process.pty) {
        if (!type_end(s))
            return;
    } else {
        if (s->kind != KIND_PROCESS)
            shutdown(s->in_fd, SHUT_WR);
        close(s->in_fd);
        s->in_fd = -1;
    }
    s->input = INPUT_ENDED;
    input_buffer_clear(&s->in);
}

/* Returns the number of bytes written; 0 when the reader is busy or gone, which then shows in `input`. */
static size_t write_input(struct stream *s, const uint8_t *data, size_t length) {
    ssize_t n = s->kind == KIND_PROCESS ? write(s->in_fd, data, length) : send(s->in_fd, data, length, MSG_NOSIGNAL);
    if (n < 0 && !again(errno) && !stream_keep_terminal(s))
        stream_close_input(s);
    if (n <= 0)
        return 0;
    s->in_last = data[n - 1];
    s->in_handed += (uint64_t)n;
    return (size_t)n;
}

void stream_write(struct stream *s) {
    while (s->in.length > 0) {
        size_t n = write_input(s, s->in.data + s->in.start, s->in.length);
        if (n == 0)
            return;
        input_buffer_drop(&s->in, n);
    }
    if (s->input == INPUT_ENDING)
        write_end(s);
}

void stream_take_input(struct stream *s, uint64_t offset, const uint8_t *data, size_t length) {
    if (s->input != INPUT_OPEN || offset > s->in_received || offset + length < offset)
        return;
    uint64_t known = s->in_received - offset;
    if (known >= length)
        return;
    data += known;
    length -= known;
    uint64_t room = ATOLL_STDIN_WINDOW - (s->in_received - s->in_handed);
    if (length > room)
        length = room;
    if (s->in.length == 0 && input_reachable(s)) {
        size_t n = write_input(s, data, length);
        s->in_received += n;
        data += n;
        length -= n;
    }
    if (s->input != INPUT_OPEN || length == 0)
        return;
    /* Without memory the input ends here, and STDIN_CLOSED says where. */
    if (input_buffer_add(&s->in, data, length))
        s->in_received += length;
    else
        stream_close_input(s);
}

void stream_end_input(struct stream *s, uint64_t offset) {
    if (s->input != INPUT_OPEN || offset != s->in_received)
        return;
    s->input = INPUT_ENDING;
    if (s->in.length == 0 && input_reachable(s))
        write_end(s);
}
