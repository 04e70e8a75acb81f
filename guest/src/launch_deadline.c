#include "launch_deadline.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* docs/guest-protocol.md has the format. The file has one order twice, written at once, so that a reader recognizes
 * an order that is being written: its two copies differ. */
#define ORDER 26
#define RECORD (2 * ORDER)
#define SEEN_AT 64
#define FILE_SIZE 128
#define READ_ATTEMPTS 100

enum order { NO_DEADLINE, UNTIL, UNREADABLE };

static const char *freezer;
static int wake_fd = -1, timer_fd = -1, file_fd = -1, state_fd = -1;
static bool unified, outside, frozen, freezing;

static bool open_in(int *fd, const char *directory, const char *name, int flags) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    *fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *fd >= 0;
}

static bool make_wake(const char *directory) {
    char path[PATH_MAX];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/wake", directory) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (mkfifo(path, 0600) != 0 && errno != EEXIST)
        return false;
    /* The FIFO is opened for reading and writing, so that it has no end of file when a server dies. */
    if (!open_in(&wake_fd, directory, "wake", O_RDWR | O_NONBLOCK) || fstat(wake_fd, &info) != 0)
        return false;
    errno = EEXIST;
    return S_ISFIFO(info.st_mode);
}

/* The block of the file is allocated now, so that neither the launcher nor a server needs disk space to change it. */
static bool make_file(const char *directory) {
    char text[FILE_SIZE];
    struct stat info;
    if (!open_in(&file_fd, directory, "deadline", O_RDWR | O_CREAT) || fstat(file_fd, &info) != 0)
        return false;
    if (info.st_size >= FILE_SIZE)
        return true;
    memset(text, '\n', sizeof text);
    for (int copy = 0; copy < 2; copy++)
        snprintf(text + copy * ORDER, ORDER + 1, "never %019d\n", 0);
    memcpy(text + SEEN_AT, text, RECORD);
    return pwrite(file_fd, text, sizeof text, 0) == (ssize_t)sizeof text;
}

const char *deadline_open(const char *directory, const char *group) {
    freezer = group;
    if (!make_wake(directory))
        return "make the FIFO wake";
    if (!make_file(directory))
        return "make the file deadline";
    return NULL;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static enum order read_order(char *record, uint64_t *until) {
    for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
        if (pread(file_fd, record, RECORD, 0) == RECORD && memcmp(record, record + ORDER, ORDER) == 0) {
            char digits[20] = "";
            memcpy(digits, record + 6, 19);
            if (record[ORDER - 1] != '\n' || strspn(digits, "0123456789") != 19)
                return UNREADABLE;
            *until = strtoull(digits, NULL, 10);
            if (memcmp(record, "until ", 6) == 0)
                return UNTIL;
            return memcmp(record, "never ", 6) == 0 || memcmp(record, "still ", 6) == 0 ? NO_DEADLINE : UNREADABLE;
        }
        usleep(1000);
    }
    return UNREADABLE;
}

/* A process that freezes a group must not be in it. It must also be able to run when the group uses up its processor
 * time and memory. */
static bool leave_group(void) {
    int procs;
    if (outside)
        return true;
    if (freezer == NULL) {
        errno = ENOTSUP;
        return false;
    }
    unified = open_in(&state_fd, freezer, "cgroup.freeze", O_RDWR);
    if (!unified && !open_in(&state_fd, freezer, "freezer.state", O_RDWR))
        return false;
    if (timer_fd < 0)
        timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer_fd < 0 || !open_in(&procs, freezer, "../cgroup.procs", O_WRONLY)) {
        close(state_fd);
        return false;
    }
    outside = write(procs, "0", 1) == 1;
    int error = errno;
    close(procs);
    if (!outside)
        close(state_fd);
    setpriority(PRIO_PROCESS, 0, -20);
    mlockall(MCL_CURRENT);
    errno = error;
    return outside;
}

static void write_freezer(const char *word) {
    if (pwrite(state_fd, word, strlen(word), 0) < 0)
        errno = 0;
}

static bool is_frozen(void) {
    char state[16] = "";
    /* In the unified hierarchy the kernel also stops processes that join the group later. */
    if (unified)
        return true;
    return pread(state_fd, state, sizeof state - 1, 0) > 0 && strncmp(state, "FROZEN", 6) == 0;
}

/* In the older hierarchy, a process that forks during the freeze leaves the group half frozen, so the freeze is
 * repeated until it is complete. */
static void freeze(void) {
    frozen = true;
    write_freezer(unified ? "1" : "FROZEN");
    freezing = !is_frozen();
}

static void thaw(void) {
    if (frozen)
        write_freezer(unified ? "0" : "THAWED");
    frozen = freezing = false;
}

static void set_timer(uint64_t until) {
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(until / 1000), .tv_nsec = (long)(until % 1000) * 1000000}};
    if (timer_fd >= 0)
        timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

const char *deadline_apply(bool *is_over) {
    char record[RECORD];
    uint64_t until = 0;
    enum order order = read_order(record, &until);
    *is_over = order == UNREADABLE || (order == UNTIL && now_ms() >= until);
    if (order != NO_DEADLINE && !leave_group())
        return "leave the group that it would freeze";
    set_timer(order == UNTIL && !*is_over ? until : 0);
    if (*is_over)
        freeze();
    else
        thaw();
    if (order != UNREADABLE && pwrite(file_fd, record, RECORD, SEEN_AT) != RECORD)
        return "write the file deadline";
    return NULL;
}

bool deadline_is_watched(void) {
    return outside;
}

void deadline_poll(struct pollfd fds[2]) {
    fds[0] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = timer_fd, .events = POLLIN};
}

int deadline_timeout(void) {
    return freezing ? 1 : -1;
}

void deadline_answer(const struct pollfd fds[2]) {
    char bytes[64];
    bool is_over;
    bool woken = fds[0].revents != 0 || fds[1].revents != 0;
    while (fds[0].revents != 0 && read(wake_fd, bytes, sizeof bytes) > 0)
        continue;
    if (fds[1].revents != 0 && read(timer_fd, bytes, sizeof(uint64_t)) < 0)
        errno = 0;
    /* An order that could not be applied is not written down as seen; a server that waits for that notices. */
    if (woken)
        deadline_apply(&is_over);
    else if (freezing)
        freeze();
}
