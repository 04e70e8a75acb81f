#ifndef ATOLL_INIT_H
#define ATOLL_INIT_H

/* Runs as PID 1 of a sandbox (or, for tests, as any process) and never returns. */
void init_main(void) __attribute__((noreturn));

#endif
