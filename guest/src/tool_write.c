#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

#define BUFFER_SIZE (256 << 10)
#define MOST_LINKS 40

struct target {
    char path[PATH_MAX];
    char temporary[PATH_MAX];
    struct stat info;
    bool exists;
    mode_t mode;
};

/* Replaces the last component of `path` by `name`, or all of it if `name` is absolute. */
static int replace_last(char path[PATH_MAX], const char *name) {
    char *slash = strrchr(path, '/');
    size_t kept = slash == NULL || name[0] == '/' ? 0 : (size_t)(slash - path) + 1;
    size_t length = strlen(name);
    if (kept + length >= PATH_MAX)
        return ENAMETOOLONG;
    memcpy(path + kept, name, length + 1);
    return 0;
}

/* Follows links at the end of the path, to the file that an ordinary program would write. The kernel follows links
 * before that. */
static int resolve(struct target *t) {
    for (int i = 0; i < MOST_LINKS; i++) {
        char link[PATH_MAX];
        ssize_t length = readlink(t->path, link, sizeof link - 1);
        if (length < 0)
            return errno == EINVAL || errno == ENOENT ? 0 : errno;
        link[length] = 0;
        int error = replace_last(t->path, link);
        if (error != 0)
            return error;
    }
    return ELOOP;
}

static int stat_target(struct target *t, bool create) {
    t->exists = lstat(t->path, &t->info) == 0;
    if (!t->exists)
        return errno == ENOENT ? 0 : errno;
    if (create)
        return EEXIST;
    if (S_ISDIR(t->info.st_mode))
        return EISDIR;
    return S_ISREG(t->info.st_mode) ? 0 : EINVAL;
}

static int copy_in(int fd) {
    static char buffer[BUFFER_SIZE];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return 0;
        int error = write_all(fd, buffer, (size_t)n);
        if (error != 0)
            return error;
    }
}

static int append(struct target *t) {
    int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = open(t->path, flags | O_CREAT | O_EXCL, 0600);
    bool made = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(t->path, flags);
    if (fd < 0)
        return errno;
    if (made && fchmod(fd, t->mode) != 0)
        return errno;
    if (fstat(fd, &t->info) != 0 || !S_ISREG(t->info.st_mode))
        return EINVAL;
    return copy_in(fd);
}

/* Sends the path of the temporary file, made absolute, because init removes it from another working directory. */
static int write_temporary(const char *path) {
    char whole[PATH_MAX];
    bool is_relative = path[0] != '/';
    if (is_relative && getcwd(whole, sizeof whole) == NULL)
        return errno;
    size_t length = is_relative ? strlen(whole) : 0;
    int added = snprintf(whole + length, sizeof whole - length, "%s%s", is_relative ? "/" : "", path);
    if (added < 0 || (size_t)added >= sizeof whole - length)
        return ENAMETOOLONG;
    /* The write fails only when the tool was started by hand and no process reads the pipe. */
    if (write(TOOL_UNDO_FD, whole, length + (size_t)added) < 0)
        errno = 0;
    return 0;
}

/* Opens a new file beside the target. Its path is sent before the file is made, so that init can remove it after a
 * kill in between. */
static int open_temporary(struct target *t, int *fd) {
    uint64_t random;
    char name[40];
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return EIO;
    snprintf(name, sizeof name, ".atoll-%016llx", (unsigned long long)random);
    strcpy(t->temporary, t->path);
    int error = replace_last(t->temporary, name);
    if (error != 0)
        return error;
    error = write_temporary(t->temporary);
    if (error != 0)
        return error;
    *fd = open(t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *fd < 0 ? errno : 0;
}

/* A file that is replaced keeps its mode and, where the user may change the owner, its owner. */
static int set_owner_and_mode(int fd, const struct target *t) {
    if (t->exists && fchown(fd, t->info.st_uid, t->info.st_gid) != 0 && errno != EPERM)
        return errno;
    return fchmod(fd, t->exists ? t->info.st_mode & 07777 : t->mode) == 0 ? 0 : errno;
}

static int commit(const struct target *t, bool create) {
    if (!create)
        return rename(t->temporary, t->path) == 0 ? 0 : errno;
    if (renameat2(AT_FDCWD, t->temporary, AT_FDCWD, t->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (link(t->temporary, t->path) != 0)
        return errno;
    unlink(t->temporary);
    return 0;
}

static int replace(struct target *t, bool create) {
    int fd = -1;
    int error = open_temporary(t, &fd);
    if (error != 0)
        return error;
    error = copy_in(fd);
    if (error == 0)
        error = set_owner_and_mode(fd, t);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        error = commit(t, create);
    if (error != 0)
        unlink(t->temporary);
    return error;
}

int tool_write(char **arguments) {
    static struct target target;
    const char *path = arguments[0], *how = arguments[2];
    bool create = strcmp(how, "create") == 0, appending = strcmp(how, "append") == 0;
    int64_t mode;
    if (!tool_number(arguments[1], 8, &mode) || mode < 0 || mode > 07777 ||
        (!create && !appending && strcmp(how, "replace") != 0))
        return tool_fail(EINVAL, "write %s with mode %s, %s", path, arguments[1], how);
    if (strlen(path) >= sizeof target.path)
        return tool_fail(ENAMETOOLONG, "write %.100s", path);
    strcpy(target.path, path);
    target.mode = (mode_t)mode;
    /* A file that is to be created must not exist at all, not even as a link. */
    int error = create ? 0 : resolve(&target);
    if (error == 0)
        error = tool_make_parents(target.path);
    if (error == 0)
        error = stat_target(&target, create);
    if (error == 0)
        error = appending ? append(&target) : replace(&target, create);
    return error == 0 ? 0 : tool_fail(error, "write %s", path);
}
