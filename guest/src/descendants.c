#include "descendants.h"

#include <signal.h>
#include <string.h>

#include "procfs.h"

#define MOST 4096
#define ROUNDS 16

struct candidate {
    struct proc_info info;
    bool follows;
};

struct search {
    uint32_t stream;
    pid_t leader;
    struct candidate *found;
    int count;
};

static struct candidate table[MOST];
static pid_t signalled[MOST], found_now[MOST];

/* A process may have lost the mark, the session or its parent, but hardly all three. */
static bool look_at(pid_t pid, void *context) {
    struct search *search = context;
    struct candidate *c = &search->found[search->count];
    if (!procfs_info(pid, &c->info) || c->info.zombie)
        return true;
    c->follows = c->info.group == search->leader || c->info.session == search->leader || pid == search->leader ||
                 procfs_stream(pid) == search->stream;
    search->count++;
    return search->count < MOST;
}

static bool follows(const struct search *search, pid_t pid) {
    for (int i = 0; i < search->count; i++)
        if (search->found[i].info.pid == pid)
            return search->found[i].follows;
    return false;
}

/* Marks the descendants of marked processes. */
static void spread(struct search *search) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (int i = 0; i < search->count; i++) {
            struct candidate *c = &search->found[i];
            if (!c->follows && follows(search, c->info.parent))
                c->follows = changed = true;
        }
    }
}

/* Signals the processes that were not in the list of the last round, and stores the new list. Returns how many were
 * new. */
static int signal_new(const struct search *search, int signal, int *signalled_count) {
    int fresh = 0, listed = 0;
    for (int i = 0; i < search->count; i++) {
        const struct proc_info *info = &search->found[i].info;
        if (!search->found[i].follows)
            continue;
        bool known = false;
        for (int n = 0; n < *signalled_count && !known; n++)
            known = signalled[n] == info->pid;
        if (!known && signal != 0 && info->group != search->leader)
            kill(info->pid, signal);
        fresh += known ? 0 : 1;
        found_now[listed++] = info->pid;
    }
    memcpy(signalled, found_now, (size_t)listed * sizeof signalled[0]);
    *signalled_count = listed;
    return fresh;
}

int descendants_signal(uint32_t stream, pid_t leader, int signal) {
    int living = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct search search = {.stream = stream, .leader = leader, .found = table, .count = 0};
        procfs_each(look_at, &search);
        spread(&search);
        int fresh = signal_new(&search, signal, &living);
        /* A child that was started before its parent was killed is found in the next round. */
        if (signal != SIGKILL || fresh == 0)
            break;
    }
    return living;
}

static bool in_group(pid_t pid, void *context) {
    struct search *search = context;
    struct proc_info info;
    if (procfs_info(pid, &info) && !info.zombie && info.group == search->leader)
        search->count++;
    return search->count == 0;
}

bool group_lives(pid_t leader) {
    struct search search = {.leader = leader, .count = 0};
    procfs_each(in_group, &search);
    return search.count > 0;
}
