/* The directories from the root of a tree down to where one is, at any depth, with a bounded number of descriptors. */
#ifndef ATOLL_ARCHIVE_DIRS_H
#define ATOLL_ARCHIVE_DIRS_H

#include <sys/types.h>

struct dir {
    struct dir *above;
    /* NONE while one is far below. */
    int fd;
    int depth;
    dev_t device;
    ino_t inode;
    /* Of the path from the root down to here. */
    size_t path_length;
};

/* The path of the innermost directory, ended by NUL: names with slashes between them, empty for the root. */
extern char dirs_path[];

/* As a path, whatever links it leads through. NULL with errno. */
struct dir *dirs_open_root(const char *path);
/* Into directory `name`, which is not followed if it is a link. NULL with errno; then one is where one was. */
struct dir *dirs_enter(struct dir *from, const char *name);
/* Back up. NULL with errno; out of the root NULL and 0. Either way `from` is gone. */
struct dir *dirs_leave(struct dir *from);
/* Its name in the directory above. */
const char *dirs_name(const struct dir *of);

#endif
