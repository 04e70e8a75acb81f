/* The answers of the proxy itself to its clients. */
#ifndef ATOLL_PROXY_REPLY_H
#define ATOLL_PROXY_REPLY_H

#include <stddef.h>

#include "egress.h"

#define REPLY_MOST 2048

struct reply {
    char bytes[REPLY_MOST];
    size_t length;
};

/* `verdict` is as in VERDICT. An allowed plain HTTP request gets no answer of the proxy. */
void reply_to_verdict(struct reply *reply, const struct egress *egress, uint8_t verdict, struct text reason);
/* Writes an HTTP answer with one line of text. */
__attribute__((format(printf, 3, 4))) void reply_http(struct reply *reply, int status, const char *text, ...);
/* Writes a SOCKS5 answer to a request. */
void reply_socks(struct reply *reply, unsigned char code);

#endif
