/* What /proc says about the processes inside. */
#ifndef ATOLL_PROCFS_H
#define ATOLL_PROCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_info {
    pid_t pid, parent, group, session;
    /* The number of threads: at least 1, also for a zombie. */
    uint32_t threads;
    bool zombie;
};

/* Opens /proc and keeps it open, so that nothing that is mounted over it later is read. */
void procfs_init(void);
int procfs_fd(void);
/* Calls `visit` for every process but the guest, until it returns false. */
void procfs_each(bool (*visit)(pid_t pid, void *context), void *context);
/* Returns false when the process is gone. */
bool procfs_info(pid_t pid, struct proc_info *info);
/* Returns the stream that started the process, by the ATOLL_STREAM in its environment; 0 when it has none. */
uint32_t procfs_stream(pid_t pid);
/* Reads up to `size` bytes of /proc/PID/NAME. Returns the length, or -1. */
ssize_t procfs_read(pid_t pid, const char *name, char *buffer, size_t size);

#endif
