/* The head of a request to an HTTP proxy. */
#ifndef ATOLL_HTTP_HEAD_H
#define ATOLL_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "asked.h"

#define HTTP_HEAD_MOST 16384
/* Rewriting adds two lines, and a byte to each line that ends without a carriage return. */
#define HTTP_REWRITTEN_MOST (HTTP_HEAD_MOST * 2)

struct http_head {
    struct asked wanted;
    /* Bytes of the head as the client sent it. */
    size_t length;
    /* What the server is to get in its place; nothing for CONNECT. */
    char rewritten[HTTP_REWRITTEN_MOST];
    size_t rewritten_length;
};

/* 0 when more bytes are needed, 1 when the head is whole, or the HTTP status to refuse it with. */
int http_parse(const char *bytes, size_t length, struct http_head *head);
/* Splits `host:port`, `[v6]:port` or `host` (with `otherwise` as the port) and checks both. */
bool http_authority(const char *text, size_t length, uint16_t otherwise, struct asked *wanted);

#endif
