#include "launch.h"
#include "launch_deadline.h"
#include "launch_slack.h"
#include "no_attributes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_FD 3
#define FAILURE 125
#define FIFO_MOST (1 << 20)
#define FIFO_LEAST (1 << 12)

/* The child reports to the launcher what it could not do, before the program runs. `errno` 0 means that it has
 * entered its root. */
struct message {
    bool entering;
    int error;
    char what[200];
};

static struct launch_plan plan;
static int in_fd, out_fd, err_fd;

__attribute__((format(printf, 1, 2))) static void report_step(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line)
        length = sizeof line - 1;
    /* A reader that went away is no error. */
    if (length > 0 && write(REPORT_FD, line, (size_t)length) < 0)
        errno = 0;
}

__attribute__((noreturn)) static void fail(const char *step, int error, const char *what) {
    report_step("error %s %d %s: %s\n", step, error, what, strerror(error));
    exit(FAILURE);
}

/* Makes sure that descriptors 0 to 3 are open, so that no file opened later gets one of these numbers. All other
 * descriptors are closed. */
static void reserve_descriptors(void) {
    int fd;
    syscall(SYS_close_range, REPORT_FD + 1, ~0u, 0);
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= REPORT_FD)
        continue;
    if (fd > REPORT_FD)
        close(fd);
    fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
}

static const char *path_in(const char *name) {
    static char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", plan.directory, name) >= (int)sizeof path)
        fail("fifos", ENAMETOOLONG, name);
    return path;
}

static int open_fifo(const char *name) {
    const char *path = path_in(name);
    struct stat info;
    if (mkfifo(path, 0600) != 0 && errno != EEXIST)
        fail("fifos", errno, path);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        fail("fifos", errno, path);
    if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode))
        fail("fifos", EEXIST, path);
    for (int size = FIFO_MOST; size > FIFO_LEAST && fcntl(fd, F_SETPIPE_SZ, size) < 0; size /= 2)
        continue;
    return fd;
}

static void make_fifos(void) {
    unlink(path_in("exit"));
    in_fd = open_fifo("in");
    out_fd = open_fifo("out");
    err_fd = open(path_in("stderr"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (err_fd < 0)
        fail("fifos", errno, "stderr");
    const char *failed = deadline_open(plan.directory, plan.freezer);
    if (failed == NULL)
        failed = slack_open(plan.directory, plan.cgroup_count > 0 ? plan.cgroups[0] : NULL);
    if (failed != NULL)
        fail("fifos", errno, failed);
    report_step("fifos\n");
}

static bool join_cgroup(const char *directory) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cgroup.procs", directory);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool joined = fd >= 0 && write(fd, "0", 1) == 1;
    int error = errno;
    close(fd);
    errno = error;
    return joined;
}

static void join_cgroups(void) {
    for (int i = 0; i < plan.cgroup_count; i++)
        if (!join_cgroup(plan.cgroups[i]))
            fail("cgroup", errno, plan.cgroups[i]);
    report_step("cgroup\n");
}

/* The deadline is applied before the program starts, so that the program never runs without it. */
static void apply_deadline(void) {
    bool is_over;
    const char *failed = deadline_apply(&is_over);
    if (failed == NULL && is_over) {
        errno = ETIME;
        failed = "start after the deadline";
    }
    if (failed != NULL)
        fail("deadline", errno, failed);
}

/* If the process that holds the launcher back dies, the launcher does not start the program. */
static void wait_for_start(void) {
    char word;
    ssize_t n;
    while ((n = read(STDIN_FILENO, &word, 1)) < 0 && errno == EINTR)
        continue;
    if (n != 1)
        fail("wait", n < 0 ? errno : ECANCELED, "wait for the byte that starts the program");
}

static void send_message(int fd, bool entering, int error, const char *what) {
    struct message message = {.entering = entering, .error = error};
    snprintf(message.what, sizeof message.what, "%s", what);
    if (write(fd, &message, sizeof message) < 0)
        _exit(FAILURE);
}

__attribute__((noreturn)) static void become_program(int report, pid_t launcher) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    /* getppid gives 0 for a parent outside of the PID namespace. */
    if (getppid() != launcher && getppid() != 0)
        _exit(FAILURE);
    if (deadline_is_watched() && !join_cgroup(plan.freezer)) {
        send_message(report, false, errno, plan.freezer);
        _exit(FAILURE);
    }
    if (plan.root != NULL) {
        const char *failed = launch_enter(&plan);
        send_message(report, true, failed != NULL ? errno : 0, failed != NULL ? failed : "");
        if (failed != NULL)
            _exit(FAILURE);
    }
    /* Where this policy is not allowed, the program runs with the default one and is only slower. */
    if (plan.batch)
        sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    if (plan.no_attributes)
        no_attributes();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(in_fd, 0) >= 0 && dup2(out_fd, 1) >= 0 && dup2(err_fd, 2) >= 0)
        execvp(plan.program[0], plan.program);
    send_message(report, false, errno, plan.program[0]);
    _exit(FAILURE);
}

