/*
 * The host's side: directory trees as one stream of bytes, the same bytes for the same files whenever and wherever they
 * are read. docs/transfer.md has the format. A tree is nested in the stream as it is on disk, so there are no paths
 * that could lead out of it.
 */
#ifndef ATOLL_ARCHIVE_H
#define ATOLL_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define ARCHIVE_MAGIC "atollpk1"
#define ARCHIVE_MAGIC_SIZE 8

/* How a tool of the host says that there is no room for what it should write. */
#define EXIT_NO_SPACE 4
/* And that an archive has more entries than it may have. */
#define EXIT_TOO_MANY 5

enum archive_tag {
    TAG_TREE = 'T',
    TAG_DIRECTORY = 'D',
    TAG_FILE = 'F',
    TAG_CHUNK = 'C',
    TAG_LINK = 'L',
    TAG_PIPE = 'P',
    TAG_SOCKET = 'S',
    TAG_WHITEOUT = 'W',
    TAG_ANOTHER_NAME = 'H',
    TAG_END = 'E',
    TAG_END_OF_ALL = 'Z',
};

/* What is zero in whole blocks of a file is not in the archive, whether it was a hole or not. */
#define ARCHIVE_BLOCK 4096
/* No chunk crosses a multiple of this. */
#define ARCHIVE_WINDOW (1 << 20)

#define ARCHIVE_NAME_MOST 255
#define ARCHIVE_TARGET_MOST 4095
/* Of the names from the tree's root down to a file. */
#define ARCHIVE_PATH_MOST (1 << 20)
/* As much as Linux allows for all names together, and for one value. */
#define ARCHIVE_XATTR_MOST 65536

/* uid, gid, mode, seconds and nanoseconds of the last change. */
#define ARCHIVE_ATTRIBUTES_SIZE (4 + 4 + 2 + 8 + 4)

int pack_main(int argc, char **argv);
int stamp_main(int argc, char **argv);
int unpack_main(int argc, char **argv);

/* One component: neither empty nor `.` nor `..`, without slashes and NULs. */
bool archive_name_ok(const char *name, size_t length);
/* Extended attributes that belong to the files. All others are notes of this machine, and neither written nor
 * accepted. */
bool archive_keeps_xattr(const char *name);
/* For `qsort`: by bytes. */
int archive_compare_names(const void *a, const void *b);
bool archive_is_whiteout(const struct stat *info);

#endif
