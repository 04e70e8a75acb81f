/* Timer slack that a server has given the container and can no longer remove, because the server is gone. */
#ifndef ATOLL_LAUNCH_SLACK_H
#define ATOLL_LAUNCH_SLACK_H

#include <poll.h>

/*
 * Opens the FIFO DIR/slack, which the server has open for writing for as long as threads of the container may have
 * slack. `group`: a cgroup directory with all processes of the container, or NULL. Returns NULL, or with errno set what
 * could not be done.
 */
const char *slack_open(const char *directory, const char *group);

void slack_poll(struct pollfd *fd);

/* Gives every thread of the container the kernel's ordinary slack if the server is gone. */
void slack_answer(const struct pollfd *fd);

#endif
