/* Making what an archive describes, by descriptors: nothing that is there already is ever written to or followed. */
#ifndef ATOLL_UNPACK_NODES_H
#define ATOLL_UNPACK_NODES_H

#include <stdbool.h>

/* The rest of an entry, after its name. `root`: of the tree. All false at a refusal. */
bool unpack_file(int at, const char *name);
bool unpack_link(int at, const char *name);
/* `type`: S_IFIFO or S_IFSOCK. */
bool unpack_special(int at, const char *name, unsigned type);
bool unpack_whiteout(int at, const char *name);
bool unpack_another_name(int root, int at, const char *name);
/* Attributes and extended attributes of what was filled. */
bool unpack_attributes(int fd);

#endif
