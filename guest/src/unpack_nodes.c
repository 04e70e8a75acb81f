#include "unpack_nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "unpack_in.h"

static bool unpack_xattrs(int fd) {
    static char value[ARCHIVE_XATTR_MOST];
    char name[ARCHIVE_NAME_MOST + 1], last[ARCHIVE_NAME_MOST + 1] = "";
    uint16_t count;
    if (!in_u16(&count))
        return false;
    for (; count > 0; count--) {
        uint32_t size;
        if (!in_name(name) || !in_u32(&size))
            return false;
        if (!archive_keeps_xattr(name))
            return refuse("attribute %s is not for archives", name);
        if (strcmp(name, last) <= 0)
            return refuse("attribute %s is out of order", name);
        if (size > sizeof value)
            return refuse("attribute %s has %u bytes", name, size);
        if (!in_bytes(value, size))
            return false;
        if (fsetxattr(fd, name, value, size, 0) != 0)
            return refuse_errno(name);
        strcpy(last, name);
    }
    return true;
}

static const struct timespec *times_of(const struct stat *info) {
    static struct timespec times[2];
    times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    times[1] = info->st_mtim;
    return times;
}

/* The owner is set first, because that clears set-user-ID bits and capabilities. */
bool unpack_attributes(int fd) {
    struct stat info;
    if (!in_attributes(&info))
        return false;
    if (fchown(fd, info.st_uid, info.st_gid) != 0 || fchmod(fd, info.st_mode) != 0)
        return refuse_errno("its owner and mode");
    if (!unpack_xattrs(fd))
        return false;
    return futimens(fd, times_of(&info)) == 0 || refuse_errno("its time");
}

static bool write_at(int fd, const uint8_t *bytes, size_t length, off_t at) {
    while (length > 0) {
        ssize_t n = pwrite(fd, bytes, length, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return refuse_errno("its contents");
        bytes += n;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* `written` is the end of the chunks so far. */
static bool unpack_chunk(int fd, uint64_t size, uint64_t *written) {
    static uint8_t bytes[ARCHIVE_WINDOW];
    uint64_t offset;
    uint32_t length;
    if (!in_u64(&offset) || !in_u32(&length))
        return false;
    bool fits = offset >= *written && offset < size && length >= 1 && length <= size - offset &&
                offset % ARCHIVE_BLOCK == 0 &&
                offset % ARCHIVE_WINDOW + length <= ARCHIVE_WINDOW;
    if (!fits)
        return refuse("%u bytes at %llu do not fit into a file of %llu", length, (unsigned long long)offset,
                      (unsigned long long)size);
    if (!in_bytes(bytes, length) || !write_at(fd, bytes, length, (off_t)offset))
        return false;
    *written = offset + length;
    return true;
}

static bool unpack_contents(int fd) {
    uint64_t size, written = 0;
    uint8_t tag;
    if (!in_u64(&size))
        return false;
    if (size > INT64_MAX)
        return refuse("no file has %llu bytes", (unsigned long long)size);
    for (;;) {
        if (!in_tag(&tag))
            return false;
        if (tag == TAG_END)
            break;
        if (tag != TAG_CHUNK)
            return refuse("tag %u is not for contents", tag);
        if (!unpack_chunk(fd, size, &written))
            return false;
    }
    if (written < size && ftruncate(fd, (off_t)size) != 0)
        return refuse_errno("its size");
    return unpack_attributes(fd);
}

bool unpack_file(int at, const char *name) {
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse_errno(name);
    bool done = unpack_contents(fd);
    close(fd);
    return done;
}

bool unpack_link(int at, const char *name) {
    char target[ARCHIVE_TARGET_MOST + 1];
    struct stat info;
    if (!in_text("the target of a link", target, ARCHIVE_TARGET_MOST) || !in_attributes(&info))
        return false;
    if (symlinkat(target, at, name) != 0 || fchownat(at, name, info.st_uid, info.st_gid, AT_SYMLINK_NOFOLLOW) != 0 ||
        utimensat(at, name, times_of(&info), AT_SYMLINK_NOFOLLOW) != 0)
        return refuse_errno(name);
    return true;
}

bool unpack_special(int at, const char *name, unsigned type) {
    struct stat info;
    if (!in_attributes(&info))
        return false;
    /* The node was made just now in a directory that no other process can enter, so it is no link. */
    if (mknodat(at, name, type | 0600, 0) != 0 ||
        fchownat(at, name, info.st_uid, info.st_gid, AT_SYMLINK_NOFOLLOW) != 0 ||
        fchmodat(at, name, info.st_mode, 0) != 0 || utimensat(at, name, times_of(&info), AT_SYMLINK_NOFOLLOW) != 0)
        return refuse_errno(name);
    return true;
}

bool unpack_whiteout(int at, const char *name) {
    return mknodat(at, name, S_IFCHR, makedev(0, 0)) == 0 || refuse_errno(name);
}

/* Enters one component of a path within the tree. */
static bool step_into(int *fd, bool is_root, const char *name, size_t length) {
    char component[ARCHIVE_NAME_MOST + 1];
    if (!archive_name_ok(name, length))
        return refuse("the first name of a file leads nowhere");
    memcpy(component, name, length);
    component[length] = 0;
    int below = openat(*fd, component, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    if (!is_root)
        close(*fd);
    *fd = below;
    errno = error;
    return below >= 0 || refuse_errno("the first name of a file");
}

bool unpack_another_name(int root, int at, const char *name) {
    static char path[ARCHIVE_PATH_MOST + ARCHIVE_NAME_MOST + 2];
    struct stat info;
    if (!in_text("the first name of a file", path, sizeof path - 1))
        return false;
    int fd = root;
    const char *component = path;
    for (const char *slash; (slash = strchr(component, '/')) != NULL; component = slash + 1)
        if (!step_into(&fd, fd == root, component, (size_t)(slash - component)))
            return false;
    bool done = archive_name_ok(component, strlen(component)) || refuse("the first name of a file leads nowhere");
    if (done && fstatat(fd, component, &info, AT_SYMLINK_NOFOLLOW) != 0)
        done = refuse_errno("the first name of a file");
    if (done && (S_ISDIR(info.st_mode) || S_ISCHR(info.st_mode)))
        done = refuse("%s cannot have another name", component);
    if (done && linkat(fd, component, at, name, 0) != 0)
        done = refuse_errno(name);
    if (fd != root && fd >= 0)
        close(fd);
    return done;
}
