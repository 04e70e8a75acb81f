/* The first names of files that have several. */
#ifndef ATOLL_PACK_LINKS_H
#define ATOLL_PACK_LINKS_H

#include <stdbool.h>
#include <sys/stat.h>

/* The first name that was noted for this file, NULL if none. */
const char *links_find(const struct stat *info);
/* False with errno. */
bool links_note(const struct stat *info, const char *path, const char *name);
void links_forget_all(void);

#endif
