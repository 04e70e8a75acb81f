#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"
#include "walk.h"
#include "watched_directories.h"
#include "watch_seen.h"
#include "wire.h"

#define EVENTS_SIZE 65536
#define CHANGES (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define OWN (IN_DELETE_SELF | IN_MOVE_SELF)
/* This is long enough for the kernel to merge repeated writes into one event and to return both halves of a move
 * together. */
#define GATHER_MS 5

enum kind { CREATED = 1, WRITTEN, ATTRIBUTES, REMOVED, MOVED_AWAY, MOVED_HERE, LOST, BEGUN, GONE };

static const char *root;
static bool recursive, begun, over;
/* LOST was written in this round: a client that reads the directory after it sees everything that the round lost. */
static bool lost;
static int inotify = -1;
static uint64_t cursor;
/* The last event of this round, which is not written twice in a row. */
static struct {
    enum kind kind;
    char path[PATH_MAX];
} last;

static void write_event(enum kind kind, bool directory, uint32_t cookie, const char *path) {
    size_t length = strlen(path);
    if (kind == WRITTEN && last.kind == kind && strcmp(last.path, path) == 0)
        return;
    last.kind = kind;
    memcpy(last.path, path, length + 1);
    uint8_t *to = record_start(8 + 1 + 1 + 4 + 4 + length);
    to = put_u64(to, ++cursor);
    to = put_u8(to, (uint8_t)kind);
    to = put_u8(to, directory ? 1 : 0);
    to = put_u32(to, cookie);
    put_text(to, path, length);
}

/* Events are lost, so the client has to read the directory itself. Before BEGUN this is only noted. */
static void write_lost(void) {
    if (begun && !lost)
        write_event(LOST, false, 0, "");
    lost = true;
}

/* A file that should be watched cannot be, or its event cannot be written. */
static void cannot_watch(const char *path, int error) {
    if (!lost)
        tool_fail(error, "watch %s and what else is too much", path);
    write_lost();
}

/* A file that is gone again, or that this user may not read, is no loss: reading the directory would not show it
 * either. */
static bool is_loss(int error) {
    return error != ENOENT && error != ENOTDIR && error != ELOOP && error != EACCES && error != EPERM;
}

static void forget(int watch) {
    inotify_rm_watch(inotify, watch);
}

static bool full_path(uint32_t node, char path[PATH_MAX]) {
    int length = snprintf(path, PATH_MAX, "%s/", root);
    return length < PATH_MAX && watched_path(node, NULL, path + length, PATH_MAX - (size_t)length);
}

/* Watches directory `name` of `parent`. Returns the node, old or new, or NODE_NONE when that was not possible. */
static uint32_t add_directory(uint32_t parent, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/", root);
    if (length >= PATH_MAX || !watched_path(parent, name, path + length, PATH_MAX - (size_t)length)) {
        cannot_watch(name, ENAMETOOLONG);
        return NODE_NONE;
    }
    int watch = inotify_add_watch(inotify, path, CHANGES | IN_ONLYDIR | IN_DONT_FOLLOW);
    if (watch < 0) {
        if (is_loss(errno))
            cannot_watch(path, errno);
        return NODE_NONE;
    }
    uint32_t node = watched_of_watch(watch);
    if (node != NODE_NONE) {
        /* The directory has another name in the tree: it was renamed, and the event of that has not come yet. */
        watched_move(node, parent, name);
        return node;
    }
    node = watched_add(watch, parent, name);
    if (node == NODE_NONE) {
        forget(watch);
        cannot_watch(path, ENOSPC);
    }
    return node;
}

