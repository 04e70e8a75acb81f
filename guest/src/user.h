/* Users and groups of the sandbox, from its /etc/passwd and /etc/group. */
#ifndef ATOLL_USER_H
#define ATOLL_USER_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define USER_GROUPS 256

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS];
    size_t group_count;
    char name[256];
    char home[PATH_MAX];
    char shell[PATH_MAX];
};

/*
 * `spec` is a name or a number, optionally with `:group`. A number that is in no line is used as it is, with a group of
 * the same number and `/` as its home. Returns 0, or ENOENT when the user or group is unknown.
 */
int user_find(const char *spec, struct user *user);

#endif
