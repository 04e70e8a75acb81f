#include "proxy.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "http_head.h"
#include "pollset.h"
#include "socks.h"

#define CLIENTS_MOST 64
#define BACKLOG 128
#define HANDSHAKE_MS 30000
#define PARTING_MS 2000
#define ACCEPT_PAUSE_MS 100
#define ACCEPT_MOST 16

enum phase { PHASE_FIRST, PHASE_HTTP, PHASE_SOCKS_GREETING, PHASE_SOCKS_REQUEST, PHASE_PARTING };

struct client {
    int fd;
    enum phase phase;
    uint64_t deadline;
    size_t length;
    char bytes[HTTP_HEAD_MOST];
};

static int listener = -1;
static uint16_t listening_on;
static uint64_t accept_after;
static struct client *clients[CLIENTS_MOST];
static int client_count;

int proxy_listen(uint16_t port) {
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (port == 0)
        return EINVAL;
    if (listener >= 0 && port == listening_on)
        return 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        return error;
    }
    if (listener >= 0)
        close(listener);
    listener = fd;
    listening_on = port;
    return 0;
}

static struct client *add_client(int fd) {
    struct client *c = client_count < CLIENTS_MOST ? malloc(sizeof *c) : NULL;
    if (c == NULL)
        return NULL;
    c->fd = fd;
    c->phase = PHASE_FIRST;
    c->deadline = clock_ms() + HANDSHAKE_MS;
    c->length = 0;
    clients[client_count++] = c;
    return c;
}

/* Frees the client; its descriptor belongs to the next owner. */
static void drop_client(struct client *c) {
    for (int i = 0; i < client_count; i++)
        if (clients[i] == c)
            clients[i] = clients[--client_count];
    pollset_forget(c);
    free(c);
}

static void close_client(struct client *c) {
    close(c->fd);
    drop_client(c);
}

/* If a client still sends, closing at once would reset the connection before it has read the answer. */
static void start_closing(struct client *c, const struct reply *reply) {
    if (send(c->fd, reply->bytes, reply->length, MSG_NOSIGNAL) < 0 || shutdown(c->fd, SHUT_WR) != 0) {
        close_client(c);
        return;
    }
    c->phase = PHASE_PARTING;
    c->deadline = clock_ms() + PARTING_MS;
}

void proxy_close(int fd, const struct reply *reply) {
    struct client *c = add_client(fd);
    if (c != NULL) {
        start_closing(c, reply);
        return;
    }
    if (send(fd, reply->bytes, reply->length, MSG_NOSIGNAL) > 0)
        shutdown(fd, SHUT_WR);
    close(fd);
}

static void refuse_http(struct client *c, int status, const char *text) {
    struct reply reply;
    reply_http(&reply, status, "%s", text);
    start_closing(c, &reply);
}

static void refuse_socks(struct client *c, unsigned char code) {
    struct reply reply;
    reply_socks(&reply, code);
    start_closing(c, &reply);
}

static void serve_http(struct client *c) {
    static struct http_head head;
    static char early[HTTP_REWRITTEN_MOST + HTTP_HEAD_MOST];
    int status = http_parse(c->bytes, c->length, &head);
    if (status == 0)
        return;
    if (status != 1) {
        refuse_http(c, status,
                    status == 431 ? "The request's head is too large" : "This is not a request to an HTTP proxy");
        return;
    }
    size_t after = c->length - head.length;
    memcpy(early, head.rewritten, head.rewritten_length);
    memcpy(early + head.rewritten_length, c->bytes + head.length, after);
    if (egress_new(c->fd, &head.wanted, early, head.rewritten_length + after) == 0)
        drop_client(c);
    else
        refuse_http(c, 503, "There are too many connections");
}

static void shift(struct client *c, size_t taken) {
    memmove(c->bytes, c->bytes + taken, c->length - taken);
    c->length -= taken;
}

static void serve_socks_request(struct client *c) {
    struct egress wanted;
    unsigned char code;
    size_t taken;
    enum socks_result result = socks_request((unsigned char *)c->bytes, c->length, &taken, &wanted, &code);
    if (result == SOCKS_MORE)
        return;
    if (result == SOCKS_BAD)
        refuse_socks(c, code);
    else if (egress_new(c->fd, &wanted, c->bytes + taken, c->length - taken) == 0)
        drop_client(c);
    else
        refuse_socks(c, SOCKS_FAILURE);
}

static void serve_socks_greeting(struct client *c) {
    static const struct reply welcome = {"\x05\x00", 2}, refusal = {"\x05\xff", 2};
    size_t taken;
    enum socks_result result = socks_greeting((unsigned char *)c->bytes, c->length, &taken);
    if (result == SOCKS_MORE)
        return;
    if (result == SOCKS_BAD) {
        start_closing(c, &refusal);
    } else if (send(c->fd, welcome.bytes, welcome.length, MSG_NOSIGNAL) != (ssize_t)welcome.length) {
        close_client(c);
    } else {
        shift(c, taken);
        c->phase = PHASE_SOCKS_REQUEST;
        serve_socks_request(c);
    }
}

static void serve_bytes(struct client *c) {
    if (c->phase == PHASE_FIRST)
        c->phase = c->bytes[0] == SOCKS_VERSION ? PHASE_SOCKS_GREETING : PHASE_HTTP;
    if (c->phase == PHASE_HTTP)
        serve_http(c);
    else if (c->phase == PHASE_SOCKS_GREETING)
        serve_socks_greeting(c);
    else
        serve_socks_request(c);
}

static void serve_client(void *subject, int role, short events) {
    (void)role;
    (void)events;
    struct client *c = subject;
    if (c->phase == PHASE_PARTING)
        c->length = 0;
    ssize_t n = recv(c->fd, c->bytes + c->length, sizeof c->bytes - c->length, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_client(c);
        return;
    }
    if (c->phase == PHASE_PARTING)
        return;
    c->length += (size_t)n;
    serve_bytes(c);
}

static void serve_listener(void *subject, int role, short events) {
    (void)subject;
    (void)role;
    (void)events;
    for (int i = 0; i < ACCEPT_MOST && client_count < CLIENTS_MOST; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            /* There are no descriptors or no memory left: the client stays in the backlog until there are. */
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                accept_after = clock_ms() + ACCEPT_PAUSE_MS;
            return;
        }
        if (add_client(fd) == NULL)
            close(fd);
    }
}

void proxy_watch(void) {
    if (client_count < CLIENTS_MOST && accept_after == 0)
        pollset_add(listener, POLLIN, serve_listener, &listener, 0);
    for (int i = 0; i < client_count; i++)
        pollset_add(clients[i]->fd, POLLIN, serve_client, clients[i], 0);
}

void proxy_tick(uint64_t now_ms) {
    if (now_ms >= accept_after)
        accept_after = 0;
    for (int i = client_count - 1; i >= 0; i--)
        if (now_ms >= clients[i]->deadline)
            close_client(clients[i]);
}

uint64_t proxy_due(void) {
    uint64_t next = accept_after;
    for (int i = 0; i < client_count; i++)
        next = sooner(next, clients[i]->deadline);
    return next;
}
