/* Walks from the root of a tree down to any depth, with a bounded number of open directories. */
#ifndef ATOLL_ARCHIVE_DIRS_H
#define ATOLL_ARCHIVE_DIRS_H

#include <sys/types.h>

struct dir {
    struct dir *above;
    /* The descriptor is NONE while the walk is far below this directory. */
    int fd;
    int depth;
    dev_t device;
    ino_t inode;
    /* The length of the path from the root down to this directory. */
    size_t path_length;
};

/* The path of the innermost directory, ended by NUL: names with slashes between them, empty for the root. */
extern char dirs_path[];

/* Opens the root by its path and follows links in it. Returns NULL with errno on failure. */
struct dir *dirs_open_root(const char *path);
/* Enters directory `name`, unless that is a link. Returns NULL with errno on failure; then the walk stays in `from`. */
struct dir *dirs_enter(struct dir *from, const char *name);
/* Goes back up and frees `from`. Returns NULL with errno on failure, and NULL with errno 0 when it leaves the root. */
struct dir *dirs_leave(struct dir *from);
/* Returns the name of the directory in the one above it. */
const char *dirs_name(const struct dir *of);

#endif
