/*
 * Removes what a killed tool leaves behind. `write` sends the path of its temporary file on a pipe before it makes that
 * file. When the tool is killed, init removes the file with the rights of the tool's user, who could have sent any
 * path.
 */
#ifndef ATOLL_UNDO_H
#define ATOLL_UNDO_H

#include <stdbool.h>

#include "user.h"

struct undo;

/* Returns NULL with errno on failure. `tool_end` is the descriptor for the tool, which the caller closes. */
struct undo *undo_new(const struct user *user, int *tool_end);
void undo_run(struct undo *undo);
void undo_free(struct undo *undo);

#endif
