/* This host tool merges two adjacent layers of an overlay into one. */
#ifndef ATOLL_MERGE_H
#define ATOLL_MERGE_H

#include <stdbool.h>
#include <sys/stat.h>

int merge_main(int argc, char **argv);

/* Says whether the directory is opaque: overlayfs then shows nothing of the layers below it. */
bool merge_is_opaque(int fd);
bool merge_set_opaque(int fd);

/*
 * Copies a file that is no directory, with owner, mode, times and extended attributes. Further names of a file become
 * links to its first copy, which stays in directory `links` during the merge. Returns false with errno on failure.
 */
bool merge_copy_node(int from, const char *name, const struct stat *info, int to, int links);
/* Copies the attributes of a directory that exists already. The caller copies its contents first, because that
 * changes its times. */
bool merge_copy_attributes(int from, const struct stat *info, int to);

#endif
