/* The guest's stdin: splits the bytes from the host into frames. */
#ifndef ATOLL_HOST_INPUT_H
#define ATOLL_HOST_INPUT_H

#include <stdbool.h>
#include <stdint.h>

void in_init(void);
/* Reads once. */
void in_read(void);
/* Handles complete frames until none is left or too many answers are queued. */
void in_pump(void);
/* Returns false while answers are queued, and for a moment after an end of file, which a FIFO without a writer
 * gives. */
bool in_wants_poll(uint64_t now_ms);
/* Accepts nothing but HELLO from now on. */
void in_resync(void);

#endif
