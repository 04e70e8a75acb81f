/* The tools mkdir, rename and remove. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"
#include "walk.h"

/* How often a directory is emptied again when another process fills it during the removal. */
#define EMPTY_TRIES 8

int tool_mkdir(char **arguments) {
    const char *path = arguments[0];
    int64_t mode;
    bool parents = strcmp(arguments[2], "parents") == 0;
    struct stat info;
    if (!tool_number(arguments[1], 8, &mode) || mode < 0 || mode > 07777 ||
        (!parents && strcmp(arguments[2], "one") != 0))
        return tool_fail(EINVAL, "make directory %s with mode %s, %s", path, arguments[1], arguments[2]);
    int error = parents ? tool_make_parents(path) : 0;
    if (error == 0 && mkdir(path, (mode_t)mode) != 0)
        error = errno;
    else if (error == 0 && chmod(path, (mode_t)mode) != 0)
        error = errno;
    if (parents && error == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        error = 0;
    return error == 0 ? 0 : tool_fail(error, "make directory %s", path);
}

int tool_rename(char **arguments) {
    const char *from = arguments[0], *to = arguments[1];
    bool keep = strcmp(arguments[2], "keep") == 0;
    if (!keep && strcmp(arguments[2], "replace") != 0)
        return tool_fail(EINVAL, "rename and %s", arguments[2]);
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, keep ? RENAME_NOREPLACE : 0) != 0)
        return tool_fail(errno, "rename %s to %s", from, to);
    return 0;
}

/* Removes `name` unless it is a directory with contents. Returns 0, ENOTEMPTY for such a directory, or another
 * errno. */
static int remove_one(int directory, const char *name, unsigned char type) {
    if (type != DT_DIR) {
        if (unlinkat(directory, name, 0) == 0)
            return 0;
        /* Linux says EISDIR, POSIX says EPERM. */
        if (errno != EISDIR && errno != EPERM)
            return errno;
        struct stat info;
        int error = errno;
        if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode))
            return error;
    }
    if (unlinkat(directory, name, AT_REMOVEDIR) == 0)
        return 0;
    return errno == EEXIST ? ENOTEMPTY : errno;
}

/* Removes an emptied directory. Returns ENOTEMPTY when it has got new entries. */
static int remove_emptied(const struct level *level, const char *path) {
    if (level->above == NULL)
        return remove_one(AT_FDCWD, path, DT_DIR);
    return remove_one(level->above->fd, level->name, DT_DIR);
}

/* Does one thing to the directory on top of `*level` and moves it down or up. Returns 0, or an errno with
 * `failed_name` filled in. */
static int remove_step(struct level **level, const char *path, int *tries, char failed_name[256]) {
    struct walk_entry entry = {(*level)->name, DT_DIR};
    int error, found = walk_next(*level, &entry);
    if (found > 0) {
        error = remove_one((*level)->fd, entry.name, entry.type);
        struct level *below = error == ENOTEMPTY ? walk_into(*level, (*level)->fd, entry.name, false) : NULL;
        if (below != NULL) {
            *level = below;
            return 0;
        }
        error = error == ENOTEMPTY ? errno : error;
    } else {
        error = found < 0 ? errno : remove_emptied(*level, path);
        if (error == ENOTEMPTY && (*tries)++ < EMPTY_TRIES) {
            walk_again(*level);
            return 0;
        }
    }
    if (error != 0 && error != ENOENT) {
        snprintf(failed_name, 256, "%s", entry.name);
        return error;
    }
    if (found == 0) {
        *tries = 0;
        *level = walk_out(*level);
    }
    return 0;
}

static int remove_tree(const char *path, char failed_name[256]) {
    int error = 0, tries = 0;
    walk_allow_depth();
    struct level *level = walk_into(NULL, AT_FDCWD, path, false);
    if (level == NULL)
        return errno;
    while (error == 0 && level != NULL)
        error = remove_step(&level, path, &tries, failed_name);
    walk_out_of_all(level);
    return error;
}

int tool_remove(char **arguments) {
    const char *path = arguments[0];
    char failed_name[256] = "";
    bool recursive = strcmp(arguments[1], "recursive") == 0;
    if (!recursive && strcmp(arguments[1], "one") != 0)
        return tool_fail(EINVAL, "remove %s", arguments[1]);
    int error = remove_one(AT_FDCWD, path, DT_UNKNOWN);
    if (error == ENOTEMPTY && recursive)
        error = remove_tree(path, failed_name);
    if (error == 0)
        return 0;
    return failed_name[0] == 0 ? tool_fail(error, "remove %s", path)
                               : tool_fail(error, "remove %s in %s", failed_name, path);
}
