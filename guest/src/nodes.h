/* Finds the pipes and sockets that are directly in a directory. */
#ifndef ATOLL_NODES_H
#define ATOLL_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "wire.h"

struct nodes_search {
    /* The directory that relative paths start from. */
    int root;
    /* The search also writes back the times of directories that have pipes or sockets, so that the host knows them. */
    bool is_synced;
    /* How many more files may be looked at before the search fails with E2BIG. */
    size_t left;
    /* Called for each pipe and socket, with its path. Returns 0, or an errno, which ends the search. */
    int (*report)(const struct stat *info, const char *path, size_t length);
};

/* Searches one directory. A path that is no directory, or no longer one, has nothing in it; nor has a directory
 * whose inode was last changed at `changed`. Returns 0 or an errno. */
int nodes_in(struct nodes_search *search, const char *directory, int64_t changed);

/* Answers NODES with the pipes and sockets in the directories that the request names, or FAILED with E2BIG where
 * that would take long. */
void nodes_answer(uint32_t id, struct reader *request);

#endif
