#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "launch.h"

static const struct {
    const char *path;
    unsigned major, minor;
} devices[] = {
    {"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7}, {"/dev/random", 1, 8},
    {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0},
};

static const struct {
    const char *target, *path;
} links[] = {
    {"pts/ptmx", "/dev/ptmx"},
    {"/proc/self/fd", "/dev/fd"},
    {"/proc/self/fd/0", "/dev/stdin"},
    {"/proc/self/fd/1", "/dev/stdout"},
    {"/proc/self/fd/2", "/dev/stderr"},
};

static const struct {
    const char *path, *type, *data;
    unsigned long flags;
} mounts[] = {
    {"/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
    {"/sys", "tmpfs", "size=4k,mode=555", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY},
    {"/dev", "tmpfs", "size=64k,mode=755", MS_NOSUID | MS_NOEXEC},
    {"/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5", MS_NOSUID | MS_NOEXEC},
    {"/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV},
    {"/tmp", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV},
};

/* The root of this process changes before anything is mounted in it: then no link in it can lead out. */
static const char *change_root(const char *root) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, root, &how, sizeof how);
    if (fd < 0 || fchdir(fd) != 0)
        return root;
    close(fd);
    /* pivot_root needs a mount. */
    if (mount(".", ".", NULL, MS_BIND | MS_REC, NULL) != 0)
        return "bind the root";
    fd = (int)syscall(SYS_openat2, AT_FDCWD, root, &how, sizeof how);
    if (fd < 0 || fchdir(fd) != 0)
        return root;
    close(fd);
    if (syscall(SYS_pivot_root, ".", ".") != 0)
        return "change the root";
    if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        return "leave the old root";
    return NULL;
}

static const char *fill_root(void) {
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        if (mkdir(mounts[i].path, 0755) != 0 && errno != EEXIST)
            return mounts[i].path;
        if (mount(mounts[i].type, mounts[i].path, mounts[i].type, mounts[i].flags, mounts[i].data) != 0)
            return mounts[i].path;
    }
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        if (mknod(devices[i].path, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor)) != 0)
            return devices[i].path;
        /* mknod applies the umask. */
        if (chmod(devices[i].path, 0666) != 0)
            return devices[i].path;
    }
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        if (symlink(links[i].target, links[i].path) != 0)
            return links[i].path;
    return NULL;
}

static const char *raise_loopback(void) {
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    strcpy(request.ifr_name, "lo");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return "open a socket";
    int result = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return result == 0 ? NULL : "bring the loopback interface up";
}

const char *launch_enter(const struct launch_plan *plan) {
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0)
        return "unshare namespaces";
    const char *failed = change_root(plan->root);
    if (failed == NULL)
        failed = fill_root();
    if (failed == NULL)
        failed = raise_loopback();
    if (failed == NULL && sethostname(plan->hostname, strlen(plan->hostname)) != 0)
        failed = "set the host name";
    return failed;
}
