#include "proxy_reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SOCKS_SUCCEEDED 0
#define SOCKS_NOT_ALLOWED 2
#define SOCKS_HOST_UNREACHABLE 4
#define SOCKS_REFUSED 5
#define SOCKS_EXPIRED 6

static const struct {
    int http;
    unsigned char socks;
    const char *text;
} verdicts[] = {
    {200, SOCKS_SUCCEEDED, "allowed"},
    {403, SOCKS_NOT_ALLOWED, "is not allowed"},
    {502, SOCKS_HOST_UNREACHABLE, "failed: the name is unknown"},
    {502, SOCKS_REFUSED, "failed: it cannot be reached"},
    {504, SOCKS_EXPIRED, "failed: it did not answer in time"},
};

static const char *status_text(int status) {
    switch (status) {
    case 400:
        return "Bad Request";
    case 403:
        return "Forbidden";
    case 431:
        return "Request Header Fields Too Large";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    default:
        return "Error";
    }
}

void reply_http(struct reply *reply, int status, const char *text, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, text);
    int length = vsnprintf(line, sizeof line, text, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line)
        length = sizeof line - 1;
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ')
            line[i] = ' ';
    length = snprintf(reply->bytes, sizeof reply->bytes,
                      "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
                      "Connection: close\r\n\r\n%s\n",
                      status, status_text(status), length + 1, line);
    reply->length = (size_t)length;
}

/* The bound address means nothing to a client here, so the answer has zeros. */
void reply_socks(struct reply *reply, unsigned char code) {
    const unsigned char bytes[10] = {5, code, 0, 1};
    memcpy(reply->bytes, bytes, sizeof bytes);
    reply->length = sizeof bytes;
}

void reply_to_verdict(struct reply *reply, const struct egress *egress, uint8_t verdict, struct text reason) {
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    size_t row = verdict < sizeof verdicts / sizeof verdicts[0] ? verdict : VERDICT_REFUSED;
    int reason_length = reason.length < 512 ? (int)reason.length : 512;
    reply->length = 0;
    if (egress->protocol == EGRESS_SOCKS5) {
        reply_socks(reply, verdicts[row].socks);
    } else if (row != VERDICT_ALLOWED) {
        reply_http(reply, verdicts[row].http, "The connection to %s:%u %s%s%.*s", egress->host, egress->port,
                   verdicts[row].text,
                   reason_length > 0 ? ": " : "", reason_length, reason.at);
    } else if (egress->protocol == EGRESS_HTTP_CONNECT) {
        memcpy(reply->bytes, established, sizeof established - 1);
        reply->length = sizeof established - 1;
    }
}
