/*
 * What a killed tool leaves behind. `write` tells the path of its temporary file on a pipe before it makes it; when the
 * tool does not come to its own end, init removes that file with the rights of the tool's user, who could have told any
 * path.
 */
#ifndef ATOLL_UNDO_H
#define ATOLL_UNDO_H

#include <stdbool.h>

#include "user.h"

struct undo;

/* NULL with errno. `tool_end` is the descriptor for the tool, to be closed by the caller. */
struct undo *undo_new(const struct user *user, int *tool_end);
void undo_run(struct undo *undo);
void undo_free(struct undo *undo);

#endif
