/* Writes the contents and the extended attributes of a file. */
#ifndef ATOLL_PACK_FILE_H
#define ATOLL_PACK_FILE_H

#include <stdbool.h>

#include "pack_out.h"

/* Writes `size` bytes of an open file in chunks. Returns false with errno; ESTALE means that the file has become
 * shorter. */
bool pack_contents(struct out *out, int fd, const struct stat *info);
/* Returns false with errno on failure. */
bool pack_xattrs(struct out *out, int fd);

#endif
