#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST (1 << 20)
#define FIELDS 7

/* The text of a file, read again only when the file has changed. */
struct cached {
    const char *path;
    struct stat seen;
    char *text;
    size_t length;
};

struct field {
    const char *at;
    size_t length;
};

static struct cached passwd = {.path = "/etc/passwd"};
static struct cached group = {.path = "/etc/group"};

static bool unchanged(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void forget(struct cached *c) {
    free(c->text);
    c->text = NULL;
    c->length = 0;
}

/* The sandbox may have put anything at the path: only a regular file is read, and no call here can block. */
static void refresh(struct cached *c) {
    struct stat now;
    if (c->text != NULL && stat(c->path, &now) == 0 && unchanged(&now, &c->seen))
        return;
    forget(c);
    int fd = open(c->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &c->seen) == 0 && S_ISREG(c->seen.st_mode) && c->seen.st_size <= FILE_MOST)
        c->text = malloc((size_t)c->seen.st_size + 1);
    if (c->text != NULL) {
        ssize_t n;
        while (c->length < (size_t)c->seen.st_size &&
               (n = read(fd, c->text + c->length, (size_t)c->seen.st_size - c->length)) > 0)
            c->length += (size_t)n;
    }
    close(fd);
}

/* Splits the line at `*next` at its colons and moves on to the following one. Returns false at the end of the file. */
static bool next_line(const struct cached *c, size_t *next, struct field fields[FIELDS], int *count) {
    if (c->text == NULL || *next >= c->length)
        return false;
    const char *at = c->text + *next;
    const char *newline = memchr(at, '\n', c->length - *next);
    const char *end = newline != NULL ? newline : c->text + c->length;
    *next = (size_t)(end - c->text) + 1;
    *count = 0;
    while (*count < FIELDS) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        const char *until = colon != NULL && *count < FIELDS - 1 ? colon : end;
        fields[(*count)++] = (struct field){at, (size_t)(until - at)};
        if (until == end)
            break;
        at = until + 1;
    }
    return true;
}

static bool equals(struct field f, const char *text, size_t length) {
    return f.length == length && memcmp(f.at, text, length) == 0;
}

static bool number_of(const char *text, size_t length, uint32_t *number) {
    uint64_t value = 0;
    if (length == 0 || length > 10)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    /* All ones means "unchanged" to setresuid, so the process would stay root. */
    if (value >= UINT32_MAX)
        return false;
    *number = (uint32_t)value;
    return true;
}

static void copy_field(char *to, size_t size, struct field f, const char *otherwise) {
    if (f.length == 0 || f.length >= size)
        snprintf(to, size, "%s", otherwise);
    else
        snprintf(to, size, "%.*s", (int)f.length, f.at);
}

static bool find_in_passwd(const char *name, size_t length, struct user *user) {
    struct field f[FIELDS];
    size_t next = 0;
    int count;
    uint32_t wanted = 0, uid, gid;
    bool by_number = number_of(name, length, &wanted);
    while (next_line(&passwd, &next, f, &count)) {
        if (count < FIELDS || !number_of(f[2].at, f[2].length, &uid) || !number_of(f[3].at, f[3].length, &gid))
            continue;
        if (!equals(f[0], name, length) && !(by_number && uid == wanted))
            continue;
        user->uid = uid;
        user->gid = gid;
        copy_field(user->name, sizeof user->name, f[0], "user");
        copy_field(user->home, sizeof user->home, f[5], "/");
        copy_field(user->shell, sizeof user->shell, f[6], "/bin/sh");
        return true;
    }
    return false;
}

/* An image without the file, or without the line, still has a root user and numeric ids. */
static bool make_default_user(const char *name, size_t length, struct user *user) {
    bool root = length == 4 && memcmp(name, "root", 4) == 0;
    uint32_t number = 0;
    if (!root && !number_of(name, length, &number))
        return false;
    user->uid = user->gid = number;
    snprintf(user->name, sizeof user->name, "%.*s", (int)length, name);
    snprintf(user->home, sizeof user->home, "%s", number == 0 ? "/root" : "/");
    snprintf(user->shell, sizeof user->shell, "/bin/sh");
    return true;
}

static bool lists_member(struct field members, const char *name) {
    size_t length = strlen(name);
    const char *at = members.at, *end = members.at + members.length;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *until = comma != NULL ? comma : end;
        if (equals((struct field){at, (size_t)(until - at)}, name, length))
            return true;
        at = until + 1;
    }
    return false;
}

static bool find_group(const char *name, size_t length, gid_t *gid) {
    struct field f[FIELDS];
    size_t next = 0;
    int count;
    uint32_t number;
    while (next_line(&group, &next, f, &count)) {
        if (count >= 3 && equals(f[0], name, length) && number_of(f[2].at, f[2].length, &number)) {
            *gid = number;
            return true;
        }
    }
    if (!number_of(name, length, &number))
        return false;
    *gid = number;
    return true;
}

static void add_group(struct user *user, gid_t gid) {
    for (size_t i = 0; i < user->group_count; i++)
        if (user->groups[i] == gid)
            return;
    if (user->group_count < USER_GROUPS)
        user->groups[user->group_count++] = gid;
}

static void find_supplementary(struct user *user) {
    struct field f[FIELDS];
    size_t next = 0;
    int count;
    uint32_t gid;
    user->group_count = 0;
    add_group(user, user->gid);
    while (next_line(&group, &next, f, &count))
        if (count >= 4 && number_of(f[2].at, f[2].length, &gid) && lists_member(f[3], user->name))
            add_group(user, gid);
}

int user_find(const char *spec, struct user *user) {
    const char *colon = strchr(spec, ':');
    size_t length = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    refresh(&passwd);
    refresh(&group);
    if (length == 0 || (!find_in_passwd(spec, length, user) && !make_default_user(spec, length, user)))
        return ENOENT;
    if (colon != NULL && !find_group(colon + 1, strlen(colon + 1), &user->gid))
        return ENOENT;
    find_supplementary(user);
    return 0;
}
