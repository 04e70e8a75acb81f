/* The processes that a process started, also those that left its group. */
#ifndef ATOLL_FOLLOWERS_H
#define ATOLL_FOLLOWERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Sends `signal` (0: none) to every follower outside the group, and SIGKILL also to those that are born meanwhile. The
 * number that live, in the group or not, zombies left out.
 */
int followers_signal(uint32_t stream, pid_t leader, int signal);
/* Whether a process of the group lives that is not a zombie. */
bool group_lives(pid_t leader);

#endif