/* Reads the messages of the child until exec closes its end. */
static void follow_start(int report) {
    struct message message;
    while (read(report, &message, sizeof message) == (ssize_t)sizeof message) {
        if (message.error != 0)
            fail(message.entering ? "enter" : "program", message.error, message.what);
        if (message.entering)
            report_step("enter\n");
    }
    close(report);
}

static pid_t start_program(void) {
    int report[2];
    if (plan.root != NULL && unshare(CLONE_NEWPID) != 0)
        fail("enter", errno, "unshare the PID namespace");
    if (pipe2(report, O_CLOEXEC) != 0)
        fail("program", errno, "make a pipe");
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid < 0)
        fail("program", errno, "fork");
    if (pid == 0) {
        close(report[0]);
        become_program(report[1], launcher);
    }
    close(report[1]);
    follow_start(report[0]);
    report_step("program %d\n", pid);
    return pid;
}

/* Closes the stdio of this process. The FIFO `out` must reach its end of file when the container is gone, and no
 * process should wait for the launcher's own stdio. */
static void release_stdio(void) {
    close(in_fd);
    close(out_fd);
    close(err_fd);
    close(REPORT_FD);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= 2; fd++)
        dup2(null, fd);
    close(null);
}

static int wait_for(pid_t pid, const sigset_t *signals) {
    int signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == pid)
            return status;
        if (ended > 0)
            continue;
        struct pollfd fds[4];
        deadline_poll(fds);
        slack_poll(&fds[2]);
        fds[3] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
        if (poll(fds, 4, deadline_timeout()) < 0)
            continue;
        deadline_answer(fds);
        slack_answer(&fds[2]);
        struct signalfd_siginfo info;
        while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD)
                kill(pid, SIGKILL);
    }
}

/* Writes a new file and renames it, so that a reader sees all of it or nothing. */
static void write_exit(int status) {
    char text[32], temporary[PATH_MAX];
    bool signalled = WIFSIGNALED(status);
    int length = snprintf(text, sizeof text, "%s %d\n", signalled ? "signal" : "exit",
                          signalled ? WTERMSIG(status) : WEXITSTATUS(status));
    snprintf(temporary, sizeof temporary, "%s", path_in(".exit"));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool written = write(fd, text, (size_t)length) == length;
    close(fd);
    if (written)
        rename(temporary, path_in("exit"));
}

int launch_main(int argc, char **argv) {
    reserve_descriptors();
    if (!launch_parse(argc, argv, &plan))
        return FAILURE;
    signal(SIGPIPE, SIG_IGN);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    make_fifos();
    join_cgroups();
    if (plan.waits)
        wait_for_start();
    const char *failed = launch_mounts(&plan);
    if (failed != NULL)
        fail("mounts", errno, failed);
    report_step("mounts\n");
    apply_deadline();
    pid_t pid = start_program();
    release_stdio();
    int status = wait_for(pid, &signals);
    write_exit(status);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
