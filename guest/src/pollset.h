/* What the loop waits for, gathered anew before each wait. */
#ifndef ATOLL_POLLSET_H
#define ATOLL_POLLSET_H

#include <stdbool.h>

/* `role` tells the descriptors of one subject apart. */
typedef void (*poll_serve)(void *subject, int role, short events);

void pollset_clear(void);
/* A negative `fd` is waited for in vain, so that it may be added without a condition. */
void pollset_add(int fd, short events, poll_serve serve, void *subject, int role);
/* False when a signal came first. */
bool pollset_wait(int timeout_ms);
/* Calls the servers of what is ready, in the order of adding. They may free their subjects. */
void pollset_serve(void);
/* The subject is about to go: what else was ready of it is not served any more. */
void pollset_forget(const void *subject);

#endif
