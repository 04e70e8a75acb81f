/* stat and list: files as entries. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"
#include "walk.h"
#include "wire.h"

/* No path of a tree that is deeper can be given back to the kernel in one piece. */
#define NAME_MOST 8000
#define ENTRY_FIXED (1 + 4 * 4 + 8 * 3)

static char type_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return 'd';
    case S_IFLNK:
        return 'l';
    case S_IFIFO:
        return 'p';
    case S_IFSOCK:
        return 's';
    case S_IFCHR:
        return 'c';
    case S_IFBLK:
        return 'b';
    default:
        return 'f';
    }
}

static void put_entry(const struct stat *info, const char *name, size_t name_length, const char *target, size_t target_length) {
    uint8_t *to = record_start(ENTRY_FIXED + 8 + name_length + target_length);
    int64_t modified = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
    to = put_u8(to, (uint8_t)type_of(info->st_mode));
    to = put_u32(to, info->st_mode & 07777);
    to = put_u32(to, info->st_uid);
    to = put_u32(to, info->st_gid);
    to = put_u32(to, (uint32_t)info->st_nlink);
    to = put_u64(to, (uint64_t)info->st_size);
    to = put_u64(to, info->st_ino);
    to = put_u64(to, (uint64_t)modified);
    to = put_text(to, name, name_length);
    put_text(to, target, target_length);
}

/* 0 or an errno. `name` is what is told, `file` what is looked at in `directory`. */
static int tell(int directory, const char *file, const char *name, size_t name_length, struct stat *info) {
    char target[PATH_MAX];
    ssize_t target_length = 0;
    if (fstatat(directory, file, info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    if (S_ISLNK(info->st_mode))
        target_length = readlinkat(directory, file, target, sizeof target);
    put_entry(info, name, name_length, target, target_length > 0 ? (size_t)target_length : 0);
    return 0;
}

int tool_stat(char **arguments) {
    const char *path = arguments[0];
    struct stat info;
    if (strlen(path) > NAME_MOST)
        return tool_fail(ENAMETOOLONG, "stat %.100s", path);
    int error = tell(AT_FDCWD, path, path, strlen(path), &info);
    if (error == 0)
        error = record_flush();
    return error == 0 ? 0 : tool_fail(error, "stat %s", path);
}

struct listing {
    struct level *level;
    int64_t depth, here;
    char path[NAME_MOST + 1];
};

/* Tells one entry and goes into it if it is a directory. One that cannot be read, or goes away meanwhile, has no contents. */
static int list_entry(struct listing *l, const char *name) {
    struct level *level = l->level;
    struct stat info;
    size_t length = level->path_length + strlen(name);
    if (length + 1 > NAME_MOST)
        return ENAMETOOLONG;
    memcpy(l->path + level->path_length, name, length - level->path_length);
    if (tell(level->fd, name, l->path, length, &info) != 0 || !S_ISDIR(info.st_mode) || l->here >= l->depth)
        return 0;
    struct level *below = walk_into(level, level->fd, name, false);
    if (below == NULL)
        return errno == EMFILE || errno == ENOMEM ? errno : 0;
    l->path[length] = '/';
    below->path_length = length + 1;
    l->level = below;
    l->here++;
    return 0;
}

static int list_tree(struct listing *l) {
    int error = 0;
    while (error == 0 && l->level != NULL) {
        struct walk_entry entry;
        if (walk_next(l->level, &entry) > 0) {
            error = list_entry(l, entry.name);
        } else {
            l->level = walk_out(l->level);
            l->here--;
        }
    }
    walk_out_of_all(l->level);
    return error;
}

int tool_list(char **arguments) {
    static struct listing listing;
    const char *path = arguments[0];
    if (!tool_number(arguments[1], 10, &listing.depth) || listing.depth < 1)
        return tool_fail(EINVAL, "list to depth %s", arguments[1]);
    walk_allow_depth();
    listing.here = 1;
    listing.level = walk_into(NULL, AT_FDCWD, path, true);
    if (listing.level == NULL)
        return tool_fail(errno, "list %s", path);
    int error = list_tree(&listing);
    int written = record_flush();
    error = error != 0 ? error : written;
    return error == 0 ? 0 : tool_fail(error, "list %s", path);
}
