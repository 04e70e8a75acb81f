/* What is in a file and beside its name. */
#ifndef ATOLL_PACK_FILE_H
#define ATOLL_PACK_FILE_H

#include <stdbool.h>

#include "pack_out.h"

/* Writes `size` bytes of an open file in chunks. False with errno; ESTALE: it has become shorter. */
bool pack_contents(struct out *out, int fd, const struct stat *info);
/* False with errno. */
bool pack_xattrs(struct out *out, int fd);

#endif
