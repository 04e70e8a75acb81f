#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "merge.h"

#define OPAQUE "trusted.overlay.opaque"
#define OVERLAY "trusted.overlay."
/* Linux allows this much for all names together, and for one value. */
#define XATTR_MOST 65536

bool merge_is_opaque(int fd) {
    char value = 0;
    return fgetxattr(fd, OPAQUE, &value, 1) == 1 && value == 'y';
}

bool merge_set_opaque(int fd) {
    return fsetxattr(fd, OPAQUE, "y", 1, 0) == 0;
}

/* The other attributes that overlayfs stores refer to the layers that a file was in. Only opaqueness is about the
 * file, and the caller decides about that. */
static bool copy_xattrs(int from, int to) {
    static char names[XATTR_MOST], value[XATTR_MOST];
    ssize_t length = flistxattr(from, names, sizeof names);
    if (length < 0)
        return errno == ENOTSUP;
    for (char *name = names; name < names + length; name += strlen(name) + 1) {
        if (strncmp(name, OVERLAY, sizeof OVERLAY - 1) == 0)
            continue;
        ssize_t size = fgetxattr(from, name, value, sizeof value);
        if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0) != 0)
            return false;
    }
    return true;
}

/* The owner is set first, because that clears set-user-ID bits and capabilities. */
bool merge_copy_attributes(int from, const struct stat *info, int to) {
    const struct timespec times[2] = {info->st_atim, info->st_mtim};
    return fchown(to, info->st_uid, info->st_gid) == 0 && fchmod(to, info->st_mode & 07777) == 0 &&
           copy_xattrs(from, to) &&
           futimens(to, times) == 0;
}

static bool copy_range(int from, int to, off_t start, off_t end) {
    while (start < end) {
        off_t in = start, out = start;
        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - start), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return false;
        }
        start += n;
    }
    return true;
}

/* Holes stay holes. Filesystems that can share blocks do so. */
static bool copy_contents(int from, int to, off_t size) {
    if (ioctl(to, FICLONE, from) == 0)
        return true;
    if (ftruncate(to, size) != 0)
        return false;
    for (off_t at = 0; at < size;) {
        off_t start = lseek(from, at, SEEK_DATA);
        if (start < 0)
            return errno == ENXIO;
        off_t end = lseek(from, start, SEEK_HOLE);
        if (end < 0 || !copy_range(from, to, start, end))
            return false;
        at = end;
    }
    return true;
}

static bool copy_file(int from, const char *name, const struct stat *info, int to) {
    bool done = false;
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (source < 0)
        return false;
    int target = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (target >= 0) {
        done = copy_contents(source, target, info->st_size) && merge_copy_attributes(source, info, target);
        int error = errno;
        close(target);
        errno = error;
    }
    int error = errno;
    close(source);
    errno = error;
    return done;
}

static bool copy_link(int from, const char *name, int to) {
    char target[PATH_MAX + 1];
    ssize_t length = readlinkat(from, name, target, PATH_MAX);
    if (length < 0)
        return false;
    target[length] = 0;
    return symlinkat(target, to, name) == 0;
}

/* Copies devices (among them the whiteouts of overlayfs), pipes, sockets and links, which have no contents besides
 * their inode. */
static bool copy_special(int from, const char *name, const struct stat *info, int to) {
    const struct timespec times[2] = {info->st_atim, info->st_mtim};
    bool is_link = S_ISLNK(info->st_mode);
    if (is_link ? !copy_link(from, name, to) : mknodat(to, name, info->st_mode, info->st_rdev) != 0)
        return false;
    if (fchownat(to, name, info->st_uid, info->st_gid, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (!is_link && fchmodat(to, name, info->st_mode & 07777, 0) != 0)
        return false;
    return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) == 0;
}

bool merge_copy_node(int from, const char *name, const struct stat *info, int to, int links) {
    char first[64];
    snprintf(first, sizeof first, "%jx-%jx", (uintmax_t)info->st_dev, (uintmax_t)info->st_ino);
    if (info->st_nlink > 1 && linkat(links, first, to, name, 0) == 0)
        return true;
    if (S_ISREG(info->st_mode) ? !copy_file(from, name, info, to) : !copy_special(from, name, info, to))
        return false;
    /* The first copy stays in its place when the filesystem allows no more links to it. */
    return info->st_nlink == 1 || linkat(to, name, links, first, 0) == 0 || errno == EEXIST;
}
