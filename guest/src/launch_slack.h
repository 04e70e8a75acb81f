/* Removes timer slack that a server gave to the container, when that server is gone and can no longer do it. */
#ifndef ATOLL_LAUNCH_SLACK_H
#define ATOLL_LAUNCH_SLACK_H

#include <poll.h>

/*
 * Opens the FIFO DIR/slack, which the server has open for writing for as long as threads of the container may have
 * slack. `group` is a cgroup directory with all processes of the container, or NULL. Returns NULL, or the step that
 * failed, with errno set.
 */
const char *slack_open(const char *directory, const char *group);

void slack_poll(struct pollfd *fd);

/* Gives every thread of the container the kernel's default slack if the server is gone. */
void slack_answer(const struct pollfd *fd);

#endif
