#include "launch_slack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel gives this slack to every thread unless it is changed. */
#define ORDINARY "50000"
/* A thread that starts another one passes its slack on, so the threads are read again until all of them are
 * ordinary. */
#define ROUNDS_MOST 10

static const char *group;
static char path[PATH_MAX];
static int fd = -1;

/* The FIFO is opened read-only, because a hang-up is seen only by a process without a writing end; and non-blocking,
 * because there may be no writer yet. */
static int open_fifo(void) {
    struct stat info;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (opened >= 0 && fstat(opened, &info) == 0 && S_ISFIFO(info.st_mode))
        return opened;
    if (opened >= 0) {
        close(opened);
        errno = EEXIST;
    }
    return -1;
}

const char *slack_open(const char *directory, const char *cgroup) {
    group = cgroup;
    if (snprintf(path, sizeof path, "%s/slack", directory) >= (int)sizeof path)
        errno = ENAMETOOLONG;
    else if (mkfifo(path, 0600) == 0 || errno == EEXIST)
        fd = open_fifo();
    return fd < 0 ? "make the FIFO slack" : NULL;
}

/* Returns true if the thread had another slack. A thread that has ended has none. */
static bool reset_thread(const char *thread) {
    char name[PATH_MAX], slack[32] = "";
    snprintf(name, sizeof name, "/proc/%s/timerslack_ns", thread);
    int file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return false;
    bool was_changed = pread(file, slack, sizeof slack - 1, 0) > 0 &&
                       strtoull(slack, NULL, 10) != strtoull(ORDINARY, NULL, 10) &&
                       write(file, ORDINARY, strlen(ORDINARY)) > 0;
    close(file);
    return was_changed;
}

static bool reset_process(pid_t pid) {
    char name[64];
    bool was_changed = false;
    snprintf(name, sizeof name, "/proc/%d/task", pid);
    DIR *threads = opendir(name);
    struct dirent *thread;
    while (threads != NULL && (thread = readdir(threads)) != NULL)
        if (thread->d_name[0] != '.' && reset_thread(thread->d_name))
            was_changed = true;
    if (threads != NULL)
        closedir(threads);
    return was_changed;
}

static bool reset_group(void) {
    char name[PATH_MAX];
    bool was_changed = false;
    int pid;
    if (snprintf(name, sizeof name, "%s/cgroup.procs", group) >= (int)sizeof name)
        return false;
    FILE *members = fopen(name, "re");
    while (members != NULL && fscanf(members, "%d", &pid) == 1)
        /* The PID is 0 for a process that is not in our PID namespace. */
        if (pid > 0 && reset_process(pid))
            was_changed = true;
    if (members != NULL)
        fclose(members);
    return was_changed;
}

void slack_poll(struct pollfd *polled) {
    *polled = (struct pollfd){.fd = fd};
}

void slack_answer(const struct pollfd *polled) {
    if (polled->revents == 0)
        return;
    /* The FIFO is opened again before the slack is removed and before the old end is closed. So the launcher misses
     * no server that comes and goes during that time, and no server finds the FIFO without a reader. */
    int again = open_fifo();
    close(fd);
    fd = again;
    for (int round = 0; group != NULL && round < ROUNDS_MOST && reset_group(); round++)
        continue;
}
