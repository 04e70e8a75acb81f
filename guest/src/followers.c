#include "followers.h"

#include <signal.h>
#include <string.h>

#include "procfs.h"

#define MOST 4096

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

int followers_signal(uint32_t stream, pid_t leader, int signal) {
    struct search search = {.stream = stream, .leader = leader, .found = table, .count = 0};
    procfs_each(look_at, &search);
    bool changed = true;
    while (changed) {
        changed = false;
        for (int i = 0; i < search.count; i++) {
            struct candidate *c = &search.found[i];
            if (!c->follows && follows(&search, c->info.parent))
                c->follows = changed = true;
        }
    }
    int living = 0;
    for (int i = 0; i < search.count; i++) {
        if (!search.found[i].follows)
            continue;
        living++;
        if (signal != 0 && search.found[i].info.group != leader)
            kill(search.found[i].info.pid, signal);
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
