/* Makes what an archive describes, by descriptors: existing files are never written to and links are never followed. */
#ifndef ATOLL_UNPACK_NODES_H
#define ATOLL_UNPACK_NODES_H

#include <stdbool.h>

/* Each of these reads the rest of an entry, after its name, and returns false at a refusal. `root` is the root of
 * the tree. */
bool unpack_file(int at, const char *name);
bool unpack_link(int at, const char *name);
/* `type` is S_IFIFO or S_IFSOCK. */
bool unpack_special(int at, const char *name, unsigned type);
bool unpack_whiteout(int at, const char *name);
bool unpack_another_name(int root, int at, const char *name);
/* Reads attributes and extended attributes and sets them on an open file. */
bool unpack_attributes(int fd);

#endif
