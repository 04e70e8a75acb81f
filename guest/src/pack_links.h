/* The first names of files that have several names. */
#ifndef ATOLL_PACK_LINKS_H
#define ATOLL_PACK_LINKS_H

#include <stdbool.h>
#include <sys/stat.h>

/* Returns the first name that was noted for this file, or NULL. */
const char *links_find(const struct stat *info);
/* Returns false with errno on failure. */
bool links_note(const struct stat *info, const char *path, const char *name);
void links_forget_all(void);

#endif
