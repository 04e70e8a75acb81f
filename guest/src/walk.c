#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct level *walk_into(struct level *above, int parent, const char *name, bool follow) {
    struct level *level = malloc(sizeof *level);
    if (level == NULL)
        return NULL;
    level->fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    if (level->fd < 0) {
        int error = errno;
        free(level);
        errno = error;
        return NULL;
    }
    level->above = above;
    level->path_length = 0;
    level->filled = level->next = 0;
    snprintf(level->name, sizeof level->name, "%s", name);
    return level;
}

struct level *walk_out(struct level *level) {
    struct level *above = level->above;
    close(level->fd);
    free(level);
    return above;
}

void walk_out_of_all(struct level *level) {
    while (level != NULL)
        level = walk_out(level);
}

int walk_next(struct level *level, struct walk_entry *entry) {
    for (;;) {
        if (level->next >= level->filled) {
            ssize_t n = getdents64(level->fd, level->buffer, sizeof level->buffer);
            if (n <= 0)
                return (int)n;
            level->filled = (int)n;
            level->next = 0;
        }
        struct dirent64 *found = (struct dirent64 *)(level->buffer + level->next);
        level->next += found->d_reclen;
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        *entry = (struct walk_entry){found->d_name, found->d_type};
        return 1;
    }
}

void walk_again(struct level *level) {
    lseek(level->fd, 0, SEEK_SET);
    level->filled = level->next = 0;
}

void walk_allow_depth(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}
