#include "pack_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

static uint8_t window[ARCHIVE_WINDOW];

static bool read_window(int fd, off_t start, size_t length) {
    for (size_t filled = 0; filled < length;) {
        ssize_t n = pread(fd, window + filled, length - filled, start + (off_t)filled);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ESTALE;
        if (n <= 0)
            return false;
        filled += (size_t)n;
    }
    return true;
}

static bool is_zero(size_t at, size_t length) {
    static const uint8_t zeros[ARCHIVE_BLOCK];
    return memcmp(window + at, zeros, length) == 0;
}

static size_t block_at(size_t at, size_t length) {
    return length - at < ARCHIVE_BLOCK ? length - at : ARCHIVE_BLOCK;
}

static void write_chunks(struct out *out, off_t start, size_t length) {
    for (size_t at = 0, end; at < length; at = end) {
        end = at + block_at(at, length);
        if (is_zero(at, end - at))
            continue;
        while (end < length && !is_zero(end, block_at(end, length)))
            end += block_at(end, length);
        out_tag(out, TAG_CHUNK);
        out_u64(out, (uint64_t)start + at);
        out_u32(out, (uint32_t)(end - at));
        out_bytes(out, window + at, end - at);
    }
}

bool pack_contents(struct out *out, int fd, const struct stat *info) {
    bool has_holes = (off_t)info->st_blocks * 512 < info->st_size;
    for (off_t at = 0, end; at < info->st_size; at = end) {
        off_t data = has_holes ? lseek(fd, at, SEEK_DATA) : at;
        if (data < 0 && errno == ENXIO)
            return true;
        /* On a filesystem that cannot report holes, the file is read from start to end. */
        if (data >= info->st_size)
            return true;
        if (data > at)
            at = data - data % ARCHIVE_BLOCK;
        end = at - at % ARCHIVE_WINDOW + ARCHIVE_WINDOW;
        if (end > info->st_size)
            end = info->st_size;
        if (!read_window(fd, at, (size_t)(end - at)))
            return false;
        write_chunks(out, at, (size_t)(end - at));
    }
    return true;
}

bool pack_xattrs(struct out *out, int fd) {
    static char names[ARCHIVE_XATTR_MOST], value[ARCHIVE_XATTR_MOST];
    static char *kept[ARCHIVE_XATTR_MOST / 2];
    uint16_t count = 0;
    ssize_t length = flistxattr(fd, names, sizeof names);
    if (length < 0 && errno != ENOTSUP)
        return false;
    for (char *name = names; name < names + length; name += strlen(name) + 1)
        if (archive_keeps_xattr(name))
            kept[count++] = name;
    qsort(kept, count, sizeof kept[0], archive_compare_names);
    out_u16(out, count);
    for (int i = 0; i < count; i++) {
        ssize_t size = fgetxattr(fd, kept[i], value, sizeof value);
        if (size < 0)
            return false;
        out_name(out, kept[i]);
        out_u32(out, (uint32_t)size);
        out_bytes(out, value, (size_t)size);
    }
    return true;
}
