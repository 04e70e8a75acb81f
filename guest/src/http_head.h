/* Parses the head of a request to an HTTP proxy. */
#ifndef ATOLL_HTTP_HEAD_H
#define ATOLL_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "egress.h"

#define HTTP_HEAD_MOST 16384
/* Rewriting adds two lines, and a byte to each line that ends without a carriage return. */
#define HTTP_REWRITTEN_MOST (HTTP_HEAD_MOST * 2)

struct http_head {
    struct egress wanted;
    /* The length of the head as the client sent it. */
    size_t length;
    /* The head that the server gets in its place; empty for CONNECT. */
    char rewritten[HTTP_REWRITTEN_MOST];
    size_t rewritten_length;
};

/* Returns 0 when more bytes are needed, 1 when the head is complete, or the HTTP status to refuse the request with. */
int http_parse(const char *bytes, size_t length, struct http_head *head);
/* Splits `host:port`, `[v6]:port` or `host` (with `otherwise` as the port) and checks both. */
bool http_authority(const char *text, size_t length, uint16_t otherwise, struct egress *wanted);

#endif
