/*
 * What `watch` found by reading a new directory, until the kernel's own event for it has passed, so that no file is
 * reported as created twice. A full set forgets entries, and then a file may be reported twice.
 */
#ifndef ATOLL_WATCH_SEEN_H
#define ATOLL_WATCH_SEEN_H

#include <stdbool.h>
#include <stdint.h>

void seen_clear(void);
void seen_add(uint32_t node, const char *name);
/* Returns true once for each name that was added. */
bool seen_take(uint32_t node, const char *name);

#endif
