/* The largest file that processes inside may write, set by the host while the disk runs short. */
#ifndef ATOLL_CAP_H
#define ATOLL_CAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Narrows the RLIMIT_FSIZE of a process to be. */
void cap_apply(bool *limited, struct rlimit *limit);
/* Sets every process but the guest; UINT64_MAX lifts the cap. 0 or an errno. */
int cap_set(uint64_t bytes);

#endif
