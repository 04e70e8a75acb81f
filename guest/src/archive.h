/*
 * These host tools turn directory trees into one stream of bytes, which is the same for the same files whenever and
 * wherever they are read. docs/transfer.md has the format. A tree is nested in the stream as it is on disk, so there
 * are no paths that could lead out of it.
 */
#ifndef ATOLL_ARCHIVE_H
#define ATOLL_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define ARCHIVE_MAGIC "atollpk1"
#define ARCHIVE_MAGIC_SIZE 8

/* A host tool exits with this code when the disk is full. */
#define EXIT_NO_SPACE 4
/* A host tool exits with this code when an archive has more entries than the caller allows. */
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

/* The archive leaves out whole blocks of zeros, whether they were holes or not. */
#define ARCHIVE_BLOCK 4096
/* No chunk crosses a multiple of this size. */
#define ARCHIVE_WINDOW (1 << 20)

#define ARCHIVE_NAME_MOST 255
#define ARCHIVE_TARGET_MOST 4095
/* This bounds the names from the root of the tree down to a file, taken together. */
#define ARCHIVE_PATH_MOST (1 << 20)
/* Linux allows this much for all names together, and for one value. */
#define ARCHIVE_XATTR_MOST 65536

/* The attributes are uid, gid, mode, and seconds and nanoseconds of the last change. */
#define ARCHIVE_ATTRIBUTES_SIZE (4 + 4 + 2 + 8 + 4)

int pack_main(int argc, char **argv);
int stamp_main(int argc, char **argv);
int unpack_main(int argc, char **argv);

/* A name is one component: it is neither empty nor `.` nor `..`, and has no slash and no NUL. */
bool archive_name_ok(const char *name, size_t length);
/* Says whether an extended attribute belongs to the file. All others are notes of this machine, which are neither
 * written nor accepted. */
bool archive_keeps_xattr(const char *name);
/* Compares two names by their bytes, for `qsort`. */
int archive_compare_names(const void *a, const void *b);
bool archive_is_whiteout(const struct stat *info);

#endif
