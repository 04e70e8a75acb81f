#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch.h"

/*
 * A target may be in a tree that a sandbox has written to. If a link were followed there, the sandbox could have its
 * own files mounted over the host's, in the namespace from which the program is then started.
 */
static int open_target(const char *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static int mount_at(const struct mount_plan *m, const char *target) {
    switch (m->kind) {
    case MOUNT_OVERLAY:
        /* Device nodes that a sandbox made in its layer must not open the host's devices. */
        return mount("overlay", target, "overlay", MS_NODEV, m->from);
    case MOUNT_BIND:
        return mount(m->from, target, NULL, MS_BIND, NULL);
    case MOUNT_RBIND_RO:
        return mount(m->from, target, NULL, MS_BIND | MS_REC, NULL);
    }
    errno = EINVAL;
    return -1;
}

static int set_read_only(int fd) {
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
    return (int)syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes);
}

static int mount_one(const struct mount_plan *m) {
    char place[32];
    int fd = open_target(m->target);
    if (fd < 0)
        return -1;
    snprintf(place, sizeof place, "/proc/self/fd/%d", fd);
    int result = mount_at(m, place);
    int error = errno;
    close(fd);
    if (result == 0 && m->kind == MOUNT_RBIND_RO) {
        /* The first descriptor refers to the directory below the mount. */
        fd = open_target(m->target);
        result = fd < 0 ? -1 : set_read_only(fd);
        error = errno;
        close(fd);
    }
    errno = error;
    return result;
}

const char *launch_mounts(const struct launch_plan *plan) {
    if (unshare(CLONE_NEWNS) != 0)
        return "unshare the mount namespace";
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return "make the mounts private";
    for (int i = 0; i < plan->mount_count; i++)
        if (mount_one(&plan->mounts[i]) != 0)
            return plan->mounts[i].target;
    return NULL;
}
