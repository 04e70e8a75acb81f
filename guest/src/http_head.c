#include "http_head.h"

#include <string.h>

#define STATUS_BAD 400
#define STATUS_TOO_LARGE 431

struct span {
    const char *at;
    size_t length;
};

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool equals(struct span s, const char *text) {
    if (s.length != strlen(text))
        return false;
    for (size_t i = 0; i < s.length; i++)
        if (lower(s.at[i]) != text[i])
            return false;
    return true;
}

/* Cuts `rest` at the next `end`. Returns false when there is none. */
static bool cut(struct span *rest, char end, struct span *part) {
    const char *found = rest->length == 0 ? NULL : memchr(rest->at, end, rest->length);
    if (found == NULL)
        return false;
    *part = (struct span){rest->at, (size_t)(found - rest->at)};
    rest->length -= part->length + 1;
    rest->at = found + 1;
    return true;
}

static bool valid_host(struct span host) {
    if (host.length == 0 || host.length > EGRESS_HOST_MOST)
        return false;
    for (size_t i = 0; i < host.length; i++) {
        unsigned char c = (unsigned char)host.at[i];
        if (c <= ' ' || c >= 0x7f || strchr("/\\@?#[]%<>\"", c) != NULL)
            return false;
    }
    return true;
}

static bool valid_port(struct span text, uint16_t *port) {
    unsigned value = 0;
    if (text.length == 0 || text.length > 5)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text.at[i] - '0');
    }
    *port = (uint16_t)value;
    return value >= 1 && value <= 65535;
}

bool http_authority(const char *text, size_t length, uint16_t otherwise, struct egress *wanted) {
    struct span rest = {text, length}, host = rest;
    bool bracketed = length > 0 && text[0] == '[';
    wanted->port = otherwise;
    if (bracketed) {
        rest.at++;
        rest.length--;
        if (!cut(&rest, ']', &host) || (rest.length > 0 && rest.at[0] != ':'))
            return false;
        if (rest.length > 0 && !valid_port((struct span){rest.at + 1, rest.length - 1}, &wanted->port))
            return false;
    } else if (cut(&rest, ':', &host)) {
        if (!valid_port(rest, &wanted->port))
            return false;
    }
    if (wanted->port == 0 || !valid_host(host) || (!bracketed && memchr(host.at, ':', host.length) != NULL))
        return false;
    memcpy(wanted->host, host.at, host.length);
    wanted->host[host.length] = 0;
    return true;
}

static void add(struct http_head *head, struct span s) {
    memcpy(head->rewritten + head->rewritten_length, s.at, s.length);
    head->rewritten_length += s.length;
}

static void add_text(struct http_head *head, const char *text) {
    add(head, (struct span){text, strlen(text)});
}

/* A connection carries one request: these fields are for a proxy, and no proxy reads them after this one. */
static bool hop_by_hop(struct span name) {
    return equals(name, "connection") || equals(name, "proxy-connection") || equals(name, "keep-alive") ||
           equals(name, "proxy-authorization") || equals(name, "host");
}

/* Copies the fields that concern the server. Returns false when a line is not a field. */
static bool add_fields(struct http_head *head, struct span lines) {
    struct span line;
    while (cut(&lines, '\n', &line)) {
        if (line.length > 0 && line.at[line.length - 1] == '\r')
            line.length--;
        if (line.length == 0)
            continue;
        struct span rest = line, name;
        /* A line that continues the one before could hide a field from this check that a server would read. */
        if (line.at[0] == ' ' || line.at[0] == '\t' || !cut(&rest, ':', &name) || name.length == 0 ||
            memchr(line.at, '\r', line.length) != NULL || memchr(line.at, 0, line.length) != NULL)
            return false;
        if (hop_by_hop(name))
            continue;
        add(head, line);
        add_text(head, "\r\n");
    }
    return true;
}

/* `METHOD http://authority/path HTTP/1.x` becomes `METHOD /path HTTP/1.x` for the authority's server. */
static bool rewrite(struct http_head *head, struct span method, struct span target, struct span version,
                    struct span fields) {
    struct span scheme, authority;
    if (!cut(&target, ':', &scheme) || !equals(scheme, "http") || target.length < 2 || memcmp(target.at, "//", 2) != 0)
        return false;
    target.at += 2;
    target.length -= 2;
    size_t end = 0;
    while (end < target.length && target.at[end] != '/' && target.at[end] != '?' && target.at[end] != '#')
        end++;
    authority = (struct span){target.at, end};
    struct span path = {target.at + end, target.length - end};
    if (!http_authority(authority.at, authority.length, 80, &head->wanted))
        return false;
    head->wanted.protocol = EGRESS_HTTP;
    add(head, method);
    add_text(head, path.length == 0 || path.at[0] != '/' ? " /" : " ");
    add(head, path);
    add_text(head, " ");
    add(head, version);
    add_text(head, "\r\nHost: ");
    add(head, authority);
    add_text(head, "\r\nConnection: close\r\n");
    if (!add_fields(head, fields))
        return false;
    add_text(head, "\r\n");
    return true;
}

/* Returns the length of the head with its empty line, 0 when that line has not come yet. */
static size_t head_length(const char *bytes, size_t length) {
    for (size_t i = 0; i + 1 < length; i++) {
        if (bytes[i] != '\n')
            continue;
        if (bytes[i + 1] == '\n')
            return i + 2;
        if (i + 2 < length && bytes[i + 1] == '\r' && bytes[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

int http_parse(const char *bytes, size_t length, struct http_head *head) {
    head->length = head_length(bytes, length < HTTP_HEAD_MOST ? length : HTTP_HEAD_MOST);
    head->rewritten_length = 0;
    if (head->length == 0)
        return length >= HTTP_HEAD_MOST ? STATUS_TOO_LARGE : 0;
    struct span rest = {bytes, head->length}, line, method, target;
    if (!cut(&rest, '\n', &line))
        return STATUS_BAD;
    if (line.length > 0 && line.at[line.length - 1] == '\r')
        line.length--;
    for (size_t i = 0; i < line.length; i++)
        if ((unsigned char)line.at[i] < ' ' || line.at[i] == 0x7f)
            return STATUS_BAD;
    struct span version = line;
    if (!cut(&version, ' ', &method) || !cut(&version, ' ', &target) || method.length == 0 || version.length != 8 ||
        memcmp(version.at, "HTTP/1.", 7) != 0 || (version.at[7] != '0' && version.at[7] != '1'))
        return STATUS_BAD;
    if (!equals(method, "connect"))
        return rewrite(head, method, target, version, rest) ? 1 : STATUS_BAD;
    head->wanted.protocol = EGRESS_HTTP_CONNECT;
    return http_authority(target.at, target.length, 0, &head->wanted) ? 1 : STATUS_BAD;
}
