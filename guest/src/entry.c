#include "entry.h"

#include "wire.h"

#define ENTRY_FIXED (1 + 4 * 4 + 8 * 3)

static char type_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return 'd';
    case S_IFLNK:
        return 'l';
    case S_IFIFO:
        return 'p';
    case S_IFSOCK:
        return 's';
    case S_IFCHR:
        return 'c';
    case S_IFBLK:
        return 'b';
    default:
        return 'f';
    }
}

size_t entry_size(size_t name_length, size_t target_length) {
    return ENTRY_FIXED + 8 + name_length + target_length;
}

uint8_t *entry_put(uint8_t *to, const struct stat *info, const char *name, size_t name_length, const char *target,
                   size_t target_length) {
    int64_t modified = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
    to = put_u8(to, (uint8_t)type_of(info->st_mode));
    to = put_u32(to, info->st_mode & 07777);
    to = put_u32(to, info->st_uid);
    to = put_u32(to, info->st_gid);
    to = put_u32(to, (uint32_t)info->st_nlink);
    to = put_u64(to, (uint64_t)info->st_size);
    to = put_u64(to, info->st_ino);
    to = put_u64(to, (uint64_t)modified);
    to = put_text(to, name, name_length);
    return put_text(to, target, target_length);
}
