#ifndef ATOLL_HOLDERS_H
#define ATOLL_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* Answers HELD_BY with the processes that have the file deleted at `path` open, mapped or as their working
 * directory. A new file at the same path does not count. With `end`, each of these processes is sent SIGKILL when it
 * is found. */
void deleted_files_answer(uint32_t id, struct text path, bool end);

#endif
