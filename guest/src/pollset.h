/* The descriptors that the loop waits for, gathered again before each wait. */
#ifndef ATOLL_POLLSET_H
#define ATOLL_POLLSET_H

#include <stdbool.h>

/* `role` distinguishes the descriptors of one subject. */
typedef void (*poll_serve)(void *subject, int role, short events);

void pollset_clear(void);
/* A negative `fd` is never ready, so that callers may add it without a condition. */
void pollset_add(int fd, short events, poll_serve serve, void *subject, int role);
/* Returns false when a signal came first. */
bool pollset_wait(int timeout_ms);
/* Calls the handlers of ready descriptors in the order of adding. They may free their subjects. */
void pollset_serve(void);
/* The subject is about to be freed: none of its handlers is called after this. */
void pollset_forget(const void *subject);

#endif
