#include "process.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "clock.h"
#include "descendants.h"
#include "host_output.h"
#include "undo.h"

#define CHECK_FIRST_MS 5
#define CHECK_MOST_MS 250
/* From this interval on, a group that still answers to kill is looked up in /proc, because it may consist of
 * zombies. */
#define CHECK_PROC_MS 40
/* A terminal cannot say how much it has to read; it has less than this. */
#define TERMINAL_MOST (1 << 20)

static void forget_groups_of(pid_t pid) {
    for (int i = 0; i < stream_count(); i++) {
        struct process *p = &stream_nth(i)->process;
        if (p->reaped && p->pid == pid)
            p->group_gone = true;
    }
}

void process_started(struct stream *s, pid_t pid, uint32_t limit_ms, uint32_t grace_ms) {
    /* The kernel reuses a number only when no group of that number is left. */
    forget_groups_of(pid);
    s->process.pid = pid;
    s->process.limit_at = limit_ms > 0 ? clock_ms() + limit_ms : 0;
    s->process.grace_ms = grace_ms;
    uint8_t payload[4];
    put_u32(payload, (uint32_t)pid);
    out_frame(ATOLL_FRAME_STARTED, s->id, payload, sizeof payload);
}

static uint64_t microseconds(struct timeval t) {
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

/* Writes everything of the EXIT payload but its position, which is not known yet. */
static void note_exit(struct process *p, int status, const struct rusage *usage) {
    bool signalled = WIFSIGNALED(status);
    uint8_t *to = p->exit;
    to = put_u8(to, signalled ? 1 : 0);
    to = put_u8(to, p->limit_reached ? 1 : 0);
    to = put_u8(to, signalled && WCOREDUMP(status) ? 1 : 0);
    to = put_u8(to, 0);
    to = put_u32(to, (uint32_t)(signalled ? WTERMSIG(status) : WEXITSTATUS(status)));
    to = put_u64(to, 0);
    to = put_u64(to, microseconds(usage->ru_utime));
    to = put_u64(to, microseconds(usage->ru_stime));
    put_u64(to, (uint64_t)usage->ru_maxrss);
}

void process_reap(void) {
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        struct stream *s = stream_of_pid(pid);
        if (s == NULL)
            continue;
        s->process.reaped = true;
        s->process.limit_at = s->process.hung_until = 0;
        note_exit(&s->process, status, &usage);
        process_settle(s);
    }
}

static void signal_group(struct process *p, int signal) {
    if (!p->group_gone && kill(-p->pid, signal) != 0 && errno == ESRCH && p->reaped)
        p->group_gone = true;
}

void process_signal(struct stream *s, int signal, uint32_t scope) {
    struct process *p = &s->process;
    /* Descendants outside the group are signalled first: they are found through their parents while those live. */
    if (scope == 1)
        descendants_signal(s->id, p->pid, signal);
    signal_group(p, signal);
    if (signal == SIGKILL && !p->exited) {
        enum exit_wait wait = scope == 1 ? WAIT_FOR_DESCENDANTS : WAIT_FOR_GROUP;
        if (wait > p->wait)
            p->wait = wait;
    }
}

/* Says whether all processes that the kill reached are gone. While the process is being killed, new descendants are
 * killed too. */
static bool all_gone(struct stream *s) {
    struct process *p = &s->process;
    int again = p->kill_at == 0 ? SIGKILL : 0;
    signal_group(p, again);
    if (p->wait == WAIT_FOR_DESCENDANTS)
        return descendants_signal(s->id, p->pid, again) == 0;
    return p->group_gone || (p->check_ms >= CHECK_PROC_MS && !group_lives(p->pid));
}

static void measure_pipes(struct stream *s) {
    for (int i = 0; i < 2; i++) {
        int bytes = 0;
        if (s->out_fd[i] < 0)
            continue;
        if (s->process.pty)
            bytes = TERMINAL_MOST;
        else if (ioctl(s->out_fd[i], FIONREAD, &bytes) != 0)
            bytes = TERMINAL_MOST;
        s->process.undrained[i] = (uint64_t)bytes;
    }
}

/* Only a tool that was killed leaves files behind; one that ends by itself has removed them. */
static void undo_leftovers(struct process *p) {
    bool killed = p->exit[0] == 1;
    if (p->undo != NULL && killed)
        undo_run(p->undo);
    undo_free(p->undo);
    p->undo = NULL;
}

void process_settle(struct stream *s) {
    struct process *p = &s->process;
    if (!p->reaped)
        return;
    if (!p->exited) {
        if (p->check_at != 0 && clock_ms() < p->check_at)
            return;
        if (!p->draining && p->wait != WAIT_FOR_NOTHING && !all_gone(s)) {
            p->check_ms = p->check_ms == 0 ? CHECK_FIRST_MS : p->check_ms * 2;
            if (p->check_ms > CHECK_MOST_MS)
                p->check_ms = CHECK_MOST_MS;
            p->check_at = clock_ms() + p->check_ms;
            return;
        }
        p->check_at = p->kill_at = 0;
        if (!p->draining) {
            measure_pipes(s);
            undo_leftovers(p);
        }
        p->draining = true;
        while ((p->undrained[0] > 0 || p->undrained[1] > 0) && !ring_full(&s->out))
            stream_read(s, p->undrained[0] > 0 && s->owed[0] == 0 ? 0 : p->undrained[1] > 0 ? 1 : 0);
        if (p->undrained[0] > 0 || p->undrained[1] > 0)
            return;
        p->exited = true;
        p->exit_at = s->out.produced;
        put_u64(p->exit + 8, p->exit_at);
    }
    if (s->released && stream_over(s))
        stream_free(s);
}

static void limit_reached(struct stream *s, uint64_t now_ms) {
    struct process *p = &s->process;
    p->limit_at = 0;
    p->limit_reached = true;
    if (p->grace_ms == 0) {
        process_signal(s, SIGKILL, 1);
        return;
    }
    process_signal(s, SIGTERM, 1);
    p->wait = WAIT_FOR_DESCENDANTS;
    p->kill_at = now_ms + p->grace_ms;
}

void process_tick(struct stream *s, uint64_t now_ms) {
    struct process *p = &s->process;
    if (p->limit_at != 0 && now_ms >= p->limit_at)
        limit_reached(s, now_ms);
    if (p->kill_at != 0 && now_ms >= p->kill_at) {
        p->kill_at = 0;
        process_signal(s, SIGKILL, 1);
    }
    if (p->hung_until != 0 && now_ms >= p->hung_until)
        p->hung_until = 0;
    if (p->check_at != 0 && now_ms >= p->check_at)
        process_settle(s);
}

uint64_t process_due(const struct stream *s) {
    const struct process *p = &s->process;
    return sooner(sooner(p->limit_at, p->kill_at), sooner(p->hung_until, p->check_at));
}
