#include "archive_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"

#define FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define NONE (-1)
/* Descriptors of deeper directories are closed while the walk is below them, and opened again from there. */
#define KEPT_OPEN 128

char dirs_path[ARCHIVE_PATH_MOST + 1];

static struct dir *adopt(struct dir *above, int fd) {
    struct stat info;
    struct dir *dir = fd < 0 ? NULL : malloc(sizeof *dir);
    if (dir == NULL || fstat(fd, &info) != 0) {
        int error = errno;
        free(dir);
        if (fd >= 0)
            close(fd);
        errno = error;
        return NULL;
    }
    *dir = (struct dir){above, fd, above == NULL ? 0 : above->depth + 1, info.st_dev, info.st_ino, 0};
    return dir;
}

struct dir *dirs_open_root(const char *path) {
    dirs_path[0] = 0;
    return adopt(NULL, open(path, FLAGS));
}

struct dir *dirs_enter(struct dir *from, const char *name) {
    size_t slash = from->depth == 0 ? 0 : 1, length = strlen(name);
    if (from->path_length + slash + length > ARCHIVE_PATH_MOST) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    struct dir *dir = adopt(from, openat(from->fd, name, FLAGS | O_NOFOLLOW));
    if (dir == NULL)
        return NULL;
    if (slash == 1)
        dirs_path[from->path_length] = '/';
    memcpy(dirs_path + from->path_length + slash, name, length + 1);
    dir->path_length = from->path_length + slash + length;
    if (from->depth >= KEPT_OPEN) {
        close(from->fd);
        from->fd = NONE;
    }
    return dir;
}

static bool reopen(struct dir *dir, const struct dir *below) {
    struct stat info;
    dir->fd = openat(below->fd, "..", FLAGS);
    if (dir->fd < 0 || fstat(dir->fd, &info) != 0)
        return false;
    if (info.st_dev == dir->device && info.st_ino == dir->inode)
        return true;
    errno = ESTALE;
    return false;
}

struct dir *dirs_leave(struct dir *from) {
    struct dir *above = from->above;
    bool found = above == NULL || above->fd != NONE || reopen(above, from);
    int error = found ? 0 : errno;
    close(from->fd);
    free(from);
    dirs_path[above == NULL ? 0 : above->path_length] = 0;
    errno = error;
    return found ? above : NULL;
}

const char *dirs_name(const struct dir *of) {
    return dirs_path + (of->above == NULL ? 0 : of->above->path_length + (of->above->depth == 0 ? 0 : 1));
}
