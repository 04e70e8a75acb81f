/*
 * What `watch` found by looking into a new directory, until the kernel's own news of it has passed by: nothing is told
 * as created twice. A set that is full forgets, and then something may be.
 */
#ifndef ATOLL_WATCH_SEEN_H
#define ATOLL_WATCH_SEEN_H

#include <stdbool.h>
#include <stdint.h>

void seen_clear(void);
void seen_add(uint32_t node, const char *name);
/* True once for each that was added. */
bool seen_take(uint32_t node, const char *name);

#endif
