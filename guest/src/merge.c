#include "merge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "walk.h"

/* A deeper tree is not merged: each level takes some of the stack. */
#define DEEPEST 2048

#define BELOW_MOST 64

/* A layer without the directory has this descriptor. */
#define NONE (-1)

/* The directories of one path in the layers below the two, the topmost first, as far as they are visible. */
struct below {
    int fds[BELOW_MOST];
    int count;
};

/* The directories of one path in the three layers that the merge works on. */
struct place {
    int lower, upper, target;
    const struct below *below;
    int depth;
};

static int links_fd;

static bool merge_directory(const struct place *at);

static int open_directory(int parent, const char *name) {
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void close_keeping_errno(int fd) {
    int error = errno;
    if (fd != NONE)
        close(fd);
    errno = error;
}

static bool is_whiteout(const struct stat *info) {
    return S_ISCHR(info->st_mode) && info->st_rdev == 0;
}

/*
 * Says whether a whiteout hides something. Otherwise it must go: in a directory that no layer below has, overlayfs
 * would list its name.
 */
static bool hides_something(const struct below *below, const char *name) {
    struct stat info;
    for (int i = 0; i < below->count; i++)
        if (fstatat(below->fds[i], name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            return !is_whiteout(&info);
    return false;
}

static void look_below(const struct below *parents, const char *name, struct below *found) {
    struct stat info;
    found->count = 0;
    for (int i = 0; i < parents->count; i++) {
        if (fstatat(parents->fds[i], name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        int fd = S_ISDIR(info.st_mode) ? open_directory(parents->fds[i], name) : NONE;
        if (fd < 0)
            return;
        found->fds[found->count++] = fd;
        if (merge_is_opaque(fd))
            return;
    }
}

static bool copy_node(const struct place *at, int from, const char *name, const struct stat *info) {
    if (is_whiteout(info) && !hides_something(at->below, name))
        return true;
    return merge_copy_node(from, name, info, at->target, links_fd);
}

/* Fills the new directory. `hides` says that what the layers below have under this name is hidden. */
static bool merge_opened(const struct place *at, const char *name, int lower, int upper, bool hides) {
    struct stat info;
    struct below below = {.count = 0};
    int top = upper != NONE ? upper : lower;
    if (fstat(top, &info) != 0 || mkdirat(at->target, name, 0700) != 0)
        return false;
    int target = open_directory(at->target, name);
    if (target < 0)
        return false;
    bool hidden = hides || (lower != NONE && merge_is_opaque(lower));
    if (!hidden)
        look_below(at->below, name, &below);
    const struct place inside = {lower, upper, target, &below, at->depth + 1};
    bool done = merge_directory(&inside) && (!hidden || merge_set_opaque(target)) &&
                merge_copy_attributes(top, &info, target);
    for (int i = 0; i < below.count; i++)
        close_keeping_errno(below.fds[i]);
    close_keeping_errno(target);
    return done;
}

/* Merges directory `name`, which is in the upper layer, in the lower one, or in both. */
static bool merge_child(const struct place *at, const char *name, bool in_lower, bool in_upper, bool hides) {
    int lower = NONE;
    int upper = in_upper ? open_directory(at->upper, name) : NONE;
    if (in_upper && upper < 0)
        return false;
    /* What an opaque directory hides is not in the result either. */
    bool opaque = in_upper && merge_is_opaque(upper);
    bool done = false;
    if (!in_lower || opaque || (lower = open_directory(at->lower, name)) >= 0)
        done = merge_opened(at, name, lower, upper, hides || opaque);
    close_keeping_errno(lower);
    close_keeping_errno(upper);
    return done;
}

/* Merges an entry of the upper layer, which takes precedence. */
static bool merge_upper(const struct place *at, const char *name) {
    struct stat mine, under;
    if (fstatat(at->upper, name, &mine, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (!S_ISDIR(mine.st_mode))
        return copy_node(at, at->upper, name, &mine);
    bool is_under = at->lower != NONE && fstatat(at->lower, name, &under, AT_SYMLINK_NOFOLLOW) == 0;
    bool both = is_under && S_ISDIR(under.st_mode);
    /* A file or a whiteout in the lower layer hides what is below it; a directory in its place has to do the same. */
    return merge_child(at, name, both, true, is_under && !both);
}

static bool merge_lower(const struct place *at, const char *name) {
    struct stat mine, over;
    if (at->upper != NONE) {
        if (fstatat(at->upper, name, &over, AT_SYMLINK_NOFOLLOW) == 0)
            return true;
        if (errno != ENOENT)
            return false;
    }
    if (fstatat(at->lower, name, &mine, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (S_ISDIR(mine.st_mode))
        return merge_child(at, name, true, false, false);
    return copy_node(at, at->lower, name, &mine);
}

static bool each_entry(const struct place *at, int layer, bool (*merge)(const struct place *, const char *)) {
    struct walk_entry entry;
    int more = -1;
    struct level *level = walk_into(NULL, layer, ".", false);
    if (level == NULL)
        return false;
    bool done = true;
    while (done && (more = walk_next(level, &entry)) == 1)
        done = merge(at, entry.name);
    int error = errno;
    walk_out(level);
    errno = error;
    return done && more == 0;
}

static bool merge_directory(const struct place *at) {
    if (at->depth > DEEPEST) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (at->upper != NONE && !each_entry(at, at->upper, merge_upper))
        return false;
    return at->lower == NONE || each_entry(at, at->lower, merge_lower);
}

/* The arguments are LOWER UPPER TARGET LINKS BELOW... */
static bool merge_all(int argc, char **argv) {
    struct stat info;
    struct below below = {.count = 0};
    int fds[4];
    for (int i = 0; i < 4; i++)
        if ((fds[i] = open_directory(AT_FDCWD, argv[i])) < 0)
            return false;
    for (int i = 4; i < argc; i++)
        if ((below.fds[below.count++] = open_directory(AT_FDCWD, argv[i])) < 0)
            return false;
    links_fd = fds[3];
    const struct place root = {fds[0], fds[1], fds[2], &below, 0};
    return merge_directory(&root) && fstat(fds[1], &info) == 0 && merge_copy_attributes(fds[1], &info, fds[2]);
}

int merge_main(int argc, char **argv) {
    if (argc < 4 || argc - 4 > BELOW_MOST) {
        fprintf(stderr, "Usage: atoll-guest merge LOWER UPPER TARGET LINKS [BELOW]...\n");
        return 2;
    }
    walk_allow_depth();
    umask(0);
    if (merge_all(argc, argv))
        return 0;
    int error = errno;
    fprintf(stderr, "Cannot merge %s and %s: %s\n", argv[0], argv[1], strerror(error));
    return error == ENOSPC || error == EDQUOT ? EXIT_NO_SPACE : 1;
}
