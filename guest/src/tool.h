/*
 * File operations as programs of their own. Init starts them as the user who asks, so they may block and be killed, and
 * the kernel checks their permissions. Each returns its exit code: 0 or an errno.
 */
#ifndef ATOLL_TOOL_H
#define ATOLL_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The descriptor on which a tool writes what init must remove if the tool is killed; see undo.h. */
#define TOOL_UNDO_FD 3

/* `argv[0]` is the tool's name. */
int tool_main(int argc, char **argv);

int tool_stat(char **arguments);
int tool_list(char **arguments);
int tool_read(char **arguments);
int tool_write(char **arguments);
int tool_mkdir(char **arguments);
int tool_rename(char **arguments);
int tool_remove(char **arguments);
int tool_watch(char **arguments);
int tool_nodes(char **arguments);
int tool_mknodes(char **arguments);

/* Prints one line on stderr and returns `error`. */
__attribute__((format(printf, 2, 3))) int tool_fail(int error, const char *what, ...);
bool tool_number(const char *text, int base, int64_t *number);
/* Makes the missing directories above `path`. Returns 0 or an errno. */
int tool_make_parents(const char *path);

/* Records on stdout, gathered into large writes. `record_start` returns `size` bytes to fill, all of which are then
 * part of the stream. */
uint8_t *record_start(size_t size);
/* Returns 0 or an errno. */
int record_flush(void);
int write_all(int fd, const void *bytes, size_t length);

#endif
