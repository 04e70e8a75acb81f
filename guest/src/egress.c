#include "egress.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy.h"
#include "proxy_reply.h"

/* Processes inside must not be able to use all streams: the host needs some to see what happens. */
#define EGRESS_MOST (ATOLL_MAX_STREAMS * 2 / 3)

static uint32_t last_id;

static uint32_t next_id(void) {
    do
        last_id = (last_id + 1) & ~ATOLL_GUEST_ID_BIT;
    while (last_id == 0 || stream_find(last_id | ATOLL_GUEST_ID_BIT) != NULL);
    return last_id | ATOLL_GUEST_ID_BIT;
}

int egress_new(int fd, const struct egress *wanted, const void *early, size_t length) {
    int others = 0;
    for (int i = 0; i < stream_count(); i++)
        others += stream_nth(i)->kind == KIND_EGRESS ? 1 : 0;
    if (others >= EGRESS_MOST)
        return EAGAIN;
    struct stream *s = stream_new(next_id(), KIND_EGRESS, 0);
    if (s == NULL)
        return errno;
    s->egress = malloc(sizeof *s->egress);
    int second = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (s->egress == NULL || second < 0 || !ring_append(&s->out, 1, early, length)) {
        if (second >= 0)
            close(second);
        stream_free(s);
        return ENOMEM;
    }
    *s->egress = *wanted;
    s->egress->announced = false;
    s->out_fd[0] = fd;
    s->in_fd = second;
    return 0;
}

void egress_emit(struct stream *s, struct batch *b) {
    uint8_t payload[1 + 2 + 4 + EGRESS_HOST_MOST];
    if (s->egress->announced)
        return;
    uint8_t *to = put_u8(payload, (uint8_t)s->egress->protocol);
    to = put_u16(to, s->egress->port);
    to = put_text(to, s->egress->host, strlen(s->egress->host));
    batch_frame(b, ATOLL_FRAME_CONNECT, s->id, payload, (size_t)(to - payload));
    s->egress->announced = true;
}

void egress_verdict(struct stream *s, uint8_t verdict, struct text reason) {
    struct reply reply;
    int on = 1;
    if (s->egress == NULL)
        return;
    reply_to_verdict(&reply, s->egress, verdict, reason);
    if (verdict != VERDICT_ALLOWED) {
        proxy_close(s->out_fd[0], &reply);
        s->out_fd[0] = -1;
        stream_free(s);
        return;
    }
    setsockopt(s->in_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    egress_free(s);
    /* The first bytes to a client always fit, unless the client has gone. */
    if (reply.length > 0 && send(s->in_fd, reply.bytes, reply.length, MSG_NOSIGNAL) != (ssize_t)reply.length)
        stream_close_input(s);
    stream_write(s);
}

void egress_free(struct stream *s) {
    free(s->egress);
    s->egress = NULL;
}
