/* The moment between vfork and exec. Everything is prepared before; the child only makes system calls. */
#ifndef ATOLL_CHILD_H
#define ATOLL_CHILD_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#define CHILD_LIMITS 16
#define CHILD_GROUPS 256
#define CHILD_WITHHELD 4

enum child_step {
    STEP_NONE,
    STEP_SESSION,
    STEP_DESCRIPTORS,
    STEP_TERMINAL,
    STEP_LIMITS,
    STEP_CAPABILITIES,
    STEP_USER,
    STEP_DIRECTORY,
    STEP_EXEC,
};

struct child_plan {
    int in_fd, out_fd, err_fd;
    /* This descriptor becomes descriptor 3; -1 means none. */
    int extra_fd;
    /* The descriptor of the terminal that controls the session, or -1. */
    int terminal;
    /* The descriptor of the program. With -1, `argv[0]` is looked for in `path` unless it has a slash. */
    int program;
    const char *path;
    char **argv;
    char **envp;
    const char *directory;
    /* If this is not set, the child runs in `/` when it cannot enter the directory. */
    bool directory_required;
    /* The child keeps the user of the guest; for a guest that is not root. */
    bool same_user;
    uid_t uid;
    gid_t gid;
    gid_t groups[CHILD_GROUPS];
    size_t group_count;
    /* Capabilities that no exec may give back. */
    int withheld[CHILD_WITHHELD];
    int withheld_count;
    bool limited[CHILD_LIMITS];
    struct rlimit limits[CHILD_LIMITS];
    /* The step that failed and its errno; STEP_NONE after success. */
    volatile enum child_step failed;
    volatile int error;
    volatile int limit_failed;
};

/* Returns the process id, or -1 with errno when there is no process at all. A child that could not exec is reaped
 * already. */
pid_t child_start(struct child_plan *plan);

#endif
