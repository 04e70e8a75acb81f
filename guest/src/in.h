/* The guest's stdin: frames out of bytes. */
#ifndef ATOLL_IN_H
#define ATOLL_IN_H

#include <stdbool.h>
#include <stdint.h>

void in_init(void);
/* Reads once. */
void in_read(void);
/* Handles the whole frames that were read, until there are no more or too many answers are queued. */
void in_pump(void);
/* False while answers are queued up, or for a moment after an end of file, which a FIFO without a writer gives. */
bool in_wants_poll(uint64_t now_ms);
/* Accept nothing but HELLO from here on. */
void in_hunt(void);

#endif
