/*
 * The largest file that processes inside may write, which the host sets while the disk is nearly full. It is a soft
 * limit, because no supported kernel lets a hard limit of another process be raised again. A process may raise its own
 * soft limit. Once a process has done that, all running processes get a hard limit, and some of them may have to keep
 * it.
 */
#ifndef ATOLL_FILE_SIZE_CAP_H
#define ATOLL_FILE_SIZE_CAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Lowers the RLIMIT_FSIZE of a process that is about to start. */
void cap_apply(bool *limited, struct rlimit *limit);
/* Sets the limit of every process but the guest; UINT64_MAX lifts the cap. Returns 0 or an errno. */
int cap_set(uint64_t bytes);
/* Looks, when it is time, for processes that raised their limit. */
void cap_tick(uint64_t now_ms);
uint64_t cap_due(void);

#endif
