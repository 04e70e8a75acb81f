/* Until when a container may run: a file that outlives every server, and a FIFO that says to look at it again. */
#ifndef ATOLL_LAUNCH_DEADLINE_H
#define ATOLL_LAUNCH_DEADLINE_H

#include <poll.h>
#include <stdbool.h>

/* `group`: the directory of the container's cgroup that can be frozen, or NULL. Like deadline_heed, NULL or with
 * errno set what could not be done. */
const char *deadline_open(const char *directory, const char *group);

/* Goes by what the file says now: freezes the group, or lets it run until then. */
const char *deadline_heed(bool *is_over);

/* From the first deadline on the launcher is in no group that it freezes, and whatever it starts has to enter it by
 * itself. */
bool deadline_is_watched(void);

void deadline_poll(struct pollfd fds[2]);

/* How long, in ms, to wait for these; -1: for ever. */
int deadline_patience(void);

void deadline_answer(const struct pollfd fds[2]);

#endif
