/*
 * The largest file that processes inside may write, set by the host while the disk runs short. It is a soft limit,
 * because no kernel that matters lets a hard one of another process be raised again. A process may raise its own soft
 * limit; once one is seen to have done that, everything that runs gets a hard limit, which some of it may then have to
 * keep.
 */
#ifndef ATOLL_CAP_H
#define ATOLL_CAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Narrows the RLIMIT_FSIZE of a process to be. */
void cap_apply(bool *limited, struct rlimit *limit);
/* Sets every process but the guest; UINT64_MAX lifts the cap. 0 or an errno. */
int cap_set(uint64_t bytes);
/* Looks, when it is time, for processes that raised their limit. */
void cap_tick(uint64_t now_ms);
uint64_t cap_due(void);

#endif
