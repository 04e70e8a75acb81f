/* The host's side: makes one layer of an overlay out of two that lie on each other. */
#ifndef ATOLL_MERGE_H
#define ATOLL_MERGE_H

#include <stdbool.h>
#include <sys/stat.h>

int merge_main(int argc, char **argv);

/* How a directory says that nothing of the same name below it shows through. */
bool merge_is_opaque(int fd);
bool merge_set_opaque(int fd);

/*
 * Copies what is no directory, with owner, mode, times and extended attributes. Further names of a file become links to
 * its first copy, which is kept in directory `links` meanwhile. False with errno.
 */
bool merge_copy_node(int from, const char *name, const struct stat *info, int to, int links);
/* The same of a directory that is there already; after its contents, which change its times. */
bool merge_copy_attributes(int from, const struct stat *info, int to);

#endif
