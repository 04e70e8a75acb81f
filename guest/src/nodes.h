/* The pipes and sockets that are directly in a directory. */
#ifndef ATOLL_NODES_H
#define ATOLL_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "wire.h"

struct nodes_search {
    /* The directory that paths begin in. */
    int root;
    /* Directories of what is found are known to the host afterwards, with their times. */
    bool is_synced;
    /* How many files may be looked at before it is E2BIG. */
    size_t left;
    /* Called for each, with its path. 0 or an errno, which ends the search. */
    int (*report)(const struct stat *info, const char *path, size_t length);
};

/* What is no directory, or none any more, has nothing in it; nor has one whose inode was changed last at `changed`.
 * 0 or an errno. */
int nodes_in(struct nodes_search *search, const char *directory, int64_t changed);

/* Answers NODES with those in the directories that the request names, or FAILED with E2BIG where that would take
 * long. */
void nodes_answer(uint32_t id, struct reader *request);

#endif
