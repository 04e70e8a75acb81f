/* Reads directories one level at a time, without following links and with bounded memory. */
#ifndef ATOLL_WALK_H
#define ATOLL_WALK_H

#include <stdbool.h>
#include <sys/types.h>

#define WALK_BUFFER 8192

struct level {
    struct level *above;
    int fd;
    /* The length of the path that belongs to this level, for callers who keep one. */
    size_t path_length;
    int filled, next;
    /* The name of this level in the one above. For the first level this is only the start, if the path is long. */
    char name[256];
    _Alignas(8) char buffer[WALK_BUFFER];
};

struct walk_entry {
    const char *name;
    /* One of DT_*; DT_UNKNOWN when the filesystem does not say. */
    unsigned char type;
};

/* Opens directory `name` in `parent` (AT_FDCWD: as a path) and puts it on top of `above`. Returns NULL with errno on
 * failure. */
struct level *walk_into(struct level *above, int parent, const char *name, bool follow);
/* Closes the top and returns what was below it. */
struct level *walk_out(struct level *level);
void walk_out_of_all(struct level *level);
/* Returns 1 with an entry, 0 at the end, -1 with errno. `.` and `..` are left out. */
int walk_next(struct level *level, struct walk_entry *entry);
void walk_again(struct level *level);
/* Raises the limit of descriptors, because a tree may be deeper than the default limit allows. */
void walk_allow_depth(void);

#endif
