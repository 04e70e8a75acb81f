/* Reads an untrusted archive: everything has a bound, and what does not fit is refused with a reason. */
#ifndef ATOLL_UNPACK_IN_H
#define ATOLL_UNPACK_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "archive.h"

/* Stores why the archive is refused, unless a reason is stored already, and returns false. */
__attribute__((format(printf, 1, 2))) bool refuse(const char *why, ...);
/* Does the same for a system call that failed, with errno. */
bool refuse_errno(const char *what);
/* The disk is full, which is not the archive's fault. */
bool refused_for_room(void);
/* Returns the reason, empty if nothing was refused. */
const char *refusal(void);

/* All of these return false at a refusal. */
bool in_bytes(void *to, size_t length);
bool in_u16(uint16_t *value);
bool in_u32(uint32_t *value);
bool in_u64(uint64_t *value);
bool in_tag(uint8_t *tag);
/* Reads a name. It is ended by NUL; `to` has room for ARCHIVE_NAME_MOST bytes and the NUL. */
bool in_name(char *to);
/* Reads 1 to `most` bytes without NUL, and ends them by NUL; `to` has room for that. */
bool in_text(const char *what, char *to, size_t most);
bool in_attributes(struct stat *info);
bool in_end(void);

#endif
