/* Connections that processes inside want to the outside: the guest asks the host by name, and relays when the host
 * allows it. */
#ifndef ATOLL_EGRESS_H
#define ATOLL_EGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "stream.h"
#include "wire.h"

#define EGRESS_HOST_MOST 255

enum { VERDICT_ALLOWED = 0, VERDICT_REFUSED = 1, VERDICT_UNREACHABLE = 3 };

enum egress_protocol { EGRESS_HTTP_CONNECT = 1, EGRESS_HTTP = 2, EGRESS_SOCKS5 = 3 };

struct egress {
    enum egress_protocol protocol;
    uint16_t port;
    char host[EGRESS_HOST_MOST + 1];
    bool announced;
};

/*
 * Makes a stream of the client's connection and asks the host. `early` is what the client has sent for the other end
 * already. Returns 0, and `fd` belongs to the stream; or an errno.
 */
int egress_new(int fd, const struct egress *wanted, const void *early, size_t length);
void egress_emit(struct stream *s, struct batch *b);
/* Applies the host's verdict. The stream is freed unless the connection is allowed. */
void egress_verdict(struct stream *s, uint8_t verdict, struct text reason);
void egress_free(struct stream *s);

#endif
