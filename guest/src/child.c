#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The child runs on the parent's memory while the parent is suspended. Sanitizers instrument stack frames that the
 * child leaves with _exit, which the parent would then report as errors, so these functions are not instrumented.
 */
#if defined(__SANITIZE_ADDRESS__)
#define IN_CHILD __attribute__((no_sanitize("address", "undefined"), noinline))
#else
#define IN_CHILD __attribute__((noinline))
#endif

static char candidate[PATH_MAX];

IN_CHILD static void give_up(struct child_plan *plan, enum child_step step) {
    plan->error = errno;
    plan->failed = step;
    syscall(SYS_exit_group, 127);
}

IN_CHILD static void set_limits(struct child_plan *plan) {
    for (int i = 0; i < CHILD_LIMITS; i++) {
        if (!plan->limited[i])
            continue;
        if (syscall(SYS_prlimit64, 0, i, &plan->limits[i], NULL) != 0) {
            plan->limit_failed = i;
            give_up(plan, STEP_LIMITS);
        }
    }
}

/* Works as execvp, except that a file which the kernel cannot execute is an error and is not run as a script. */
IN_CHILD static void exec_in_path(struct child_plan *plan) {
    const char *name = plan->argv[0];
    bool denied = false;
    if (*name == 0 || plan->path == NULL) {
        errno = ENOENT;
        return;
    }
    for (const char *from = plan->path;; from++) {
        const char *to = from;
        while (*to != 0 && *to != ':')
            to++;
        char *end = candidate;
        const char *limit = candidate + sizeof candidate - 2;
        for (const char *c = from; c < to && end < limit; c++)
            *end++ = *c;
        if (end > candidate)
            *end++ = '/';
        for (const char *c = name; *c != 0 && end < limit + 1; c++)
            *end++ = *c;
        *end = 0;
        if (end <= limit)
            syscall(SYS_execve, candidate, plan->argv, plan->envp);
        else
            errno = ENAMETOOLONG;
        if (errno == EACCES)
            denied = true;
        else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
            return;
        if (*to == 0)
            break;
        from = to;
    }
    errno = denied ? EACCES : ENOENT;
}

IN_CHILD static void exec(struct child_plan *plan) {
    if (plan->program >= 0)
        syscall(SYS_execveat, plan->program, "", plan->argv, plan->envp, AT_EMPTY_PATH);
    else if (strchr(plan->argv[0], '/') != NULL)
        syscall(SYS_execve, plan->argv[0], plan->argv, plan->envp);
    else
        exec_in_path(plan);
}

IN_CHILD static void become(struct child_plan *plan) {
    if (syscall(SYS_setsid) < 0)
        give_up(plan, STEP_SESSION);
    if (plan->terminal >= 0 && syscall(SYS_ioctl, plan->terminal, TIOCSCTTY, 0) != 0)
        give_up(plan, STEP_TERMINAL);
    if (syscall(SYS_dup3, plan->in_fd, 0, 0) < 0 || syscall(SYS_dup3, plan->out_fd, 1, 0) < 0 ||
        syscall(SYS_dup3, plan->err_fd, 2, 0) < 0 ||
        (plan->extra_fd >= 0 && syscall(SYS_dup3, plan->extra_fd, 3, 0) < 0))
        give_up(plan, STEP_DESCRIPTORS);
    set_limits(plan);
    for (int i = 0; i < plan->withheld_count; i++)
        if (syscall(SYS_prctl, PR_CAPBSET_DROP, plan->withheld[i], 0, 0, 0) != 0)
            give_up(plan, STEP_CAPABILITIES);
    if (!plan->same_user && (syscall(SYS_setgroups, plan->group_count, plan->groups) != 0 ||
                             syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) != 0 ||
                             syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) != 0))
        give_up(plan, STEP_USER);
    /* The directory is entered as the user: the kernel of the sandbox decides whether that is allowed. */
    if (syscall(SYS_chdir, plan->directory) != 0 && (plan->directory_required || syscall(SYS_chdir, "/") != 0))
        give_up(plan, STEP_DIRECTORY);
    exec(plan);
    give_up(plan, STEP_EXEC);
}

/*
 * gVisor does not wake a process for a signal that came while it was suspended in vfork, and drops later ones because
 * one is pending already: if one child ended while another was started, the guest would sleep for ever. To unblock
 * SIGCHLD makes the kernel look again.
 */
static void notice_children(void) {
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

IN_CHILD pid_t child_start(struct child_plan *plan) {
    plan->failed = STEP_NONE;
    plan->error = 0;
    /* Signals need not be blocked: every handler of the guest is harmless when it runs in the child. */
    pid_t pid = vfork();
    if (pid == 0)
        become(plan);
    notice_children();
    if (pid > 0 && plan->failed != STEP_NONE)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    return pid;
}
