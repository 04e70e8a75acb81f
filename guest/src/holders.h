#ifndef ATOLL_HOLDERS_H
#define ATOLL_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* Answers HELD_BY with the processes that have the file at `path` open or mapped, also if it is deleted. With `end` each was sent SIGKILL when it was found to. */
void holders_answer(uint32_t id, struct text path, bool end);

#endif
