/* Reading an archive from a stranger: everything has a bound, and whatever does not fit is refused with a reason. */
#ifndef ATOLL_UNPACK_IN_H
#define ATOLL_UNPACK_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "archive.h"

/* Notes why the archive is refused, unless something was noted before, and returns false. */
__attribute__((format(printf, 1, 2))) bool refuse(const char *why, ...);
/* The same for a system call that failed, with errno. */
bool refuse_errno(const char *what);
/* The disk is full, which is no fault of the archive. */
bool refused_for_room(void);
/* Empty: nothing was refused. */
const char *refusal(void);

/* All false at a refusal. */
bool in_bytes(void *to, size_t length);
bool in_u16(uint16_t *value);
bool in_u32(uint32_t *value);
bool in_u64(uint64_t *value);
bool in_tag(uint8_t *tag);
/* Ended by NUL, `to` has room for ARCHIVE_NAME_MOST and it. */
bool in_name(char *to);
/* Of 1 to `most` bytes without NUL, ended by one; `to` has room for it. */
bool in_text(const char *what, char *to, size_t most);
bool in_attributes(struct stat *info);
bool in_end(void);

#endif
