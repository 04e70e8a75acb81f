#ifndef ATOLL_HOLDERS_H
#define ATOLL_HOLDERS_H

#include <stdint.h>

#include "wire.h"

/* Answers HELD_BY with the processes that have the file at `path` open or mapped, also if it is deleted. */
void holders_answer(uint32_t id, struct text path);

#endif
