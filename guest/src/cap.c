#include "cap.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "procfs.h"
#include "stream.h"

/* Processes that are born while the others are visited inherit the old limit, so visits are repeated until all is quiet. */
#define ROUNDS 16

static uint64_t cap = UINT64_MAX;

struct visit {
    uint64_t before;
    bool hard;
    bool streams_limited;
    int changed;
    int error;
};

/* A hard limit that could not be raised again would outlive the cap, so without the right to do that only the soft one is set. */
static bool may_raise(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    return data[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective & CAP_TO_MASK(CAP_SYS_RESOURCE);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void cap_apply(bool *limited, struct rlimit *limit) {
    if (cap == UINT64_MAX)
        return;
    if (!*limited)
        *limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    *limited = true;
    limit->rlim_cur = least(limit->rlim_cur, cap);
    if (may_raise())
        limit->rlim_max = least(limit->rlim_max, cap);
}

/* The limit that SPAWN gave to the stream of a process. */
static uint64_t own_limit(pid_t pid) {
    struct stream *s = stream_find(procfs_stream(pid));
    return s == NULL ? UINT64_MAX : s->process.file_size_limit;
}

static bool visit_process(pid_t pid, void *context) {
    struct visit *visit = context;
    struct rlimit now;
    if (prlimit(pid, RLIMIT_FSIZE, NULL, &now) != 0)
        return true;
    uint64_t hard = now.rlim_max;
    /* A limit that is neither the old cap nor above the new one is the process's own wish and stays. */
    if (visit->hard && hard == visit->before)
        hard = visit->streams_limited ? least(cap, own_limit(pid)) : cap;
    if (visit->hard)
        hard = least(hard, cap);
    uint64_t soft = least(now.rlim_cur == visit->before ? hard : now.rlim_cur, least(hard, cap));
    if (hard == now.rlim_max && soft == now.rlim_cur)
        return true;
    struct rlimit limit = {soft, hard};
    if (prlimit(pid, RLIMIT_FSIZE, &limit, NULL) == 0)
        visit->changed++;
    else if (errno != ESRCH)
        visit->error = errno;
    return true;
}

int cap_set(uint64_t bytes) {
    struct visit visit = {.before = cap, .hard = may_raise()};
    cap = bytes;
    for (int i = 0; i < stream_count(); i++)
        if (stream_nth(i)->process.file_size_limit != UINT64_MAX)
            visit.streams_limited = true;
    for (int round = 0; round < ROUNDS; round++) {
        visit.changed = visit.error = 0;
        procfs_each(visit_process, &visit);
        if (visit.changed == 0)
            break;
    }
    return visit.error;
}
