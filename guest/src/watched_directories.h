/* The directories that `watch` watches: found by their inotify watch, with their names and places in the tree. */
#ifndef ATOLL_WATCHED_DIRECTORIES_H
#define ATOLL_WATCHED_DIRECTORIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODES_MOST 65536
#define NODE_NONE UINT32_MAX

/* Number 0 is the watched path itself. Numbers stay valid until their node is dropped. */
void watched_clear(void);
/* Returns NODE_NONE when there are too many, or no memory. */
uint32_t watched_add(int watch, uint32_t parent, const char *name);
uint32_t watched_of_watch(int watch);
uint32_t watched_child(uint32_t parent, const char *name);
void watched_drop(uint32_t node);
/* Renames a node without changing its watch, because its directory was renamed. Returns false when there is no
 * memory. */
bool watched_move(uint32_t node, uint32_t parent, const char *name);

/* Takes a renamed node and everything below it out of the tree, until the node is found again or dropped. */
void watched_detach(uint32_t node, uint32_t cookie);
uint32_t watched_detached(uint32_t cookie);
bool watched_is_detached(uint32_t node);
/* Calls `forget` with every watch of a detached node, and drops the nodes. */
void watched_drop_detached(void (*forget)(int watch));

/* Writes the path relative to the watched one, with `name` (may be NULL) after it. Returns false when it does not
 * fit. */
bool watched_path(uint32_t node, const char *name, char *path, size_t size);

#endif
