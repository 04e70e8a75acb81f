#include "tasks.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "procfs.h"

/* The kernel's own count is of this sandbox alone, as gVisor's is; that of a host is of all that it runs. */
static bool is_reported_by_kernel;

/* Users that are told apart. All further ones count as one, which has no fewer than any of them. */
#define MOST_USERS 64

struct census {
    /* The streams whose processes are passed over. */
    struct reader without;
    uint32_t all;
    int users;
    struct {
        uid_t id;
        uint32_t tasks;
    } user[MOST_USERS];
};

static void add(struct census *census, uid_t id, uint32_t tasks) {
    int at = 0;
    while (at < census->users && census->user[at].id != id)
        at++;
    if (at == MOST_USERS)
        at--;
    if (at == census->users) {
        census->users++;
        census->user[at].id = id;
    }
    census->user[at].tasks += tasks;
}

static bool is_passed_over(struct reader without, const struct proc_info *info) {
    if (reader_left(&without) == 0)
        return false;
    /* It has no environment any more. Whoever has to reap it is counted, or passed over. */
    if (info->zombie)
        return true;
    uint32_t stream = procfs_stream(info->pid);
    while (stream != 0 && reader_left(&without) > 0)
        if (read_u32(&without) == stream)
            return true;
    return false;
}

static bool count_process(pid_t pid, void *context) {
    struct census *census = context;
    struct proc_info info;
    struct stat owner;
    char name[16];
    snprintf(name, sizeof name, "%d", pid);
    if (!procfs_info(pid, &info) || is_passed_over(census->without, &info))
        return true;
    if (fstatat(procfs_fd(), name, &owner, 0) != 0)
        return true;
    census->all += info.threads;
    add(census, owner.st_uid, info.threads);
    return true;
}

static struct task_counts count_all(struct reader without) {
    struct census census = {.without = without};
    add(&census, getuid(), 1);
    procfs_each(count_process, &census);
    struct task_counts counts = {.all = census.all};
    for (int at = 0; at < census.users; at++)
        if (census.user[at].tasks > counts.most_of_one_user)
            counts.most_of_one_user = census.user[at].tasks;
    return counts;
}

/* The guest included; 0 when it cannot be had. */
static uint32_t reported_by_kernel(void) {
    struct sysinfo info;
    return sysinfo(&info) == 0 ? info.procs : 0;
}

void tasks_init(void) {
    is_reported_by_kernel = getpid() == 1 && reported_by_kernel() == 1;
}

struct task_counts tasks_count(struct reader without) {
    uint32_t told = is_reported_by_kernel && reader_left(&without) == 0 ? reported_by_kernel() : 0;
    /* What gVisor keeps of every process that was looked at makes each checkpoint larger and slower: none is looked
     * at without need. */
    return told == 0 ? count_all(without) : (struct task_counts){.all = told - 1, .most_of_one_user = told};
}
