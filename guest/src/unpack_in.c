#include "unpack_in.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "archive_dirs.h"
#include "wire.h"

static uint8_t buffer[256 * 1024];
static size_t filled, next;
static uint64_t consumed;
static char reason[512];
static bool is_full;

bool refuse(const char *why, ...) {
    if (reason[0] != 0)
        return false;
    va_list arguments;
    va_start(arguments, why);
    int length = vsnprintf(reason, sizeof reason, why, arguments);
    va_end(arguments);
    /* The end of a long path says more than its start. */
    size_t path = strlen(dirs_path);
    if (length >= 0 && (size_t)length < sizeof reason)
        snprintf(reason + length, sizeof reason - (size_t)length, ", before byte %llu%s%s",
                 (unsigned long long)(consumed + next),
                 path == 0 ? "" : ", in ", dirs_path + (path > 200 ? path - 200 : 0));
    /* Names may contain line ends; the message is one line. */
    for (char *c = reason; *c != 0; c++)
        if ((unsigned char)*c < ' ')
            *c = '?';
    return false;
}

bool refuse_errno(const char *what) {
    is_full = is_full || (reason[0] == 0 && (errno == ENOSPC || errno == EDQUOT));
    return refuse("%s: %s", what, strerror(errno));
}

bool refused_for_room(void) {
    return is_full;
}

const char *refusal(void) {
    return reason;
}

/* Returns false at the end of input, and at errors, which are noted. */
static bool fill(void) {
    ssize_t n;
    do
        n = read(STDIN_FILENO, buffer, sizeof buffer);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return refuse_errno("it cannot be read");
    consumed += next;
    filled = (size_t)n;
    next = 0;
    return n > 0;
}

bool in_bytes(void *to, size_t length) {
    uint8_t *at = to;
    while (length > 0) {
        if (next == filled && !fill())
            return refuse("it ends too early");
        size_t n = filled - next < length ? filled - next : length;
        memcpy(at, buffer + next, n);
        next += n;
        at += n;
        length -= n;
    }
    return true;
}

static bool in_little(uint64_t *value, size_t size) {
    uint8_t bytes[8] = {0};
    if (!in_bytes(bytes, size))
        return false;
    struct reader r = reader_over(bytes, sizeof bytes);
    *value = read_u64(&r);
    return true;
}

bool in_u16(uint16_t *value) {
    uint64_t wide = 0;
    bool done = in_little(&wide, 2);
    *value = (uint16_t)wide;
    return done;
}

bool in_u32(uint32_t *value) {
    uint64_t wide = 0;
    bool done = in_little(&wide, 4);
    *value = (uint32_t)wide;
    return done;
}

bool in_u64(uint64_t *value) {
    *value = 0;
    return in_little(value, 8);
}

bool in_tag(uint8_t *tag) {
    return in_bytes(tag, 1);
}

bool in_name(char *to) {
    uint8_t length;
    if (!in_bytes(&length, 1) || !in_bytes(to, length))
        return false;
    to[length] = 0;
    return archive_name_ok(to, length) || refuse("\"%s\" of %d bytes is no name", to, length);
}

bool in_text(const char *what, char *to, size_t most) {
    uint32_t length;
    if (!in_u32(&length))
        return false;
    if (length < 1 || length > most)
        return refuse("%s has %u bytes", what, length);
    if (!in_bytes(to, length))
        return false;
    to[length] = 0;
    return memchr(to, 0, length) == NULL || refuse("%s holds a NUL", what);
}

bool in_attributes(struct stat *info) {
    uint32_t uid, gid, nanoseconds;
    uint16_t mode;
    uint64_t seconds;
    if (!in_u32(&uid) || !in_u32(&gid) || !in_u16(&mode) || !in_u64(&seconds) || !in_u32(&nanoseconds))
        return false;
    if (mode > 07777)
        return refuse("%o is no mode", mode);
    if (nanoseconds > 999999999)
        return refuse("a second has no %u nanoseconds", nanoseconds);
    /* The kernel takes these ids as "unchanged". */
    if (uid == UINT32_MAX || gid == UINT32_MAX)
        return refuse("%u is no owner", UINT32_MAX);
    *info = (struct stat){.st_uid = uid, .st_gid = gid, .st_mode = mode};
    info->st_mtim = (struct timespec){(time_t)(int64_t)seconds, (long)nanoseconds};
    return true;
}

bool in_end(void) {
    if (next < filled || fill())
        return refuse("something follows its end");
    return refusal()[0] == 0;
}
