#include "archive.h"

#include <string.h>

bool archive_name_ok(const char *name, size_t length) {
    if (length < 1 || length > ARCHIVE_NAME_MOST || memchr(name, '/', length) != NULL ||
        memchr(name, 0, length) != NULL)
        return false;
    return !(name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')));
}

bool archive_keeps_xattr(const char *name) {
    static const char *const kept[] = {"security.capability", "system.posix_acl_access", "system.posix_acl_default",
                                       "trusted.overlay.opaque"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (strcmp(name, kept[i]) == 0)
            return true;
    return strncmp(name, "user.", 5) == 0 && name[5] != 0;
}

int archive_compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool archive_is_whiteout(const struct stat *info) {
    return S_ISCHR(info->st_mode) && info->st_rdev == 0;
}
