#include "dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "host_output.h"
#include "protocol.h"

struct address {
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
};

static struct address loopback(uint8_t family, uint16_t port) {
    struct address a;
    memset(&a, 0, sizeof a);
    if (family == 4) {
        a.length = sizeof a.v4;
        a.v4.sin_family = AF_INET;
        a.v4.sin_port = htons(port);
        a.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        a.length = sizeof a.v6;
        a.v6.sin6_family = AF_INET6;
        a.v6.sin6_port = htons(port);
        a.v6.sin6_addr = in6addr_loopback;
    }
    return a;
}

/* The protocol on the port is not known here, so no byte waits for more bytes to be sent with. */
static void stop_delaying(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void fail(struct stream *s, int error) {
    out_failed(s->id, error, "connect to the port");
    stream_free(s);
}

static void established(struct stream *s) {
    uint8_t pid[4] = {0};
    s->out_fd[0] = fcntl(s->in_fd, F_DUPFD_CLOEXEC, 3);
    if (s->out_fd[0] < 0) {
        fail(s, errno);
        return;
    }
    stop_delaying(s->in_fd);
    s->connecting = false;
    out_frame(ATOLL_FRAME_STARTED, s->id, pid, sizeof pid);
    stream_write(s);
}

void dial_ready(struct stream *s) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(s->in_fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error == 0)
        established(s);
    else
        fail(s, error);
}

static void start(struct stream *s, uint8_t family, uint16_t port) {
    struct address address = loopback(family, port);
    s->connecting = true;
    s->in_fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->in_fd < 0)
        fail(s, errno);
    else if (connect(s->in_fd, &address.any, address.length) == 0)
        established(s);
    else if (errno != EINPROGRESS)
        fail(s, errno);
}

void dial_frame(uint32_t id, struct reader *r) {
    uint16_t port = read_u16(r);
    uint8_t family = read_u8(r);
    uint32_t window = read_u32(r);
    if (r->bad || reader_left(r) > 0) {
        out_failed(id, EBADMSG, "read the request");
        return;
    }
    bool known = (family == 4 || family == 6) && port != 0 && window <= ATOLL_WINDOW_MAX;
    if (id == 0 || (id & ATOLL_GUEST_ID_BIT) || !known) {
        out_failed(id, EINVAL, "understand the request");
        return;
    }
    struct stream *s = stream_new(id, KIND_DIALLED, window);
    if (s == NULL)
        out_failed(id, errno, "make a stream");
    else
        start(s, family, port);
}
