#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file_size_cap.h"
#include "clock.h"
#include "dial.h"
#include "host_input.h"
#include "host_output.h"
#include "pollset.h"
#include "process.h"
#include "procfs.h"
#include "proxy.h"
#include "spawn.h"
#include "stream.h"
#include "tasks.h"

/* How often streams that have more bytes are read again before the others are served. */
#define MORE_ROUNDS 4
#define BROKEN_MS 1000
#define LONGEST_MS 60000
/* Ended children are looked for this often even without a signal: if the end of a process were missed, it would seem
 * to run for ever. */
#define LOST_SIGNAL_MS 10000

enum { ROLE_OUTPUT_1, ROLE_OUTPUT_2, ROLE_INPUT, ROLE_CONNECTING };

static bool host_spoke, child_ended;
static int child_pipe[2] = {-1, -1};

static void on_child(int signal) {
    (void)signal;
    int saved = errno;
    ssize_t written = write(child_pipe[1], "", 1);
    /* A full pipe wakes the loop just as well. */
    (void)written;
    errno = saved;
}

static void on_other(int signal) {
    (void)signal;
}

/* Installs handlers and not SIG_IGN, which exec would pass on to every process inside. */
static void catch_signals(void) {
    static const int harmless[] = {SIGPIPE, SIGHUP, SIGINT,  SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,   SIGALRM,
                                   SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ, SIGXCPU, SIGPROF, SIGVTALRM, SIGPWR};
    struct sigaction action = {.sa_handler = on_other, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
        sigaction(harmless[i], &action, NULL);
    action.sa_handler = on_child;
    action.sa_flags = SA_NOCLDSTOP;
    sigaction(SIGCHLD, &action, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Root inside could write to the host's file through /proc/1/fd/2, so that descriptor is replaced. */
static void leave_host_descriptors(void) {
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, STDERR_FILENO) < 0)
        close(STDERR_FILENO);
    /* gVisor treats the last descriptor as a signed number and refuses the usual ~0u. */
    if (syscall(SYS_close_range, 3, INT_MAX, 0) == 0)
        return;
    struct rlimit limit;
    int most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? (int)limit.rlim_cur : 65536;
    for (int fd = 3; fd < most; fd++)
        close(fd);
}

static void set_up(void) {
    leave_host_descriptors();
    umask(022);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    /* The sandbox's users must not reach the channel through /proc. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    struct rlimit inherited = {1024, 4096};
    getrlimit(RLIMIT_NOFILE, &inherited);
    struct rlimit raised = {inherited.rlim_max, inherited.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
    if (pipe2(child_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        _exit(1);
    catch_signals();
    procfs_init();
    tasks_init();
    spawn_init(&inherited);
    in_init();
    out_init();
}

static void serve_stream(void *subject, int role, short events) {
    struct stream *s = subject;
    switch (role) {
    case ROLE_OUTPUT_1:
    case ROLE_OUTPUT_2:
        stream_ready(s, role - ROLE_OUTPUT_1);
        break;
    case ROLE_CONNECTING:
        dial_ready(s);
        break;
    case ROLE_INPUT:
        if (!(events & (POLLERR | POLLHUP | POLLNVAL)))
            stream_write(s);
        else if (!stream_keep_terminal(s))
            stream_close_input(s);
        break;
    }
}

static void watch_stream(struct stream *s) {
    if (s->connecting) {
        pollset_add(s->in_fd, POLLOUT, serve_stream, s, ROLE_CONNECTING);
        return;
    }
    /* Until its verdict, an egress connection is neither read nor written. */
    if (s->egress != NULL || s->process.hung_until != 0)
        return;
    /* The output is polled even when the ring is full, to learn which output has bytes first. */
    for (int i = 0; i < 2; i++)
        if (!s->readable[i] || stream_has_turn(s, i))
            pollset_add(s->out_fd[i], POLLIN, serve_stream, s, ROLE_OUTPUT_1 + i);
    /* With no events requested, poll still reports when the reader has gone. */
    bool waiting = s->in.length > 0 || s->input == INPUT_ENDING;
    pollset_add(s->in_fd, waiting ? POLLOUT : 0, serve_stream, s, ROLE_INPUT);
}

static void serve_flag(void *subject, int role, short events) {
    (void)role;
    (void)events;
    bool *flag = subject;
    *flag = true;
}

/* Frames from the host are handled after everything else, because they may free any stream. */
static void gather_polls(uint64_t now_ms) {
    static bool writable;
    pollset_clear();
    host_spoke = child_ended = false;
    if (in_wants_poll(now_ms))
        pollset_add(STDIN_FILENO, POLLIN, serve_flag, &host_spoke, 0);
    if (out_wants_poll(now_ms))
        pollset_add(STDOUT_FILENO, POLLOUT, serve_flag, &writable, 0);
    pollset_add(child_pipe[0], POLLIN, serve_flag, &child_ended, 0);
    for (int i = 0; i < stream_count(); i++)
        watch_stream(stream_nth(i));
    proxy_watch();
}

/* Settles exits that waited for output to be read. The loop runs backwards, because a released stream may be freed. */
static void settle_streams(void) {
    for (int i = stream_count() - 1; i >= 0; i--)
        process_settle(stream_nth(i));
}

static bool read_more(void) {
    bool any = false;
    for (int i = 0; i < stream_count(); i++) {
        struct stream *s = stream_nth(i);
        for (int output = 0; output < 2; output++) {
            if (!s->readable[output] || !stream_has_turn(s, output))
                continue;
            stream_read(s, output);
            any = true;
        }
    }
    return any;
}

static void reap(void) {
    char bytes[64];
    while (read(child_pipe[0], bytes, sizeof bytes) == sizeof bytes)
        continue;
    process_reap();
}

/* The loop runs backwards, because a released stream may be freed. */
static void run_timers(uint64_t now_ms) {
    proxy_tick(now_ms);
    cap_tick(now_ms);
    for (int i = stream_count() - 1; i >= 0; i--)
        process_tick(stream_nth(i), now_ms);
}

/* Returns how many milliseconds to wait at most. */
static int poll_timeout(uint64_t now_ms) {
    if (out_unfinished())
        return 0;
    uint64_t due = sooner(proxy_due(), cap_due());
    for (int i = 0; i < stream_count(); i++)
        due = sooner(due, process_due(stream_nth(i)));
    /* A FIFO without another end gives no event when that changes, so the guest looks again after a while. */
    if (out_broken(now_ms) || (!out_throttled() && !in_wants_poll(now_ms)))
        due = sooner(due, now_ms + BROKEN_MS);
    if (stream_count() > 0)
        due = sooner(due, now_ms + LOST_SIGNAL_MS);
    return due == 0 ? -1 : due <= now_ms ? 0 : due - now_ms > LONGEST_MS ? LONGEST_MS : (int)(due - now_ms);
}

void init_main(void) {
    uint64_t reaped_at = 0;
    set_up();
    for (;;) {
        run_timers(clock_ms());
        in_pump();
        settle_streams();
        out_pump();
        uint64_t now = clock_ms();
        gather_polls(now);
        if (!pollset_wait(poll_timeout(now)))
            continue;
        pollset_serve();
        if (child_ended || now - reaped_at >= LOST_SIGNAL_MS) {
            reap();
            reaped_at = now;
        }
        if (host_spoke) {
            in_read();
            in_pump();
        }
        for (int round = 0; round < MORE_ROUNDS; round++) {
            out_pump();
            if (!read_more())
                break;
        }
    }
}
