/* Encodes files as the records that docs/guest-protocol.md describes. */
#ifndef ATOLL_ENTRY_H
#define ATOLL_ENTRY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* The longest name in an entry. A longer path could not be given back to the kernel in one piece. */
#define ENTRY_NAME_MOST 8000

size_t entry_size(size_t name_length, size_t target_length);
/* Writes `entry_size` bytes and returns what follows them. */
uint8_t *entry_put(uint8_t *to, const struct stat *info, const char *name, size_t name_length, const char *target,
                   size_t target_length);

#endif
