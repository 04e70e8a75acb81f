#include "tasks.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "procfs.h"

/* Under gVisor the kernel's own count covers this sandbox alone; on a host it covers the whole machine. */
static bool is_reported_by_kernel;

/* The number of users that are counted separately. All further ones count as one user, which has no fewer tasks than
 * any of them. */
#define MOST_USERS 64

struct census {
    /* The streams whose processes are not counted. */
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
    /* A zombie has no environment any more. The process that has to reap it is counted, or not counted. */
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

/* Returns the count with the guest included; 0 when the kernel does not report it. */
static uint32_t reported_by_kernel(void) {
    struct sysinfo info;
    return sysinfo(&info) == 0 ? info.procs : 0;
}

void tasks_init(void) {
    is_reported_by_kernel = getpid() == 1 && reported_by_kernel() == 1;
}

struct task_counts tasks_count(struct reader without) {
    uint32_t reported = is_reported_by_kernel && reader_left(&without) == 0 ? reported_by_kernel() : 0;
    /* gVisor keeps data of every process that was looked at, which makes each checkpoint larger and slower, so no
     * process is looked at without need. */
    return reported == 0 ? count_all(without) : (struct task_counts){.all = reported - 1, .most_of_one_user = reported};
}
