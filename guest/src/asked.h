/* Connections that something inside wants to the outside: asked of the host by name, relayed when it allows them. */
#ifndef ATOLL_ASKED_H
#define ATOLL_ASKED_H

#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "stream.h"
#include "wire.h"

#define ASKED_HOST_MOST 255

enum { VERDICT_ALLOWED = 0, VERDICT_REFUSED = 1, VERDICT_UNREACHABLE = 3 };

enum asked_protocol { ASKED_HTTP_CONNECT = 1, ASKED_HTTP = 2, ASKED_SOCKS5 = 3 };

struct asked {
    enum asked_protocol protocol;
    uint16_t port;
    char host[ASKED_HOST_MOST + 1];
    bool told;
};

/*
 * Makes a stream of the client's connection and asks the host. `early` is what the client has sent for the other end.
 * 0, and `fd` belongs to the stream; or an errno.
 */
int asked_new(int fd, const struct asked *wanted, const void *early, size_t length);
void asked_emit(struct stream *s, struct batch *b);
/* Frees the stream unless it is allowed. */
void asked_verdict(struct stream *s, uint8_t verdict, struct text reason);
void asked_free(struct stream *s);

#endif
