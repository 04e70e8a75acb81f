#include "undo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct undo {
    int fd;
    uid_t uid;
    gid_t gid;
    size_t group_count;
    gid_t groups[];
};

struct undo *undo_new(const struct user *user, int *tool_end) {
    int ends[2];
    struct undo *undo = malloc(sizeof *undo + user->group_count * sizeof undo->groups[0]);
    if (undo == NULL)
        return NULL;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        int error = errno;
        free(undo);
        errno = error;
        return NULL;
    }
    undo->fd = ends[0];
    *tool_end = ends[1];
    undo->uid = user->uid;
    undo->gid = user->gid;
    undo->group_count = user->group_count;
    memcpy(undo->groups, user->groups, user->group_count * sizeof undo->groups[0]);
    return undo;
}

/* This calls the kernel directly: there is only this thread, and the real and saved ids must stay root's. */
static bool act_as(size_t count, const gid_t *groups, gid_t gid, uid_t uid) {
    return syscall(SYS_setgroups, count, groups) == 0 && syscall(SYS_setresgid, -1, gid, -1) == 0 &&
           syscall(SYS_setresuid, -1, uid, -1) == 0;
}

static void act_as_root(void) {
    syscall(SYS_setresuid, -1, 0, -1);
    syscall(SYS_setresgid, -1, 0, -1);
    syscall(SYS_setgroups, 0, NULL);
}

void undo_run(struct undo *undo) {
    char path[PATH_MAX];
    ssize_t length = read(undo->fd, path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = 0;
    if (geteuid() != 0) {
        unlink(path);
        return;
    }
    if (act_as(undo->group_count, undo->groups, undo->gid, undo->uid))
        unlink(path);
    act_as_root();
}

void undo_free(struct undo *undo) {
    if (undo == NULL)
        return;
    close(undo->fd);
    free(undo);
}