static bool is_directory(int parent, const struct walk_entry *entry) {
    struct stat info;
    if (entry->type != DT_UNKNOWN)
        return entry->type == DT_DIR;
    return fstatat(parent, entry->name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

/* Opens a watched directory to read its entries. Returns NULL when that was not possible. */
static struct level *look_into(struct level *above, int parent, const char *name, uint32_t node) {
    struct level *level = walk_into(above, parent, name, node == 0);
    if (level != NULL)
        level->path_length = node;
    else if (is_loss(errno))
        cannot_watch(name, errno);
    return level;
}

static void write_found(uint32_t node, const struct walk_entry *entry, bool directory) {
    char path[PATH_MAX];
    if (!watched_path(node, entry->name, path, sizeof path)) {
        cannot_watch(entry->name, ENAMETOOLONG);
        return;
    }
    write_event(CREATED, directory, 0, path);
    seen_add(node, entry->name);
}

/* Watches everything below `top`, which is watched already. With `reports`, each file that is found is reported as
 * created. */
static void scan(uint32_t top, bool reports) {
    char path[PATH_MAX];
    if (!full_path(top, path)) {
        cannot_watch(root, ENAMETOOLONG);
        return;
    }
    struct level *level = look_into(NULL, AT_FDCWD, path, top);
    while (level != NULL) {
        struct walk_entry entry;
        uint32_t node = (uint32_t)level->path_length;
        int more = walk_next(level, &entry);
        if (more <= 0) {
            if (more < 0 && is_loss(errno))
                cannot_watch(level->name, errno);
            level = walk_out(level);
            continue;
        }
        bool directory = is_directory(level->fd, &entry);
        if (reports)
            write_found(node, &entry, directory);
        uint32_t child = directory ? add_directory(node, entry.name) : NODE_NONE;
        struct level *below = child == NODE_NONE ? NULL : look_into(level, level->fd, entry.name, child);
        if (below != NULL)
            level = below;
    }
}

/* Returns 0 or an errno. */
static int begin(void) {
    watched_clear();
    seen_clear();
    if (inotify >= 0)
        close(inotify);
    inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (inotify < 0)
        return errno;
    int watch = inotify_add_watch(inotify, root, CHANGES | OWN);
    if (watch < 0)
        return errno;
    if (watched_add(watch, 0, "") == NODE_NONE)
        return ENOMEM;
    if (recursive)
        scan(0, false);
    return 0;
}

/* Events were dropped, so any of the watches may be wrong: all are made again before the client reads the
 * directories. */
static void start_over(void) {
    if (begin() != 0) {
        write_event(GONE, true, 0, "");
        over = true;
        return;
    }
    write_lost();
}

static void directory_came(uint32_t parent, const char *name, uint32_t cookie) {
    uint32_t known = cookie != 0 ? watched_detached(cookie) : NODE_NONE;
    if (known != NODE_NONE) {
        watched_move(known, parent, name);
        return;
    }
    uint32_t node = add_directory(parent, name);
    if (node != NODE_NONE)
        scan(node, true);
}

static void directory_left(uint32_t parent, const char *name, uint32_t cookie) {
    uint32_t node = watched_child(parent, name);
    if (node != NODE_NONE)
        watched_detach(node, cookie);
}

static void take_change(uint32_t node, const struct inotify_event *event, const char *name) {
    static const struct {
        uint32_t mask;
        enum kind kind;
    } kinds[] = {
        {IN_CREATE, CREATED}, {IN_MODIFY, WRITTEN},         {IN_CLOSE_WRITE, WRITTEN},  {IN_ATTRIB, ATTRIBUTES},
        {IN_DELETE, REMOVED}, {IN_MOVED_FROM, MOVED_AWAY}, {IN_MOVED_TO, MOVED_HERE},
    };
    char path[PATH_MAX];
    bool directory = event->mask & IN_ISDIR;
    if (!watched_path(node, name, path, sizeof path)) {
        cannot_watch(name, ENAMETOOLONG);
        return;
    }
    if ((event->mask & IN_CREATE) && seen_take(node, name))
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (event->mask & kinds[i].mask)
            write_event(kinds[i].kind, directory, event->cookie, path);
    if (!recursive || !directory || name[0] == 0)
        return;
    if (event->mask & IN_MOVED_FROM)
        directory_left(node, name, event->cookie);
    if (event->mask & (IN_CREATE | IN_MOVED_TO))
        directory_came(node, name, event->cookie);
}

static void take_event(const struct inotify_event *event) {
    if (event->mask & IN_Q_OVERFLOW) {
        start_over();
        return;
    }
    uint32_t node = watched_of_watch(event->wd);
    if (node == NODE_NONE)
        return;
    if (node == 0 && (event->mask & (OWN | IN_IGNORED | IN_UNMOUNT))) {
        write_event(GONE, event->mask & IN_ISDIR, 0, "");
        over = true;
    } else if (event->mask & IN_IGNORED) {
        watched_drop(node);
    } else if (!watched_is_detached(node)) {
        take_change(node, event, event->len > 0 ? event->name : "");
    }
}

/* Returns true when there was something to read. */
static bool take_events(void) {
    static _Alignas(8) char buffer[EVENTS_SIZE];
    ssize_t length = read(inotify, buffer, sizeof buffer);
    int reading = inotify;
    for (ssize_t at = 0; at < length && !over;) {
        const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
        at += (ssize_t)(sizeof *event + event->len);
        take_event(event);
        /* The other events in the buffer belong to watches that no longer exist. */
        if (reading != inotify || (event->mask & IN_Q_OVERFLOW))
            break;
    }
    return length > 0;
}

/* Reads until the kernel has no more events; only then is it certain what was moved out of the tree. */
static void take_all_events(void) {
    last.kind = 0;
    lost = false;
    while (!over && take_events())
        continue;
    watched_drop_detached(forget);
    seen_clear();
}

int tool_watch(char **arguments) {
    root = arguments[0];
    recursive = strcmp(arguments[1], "recursive") == 0;
    if (!recursive && strcmp(arguments[1], "flat") != 0)
        return tool_fail(EINVAL, "watch %s", arguments[1]);
    walk_allow_depth();
    int error = begin();
    if (error != 0)
        return tool_fail(error, "watch %s", root);
    write_event(BEGUN, false, 0, "");
    begun = true;
    if (lost)
        write_event(LOST, false, 0, "");
    while (!over && (error = record_flush()) == 0) {
        struct pollfd polls[2] = {{.fd = inotify, .events = POLLIN}, {.fd = STDOUT_FILENO}};
        if (poll(polls, 2, -1) < 0 && errno != EINTR)
            return tool_fail(errno, "watch %s", root);
        if (polls[1].revents != 0)
            return EPIPE;
        poll(NULL, 0, GATHER_MS);
        take_all_events();
    }
    if (error == 0)
        error = record_flush();
    return error;
}
