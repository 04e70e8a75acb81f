/* What /proc says about the processes inside. */
#ifndef ATOLL_PROCFS_H
#define ATOLL_PROCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_info {
    pid_t pid, parent, group, session;
    /* At least 1, also of a zombie. */
    uint32_t threads;
    bool zombie;
};

/* Pins /proc open, so that nothing that is later mounted over it is looked at. */
void procfs_init(void);
int procfs_fd(void);
/* Calls `visit` for every process but the guest, until it returns false. */
void procfs_each(bool (*visit)(pid_t pid, void *context), void *context);
/* False when the process is gone. */
bool procfs_info(pid_t pid, struct proc_info *info);
/* The stream that started the process, by the ATOLL_STREAM in its environment; 0 when it has none. */
uint32_t procfs_stream(pid_t pid);
/* Reads up to `size` bytes of /proc/PID/NAME; the length, or -1. */
ssize_t procfs_read(pid_t pid, const char *name, char *buffer, size_t size);

#endif
