/* The tools stat, list and nodes, which write files as entries. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entry.h"
#include "nodes.h"
#include "tool.h"
#include "walk.h"

static void put_entry(const struct stat *info, const char *name, size_t name_length, const char *target,
                      size_t target_length) {
    entry_put(record_start(entry_size(name_length, target_length)), info, name, name_length, target, target_length);
}

/* Writes one entry. `name` is the name in the entry, `file` the name in `directory`. Returns 0 or an errno. */
static int write_entry(int directory, const char *file, const char *name, size_t name_length, struct stat *info) {
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
    if (strlen(path) > ENTRY_NAME_MOST)
        return tool_fail(ENAMETOOLONG, "stat %.100s", path);
    int error = write_entry(AT_FDCWD, path, path, strlen(path), &info);
    if (error == 0)
        error = record_flush();
    return error == 0 ? 0 : tool_fail(error, "stat %s", path);
}

struct listing {
    struct level *level;
    int64_t depth, here;
    /* Lists only pipes and sockets, as deep as a path fits into an entry. */
    bool only_nodes;
    char path[ENTRY_NAME_MOST + 1];
};

/* Writes an entry if the file is a pipe or a socket. Returns 0 or an errno. */
static int write_node(struct listing *l, const struct walk_entry *entry, size_t length, struct stat *info) {
    if (entry->type != DT_DIR && entry->type != DT_FIFO && entry->type != DT_SOCK && entry->type != DT_UNKNOWN)
        return ENOTDIR;
    if (fstatat(l->level->fd, entry->name, info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    if (S_ISFIFO(info->st_mode) || S_ISSOCK(info->st_mode))
        put_entry(info, l->path, length, "", 0);
    return 0;
}

/* Writes one entry, and enters it if it is a directory. A directory that cannot be read, or is removed in between,
 * has no contents. */
static int list_entry(struct listing *l, const struct walk_entry *entry) {
    struct level *level = l->level;
    struct stat info;
    const char *name = entry->name;
    size_t length = level->path_length + strlen(name);
    if (length + 1 > ENTRY_NAME_MOST)
        return l->only_nodes ? 0 : ENAMETOOLONG;
    memcpy(l->path + level->path_length, name, length - level->path_length);
    int error = l->only_nodes ? write_node(l, entry, length, &info)
                              : write_entry(level->fd, name, l->path, length, &info);
    if (error != 0 || !S_ISDIR(info.st_mode) || l->here >= l->depth)
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
        int more = walk_next(l->level, &entry);
        if (more > 0) {
            error = list_entry(l, &entry);
        } else {
            /* A directory that was removed in between has no more entries. */
            error = more < 0 && errno != ENOENT ? errno : 0;
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

static int put_node(const struct stat *info, const char *path, size_t length) {
    put_entry(info, path, length, "", 0);
    return 0;
}

/* Lists the whole tree. Returns 0 or an errno. */
static int list_nodes_below(int root) {
    static struct listing listing;
    listing.only_nodes = true;
    listing.depth = INT64_MAX;
    listing.here = 1;
    listing.level = walk_into(NULL, root, ".", false);
    return listing.level == NULL ? errno : list_tree(&listing);
}

/* Reads the next directory to search from stdin: a time, a space and a path, ended by NUL. Returns 1, 0 at the end,
 * or -1 with errno. */
static int next_directory(char **line, size_t *room, const char **directory, int64_t *changed) {
    if (getdelim(line, room, 0, stdin) <= 0)
        return 0;
    char *space = strchr(*line, ' ');
    if (space != NULL)
        *space = 0;
    if (space == NULL || !tool_number(*line, 10, changed)) {
        errno = EBADMSG;
        return -1;
    }
    *directory = space + 1;
    return 1;
}

/* Lists the directories that stdin names. Returns 0 or an errno. */
static int list_nodes_in(int root, bool is_synced) {
    struct nodes_search search = {.root = root, .is_synced = is_synced, .left = SIZE_MAX, .report = put_node};
    const char *directory;
    char *line = NULL;
    size_t room = 0;
    int64_t changed;
    int error = 0, more = 0;
    while (error == 0 && (more = next_directory(&line, &room, &directory, &changed)) > 0)
        error = nodes_in(&search, directory, changed);
    if (more < 0)
        error = errno;
    free(line);
    return error;
}

int tool_nodes(char **arguments) {
    const char *path = arguments[0], *where = arguments[1];
    bool is_below = strcmp(where, "below") == 0, is_synced = strcmp(where, "synced") == 0;
    if (!is_below && !is_synced && strcmp(where, "in") != 0)
        return tool_fail(EINVAL, "list nodes %s", where);
    walk_allow_depth();
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return tool_fail(errno, "list nodes of %s", path);
    int error = is_below ? list_nodes_below(root) : list_nodes_in(root, is_synced);
    int written = record_flush();
    error = error != 0 ? error : written;
    return error == 0 ? 0 : tool_fail(error, "list nodes of %s", path);
}
