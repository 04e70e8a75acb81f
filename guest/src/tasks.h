/* Counts processes and threads as the limit on them does. */
#ifndef ATOLL_TASKS_H
#define ATOLL_TASKS_H

#include <stdint.h>

#include "wire.h"

struct task_counts {
    /* The number of all, without the guest. */
    uint32_t all;
    /* An upper bound of the number of the user who has the most; the guest counts for its own user. */
    uint32_t most_of_one_user;
};

/* Must be called before anything is started. */
void tasks_init(void);
/* Does not count what the streams in `without`, a `u32` each, have started. */
struct task_counts tasks_count(struct reader without);

#endif
