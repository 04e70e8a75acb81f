/* How many processes and threads there are, as the limit on them counts. */
#ifndef ATOLL_TASKS_H
#define ATOLL_TASKS_H

#include <stdint.h>

#include "wire.h"

struct task_counts {
    /* Without the guest. */
    uint32_t all;
    /* Of the user who has the most, at most; the guest is one of its user's. */
    uint32_t most_of_one_user;
};

/* Before anything is started. */
void tasks_init(void);
/* Passes over what the streams in `without`, a `u32` each, have started. */
struct task_counts tasks_count(struct reader without);

#endif
