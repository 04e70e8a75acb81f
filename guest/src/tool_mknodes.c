/* The tool mknodes, which makes the pipes and sockets that entries describe. It works with descriptors, because an
 * untrusted sandbox wrote the entries: it follows no link and makes nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "entry.h"
#include "tool.h"
#include "wire.h"

#define RECORD_MOST (ENTRY_NAME_MOST + 256)

struct node {
    mode_t type, mode;
    uid_t uid;
    gid_t gid;
    struct timespec modified;
    char path[ENTRY_NAME_MOST + 1];
};

static void set_modified(struct node *node, int64_t ns) {
    const int64_t second = 1000000000;
    node->modified.tv_nsec = (long)((ns % second + second) % second);
    node->modified.tv_sec = (time_t)((ns - node->modified.tv_nsec) / second);
}

static bool parse_node(const uint8_t *record, size_t length, struct node *node) {
    struct reader r = reader_over(record, length);
    uint8_t type = read_u8(&r);
    node->type = type == 'p' ? S_IFIFO : S_IFSOCK;
    node->mode = read_u32(&r) & 07777;
    node->uid = read_u32(&r);
    node->gid = read_u32(&r);
    /* Links, size and inode of the entry are not used. */
    read_u32(&r);
    read_u64(&r);
    read_u64(&r);
    int64_t modified = (int64_t)read_u64(&r);
    struct text name = read_text(&r), target = read_text(&r);
    if (r.bad || reader_left(&r) != 0 || (type != 'p' && type != 's') || target.length != 0)
        return false;
    if (name.length < 1 || name.length > ENTRY_NAME_MOST || modified < -INT64_MAX + 1000000000)
        return false;
    set_modified(node, modified);
    memcpy(node->path, name.at, name.length);
    node->path[name.length] = 0;
    return true;
}

/* Returns the directory of a node, and in `*name` its name there. Returns -1 with errno; EINVAL for a path that
 * leads out or nowhere. */
static int open_parent(int root, char *path, char **name) {
    int at = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (char *slash; at >= 0 && (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        *slash = 0;
        bool is_name = archive_name_ok(path, strlen(path));
        int below = is_name ? openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        int error = is_name ? errno : EINVAL;
        close(at);
        at = below;
        errno = error;
    }
    if (at >= 0 && !archive_name_ok(path, strlen(path))) {
        close(at);
        at = -1;
        errno = EINVAL;
    }
    *name = path;
    return at;
}

/* Says whether to make the node. With `replaces` it takes the place of one of the same kind and gets its attributes;
 * otherwise it is made where nothing exists, or a whiteout. */
static bool is_wanted(int at, const char *name, struct node *node, bool replaces, bool *is_there) {
    struct stat info;
    *is_there = fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (!replaces)
        return *is_there ? archive_is_whiteout(&info) : errno == ENOENT;
    if (!*is_there || (info.st_mode & S_IFMT) != node->type)
        return false;
    node->mode = info.st_mode & 07777;
    node->uid = info.st_uid;
    node->gid = info.st_gid;
    node->modified = info.st_mtim;
    return true;
}

/* Returns 0 or an errno. The time of the directory stays as it was. */
static int make_node(int at, const char *name, struct node *node, bool replaces) {
    struct stat parent;
    bool is_there;
    if (!is_wanted(at, name, node, replaces, &is_there))
        return 0;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, node->modified};
    if (fstat(at, &parent) != 0 || (is_there && unlinkat(at, name, 0) != 0) ||
        mknodat(at, name, node->type | 0600, 0) != 0)
        return errno;
    if (fchownat(at, name, node->uid, node->gid, AT_SYMLINK_NOFOLLOW) != 0 || fchmodat(at, name, node->mode, 0) != 0 ||
        utimensat(at, name, times, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    const struct timespec before[2] = {parent.st_atim, parent.st_mtim};
    return futimens(at, before) == 0 ? 0 : errno;
}

/* Does nothing if the directory of the node does not exist. Returns 0 or an errno. */
static int make_in(int root, struct node *node, bool replaces) {
    char *name;
    int at = open_parent(root, node->path, &name);
    if (at < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : errno;
    int error = make_node(at, name, node, replaces);
    close(at);
    return error;
}

int tool_mknodes(char **arguments) {
    static struct node node;
    static uint8_t record[RECORD_MOST];
    const char *path = arguments[0];
    uint8_t head[4];
    bool replaces = strcmp(arguments[1], "replace") == 0;
    int error = 0;
    if (!replaces && strcmp(arguments[1], "missing") != 0)
        return tool_fail(EINVAL, "make nodes %s", arguments[1]);
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return tool_fail(errno, "make nodes in %s", path);
    size_t got;
    while (error == 0 && (got = fread(head, 1, sizeof head, stdin)) > 0) {
        struct reader r = reader_over(head, got);
        size_t length = read_u32(&r);
        if (r.bad || length > sizeof record || fread(record, 1, length, stdin) != length ||
            !parse_node(record, length, &node))
            return tool_fail(EBADMSG, "make nodes in %s", path);
        error = make_in(root, &node, replaces);
    }
    return error == 0 ? 0 : tool_fail(error, "make nodes in %s", path);
}
