/* The time until which a container may run. It is in a file that outlives every server; a FIFO says that the file
 * has changed. */
#ifndef ATOLL_LAUNCH_DEADLINE_H
#define ATOLL_LAUNCH_DEADLINE_H

#include <poll.h>
#include <stdbool.h>

/* `group` is the directory of the container's cgroup that can be frozen, or NULL. Like deadline_apply, this returns
 * NULL, or the step that failed, with errno set. */
const char *deadline_open(const char *directory, const char *group);

/* Applies what the file says now: freezes the group, or lets it run until the deadline. */
const char *deadline_apply(bool *is_over);

/* Says whether there ever was a deadline. From the first one on, the launcher is outside the group that it freezes,
 * and has to put every process that it starts into that group. */
bool deadline_is_watched(void);

void deadline_poll(struct pollfd fds[2]);

/* Returns how many milliseconds to wait for these descriptors; -1 means no limit. */
int deadline_timeout(void);

void deadline_answer(const struct pollfd fds[2]);

#endif
