/* The processes that a process started, also those that left its group. */
#ifndef ATOLL_DESCENDANTS_H
#define ATOLL_DESCENDANTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Sends `signal` (0: none) to every descendant outside the group. SIGKILL also reaches descendants that are started
 * during the call. Returns the number of living processes, in the group or not, without zombies.
 */
int descendants_signal(uint32_t stream, pid_t leader, int signal);
/* Says whether a process of the group lives that is not a zombie. */
bool group_lives(pid_t leader);

#endif
