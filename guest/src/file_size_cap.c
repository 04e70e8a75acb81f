#include "file_size_cap.h"

#include <errno.h>

#include "clock.h"
#include "procfs.h"
#include "stream.h"

/* Processes that start during a visit inherit the old limit, so visits are repeated until one finds nothing to
 * change. */
#define ROUNDS 16
#define LOOK_MS 1000

static uint64_t cap = UINT64_MAX;
static bool hard;
static uint64_t look_at;

struct visit {
    /* The cap that was in force until now. */
    uint64_t before;
    int changed, error;
};

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
    if (hard)
        limit->rlim_max = least(limit->rlim_max, cap);
}

/* Returns the limit that SPAWN gave to the stream of a process. */
static uint64_t own_limit(pid_t pid) {
    struct stream *s = stream_find(procfs_stream(pid));
    return s == NULL ? UINT64_MAX : s->process.file_size_limit;
}

static bool change(pid_t pid, const struct rlimit *now, uint64_t soft, uint64_t most) {
    struct rlimit limit = {least(soft, most), most};
    if (limit.rlim_cur == now->rlim_cur && limit.rlim_max == now->rlim_max)
        return false;
    return prlimit(pid, RLIMIT_FSIZE, &limit, NULL) == 0;
}

static bool visit_process(pid_t pid, void *context) {
    struct visit *visit = context;
    struct rlimit now;
    errno = 0;
    if (prlimit(pid, RLIMIT_FSIZE, NULL, &now) != 0)
        return true;
    bool capped = visit->before != UINT64_MAX;
    /* A soft limit other than the old cap is the process's own choice. It stays, as far as the new cap allows. */
    bool lift = capped && now.rlim_cur == visit->before;
    uint64_t most = hard ? least(now.rlim_max, cap) : now.rlim_max;
    /* A hard limit can be raised again where the kernel lets root do that. */
    if (capped && now.rlim_max == visit->before && change(pid, &now, cap, least(cap, own_limit(pid)))) {
        visit->changed++;
        return true;
    }
    errno = 0;
    if (change(pid, &now, least(lift ? most : now.rlim_cur, cap), most))
        visit->changed++;
    else if (errno != 0 && errno != ESRCH)
        visit->error = errno;
    return true;
}

static int visit_all(uint64_t before) {
    struct visit visit = {.before = before};
    for (int round = 0; round < ROUNDS; round++) {
        visit.changed = visit.error = 0;
        procfs_each(visit_process, &visit);
        if (visit.changed == 0)
            break;
    }
    return visit.error;
}

int cap_set(uint64_t bytes) {
    uint64_t before = cap;
    cap = bytes;
    hard = hard && cap != UINT64_MAX;
    look_at = cap == UINT64_MAX || hard ? 0 : clock_ms() + LOOK_MS;
    return before == cap ? 0 : visit_all(before);
}

static bool look_for_raised(pid_t pid, void *context) {
    bool *raised = context;
    struct rlimit now;
    *raised = prlimit(pid, RLIMIT_FSIZE, NULL, &now) == 0 && now.rlim_cur > cap;
    return !*raised;
}

uint64_t cap_due(void) {
    return look_at;
}

void cap_tick(uint64_t now_ms) {
    bool raised = false;
    if (look_at == 0 || now_ms < look_at)
        return;
    procfs_each(look_for_raised, &raised);
    look_at = raised ? 0 : now_ms + LOOK_MS;
    if (raised) {
        hard = true;
        visit_all(UINT64_MAX);
    }
}
