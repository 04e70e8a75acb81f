#ifndef ATOLL_CLOCK_H
#define ATOLL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns milliseconds of the monotonic clock, never 0, so that 0 can mean "no deadline". */
static inline uint64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

/* Returns the earlier of two times, where 0 means never. */
static inline uint64_t sooner(uint64_t a, uint64_t b) {
    return a == 0 || (b != 0 && b < a) ? b : a;
}

#endif
