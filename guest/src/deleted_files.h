#ifndef ATOLL_HOLDERS_H
#define ATOLL_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* Answers HELD_BY with the processes that have open, mapped, or work in, what was deleted at `path`, and not what is
 * there now. With `end` each was sent SIGKILL when it was found to. */
void deleted_files_answer(uint32_t id, struct text path, bool end);

#endif
