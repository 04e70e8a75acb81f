#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "archive_dirs.h"
#include "unpack_in.h"
#include "unpack_nodes.h"
#include "walk.h"

/* The last name in the directory that is being filled: names are in order, so none comes twice. */
static char last[ARCHIVE_NAME_MOST + 1];

/* How many more entries the archive may have. A few bytes of an archive make an entry that takes a block of a disk. */
static uint64_t entries_left = UINT64_MAX;
static bool has_too_many;

static bool count_entry(void) {
    if (entries_left > 0) {
        entries_left--;
        return true;
    }
    has_too_many = true;
    return refuse("it has too many entries");
}

static bool enter(struct dir **at, const char *name) {
    if (mkdirat((*at)->fd, name, 0700) != 0)
        return refuse_errno(name);
    struct dir *below = dirs_enter(*at, name);
    if (below == NULL)
        return refuse_errno(name);
    *at = below;
    last[0] = 0;
    return true;
}

/* `*at` becomes NULL at the end of the tree. */
static bool leave(struct dir **at) {
    if (!unpack_attributes((*at)->fd))
        return false;
    bool is_root = (*at)->above == NULL;
    snprintf(last, sizeof last, "%s", dirs_name(*at));
    *at = dirs_leave(*at);
    return is_root || *at != NULL || refuse_errno("the way back");
}

static bool unpack_entry(struct dir **at, int root, uint8_t tag) {
    static const uint8_t entries[] = {TAG_DIRECTORY, TAG_FILE, TAG_LINK, TAG_PIPE, TAG_SOCKET, TAG_WHITEOUT,
                                      TAG_ANOTHER_NAME};
    char name[ARCHIVE_NAME_MOST + 1];
    if (memchr(entries, tag, sizeof entries) == NULL)
        return refuse("tag %u is no entry", tag);
    /* Another name of a file takes no disk space of its own. */
    if ((tag != TAG_ANOTHER_NAME && !count_entry()) || !in_name(name))
        return false;
    if (strcmp(name, last) <= 0)
        return refuse("\"%s\" is out of order", name);
    memcpy(last, name, sizeof last);
    switch (tag) {
    case TAG_DIRECTORY:
        return enter(at, name);
    case TAG_FILE:
        return unpack_file((*at)->fd, name);
    case TAG_LINK:
        return unpack_link((*at)->fd, name);
    case TAG_PIPE:
        return unpack_special((*at)->fd, name, S_IFIFO);
    case TAG_SOCKET:
        return unpack_special((*at)->fd, name, S_IFSOCK);
    case TAG_WHITEOUT:
        return unpack_whiteout((*at)->fd, name);
    default:
        return unpack_another_name(root, (*at)->fd, name);
    }
}

static bool is_empty(int fd) {
    struct walk_entry entry;
    struct level *level = walk_into(NULL, fd, ".", false);
    bool empty = level != NULL && walk_next(level, &entry) == 0;
    if (level != NULL)
        walk_out(level);
    return empty;
}

static bool unpack_tree(const char *path) {
    uint8_t tag;
    if (!in_tag(&tag))
        return false;
    if (tag != TAG_TREE)
        return refuse(tag == TAG_END_OF_ALL ? "it has too few trees" : "tag %u is no tree", tag);
    struct dir *at = dirs_open_root(path);
    if (at == NULL)
        return refuse_errno(path);
    if (!is_empty(at->fd))
        return refuse("%s is not empty", path);
    int root = at->fd;
    last[0] = 0;
    while (at != NULL) {
        if (!in_tag(&tag))
            return false;
        if (tag == TAG_END ? !leave(&at) : !unpack_entry(&at, root, tag))
            return false;
    }
    return true;
}

static bool unpack_all(int count, char **paths) {
    char magic[ARCHIVE_MAGIC_SIZE];
    uint8_t tag;
    if (!in_bytes(magic, sizeof magic))
        return false;
    if (memcmp(magic, ARCHIVE_MAGIC, sizeof magic) != 0)
        return refuse("it is no archive of this kind");
    for (int i = 0; i < count; i++)
        if (!unpack_tree(paths[i]))
            return false;
    if (!in_tag(&tag))
        return false;
    if (tag != TAG_END_OF_ALL)
        return refuse(tag == TAG_TREE ? "it has too many trees" : "tag %u is no end", tag);
    return in_end();
}

int unpack_main(int argc, char **argv) {
    char *end = "";
    int first = argc > 1 && strcmp(argv[0], "--most-entries") == 0 ? 2 : 0;
    if (first > 0)
        entries_left = strtoull(argv[1], &end, 10);
    if (argc <= first || *end != 0) {
        fprintf(stderr, "Usage: atoll-guest unpack [--most-entries COUNT] DIRECTORY...\n");
        return 2;
    }
    umask(0);
    signal(SIGXFSZ, SIG_IGN);
    if (unpack_all(argc - first, argv + first))
        return 0;
    fprintf(stderr, "Cannot unpack: %s\n", refusal());
    if (has_too_many)
        return EXIT_TOO_MANY;
    return refused_for_room() ? EXIT_NO_SPACE : 1;
}
