/* What the proxy says to its clients by itself. */
#ifndef ATOLL_PROXY_REPLY_H
#define ATOLL_PROXY_REPLY_H

#include <stddef.h>

#include "asked.h"

#define REPLY_MOST 2048

struct reply {
    char bytes[REPLY_MOST];
    size_t length;
};

/* `verdict` as in VERDICT; an allowed plain HTTP request is answered with nothing. */
void reply_to_verdict(struct reply *reply, const struct asked *asked, uint8_t verdict, struct text reason);
/* An HTTP answer with one line of text. */
__attribute__((format(printf, 3, 4))) void reply_http(struct reply *reply, int status, const char *text, ...);
/* A SOCKS5 answer to a request. */
void reply_socks(struct reply *reply, unsigned char code);

#endif
