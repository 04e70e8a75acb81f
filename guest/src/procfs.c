#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENVIRONMENT_MOST 65536
/* The field of /proc/PID/stat with the number of threads; the session is field 6. */
#define THREADS_FIELD 20

static int proc_fd = -1;

void procfs_init(void) {
    proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int procfs_fd(void) {
    return proc_fd;
}

/* A guest that is not PID 1 shares /proc with other processes and only looks at its own descendants. It is their
 * subreaper, so all of them stay its descendants. */
static bool concerns_guest(pid_t pid, pid_t self) {
    struct proc_info info;
    if (self == 1)
        return true;
    while (pid > 1 && procfs_info(pid, &info)) {
        if (info.parent == self)
            return true;
        pid = info.parent;
    }
    return false;
}

void procfs_each(bool (*visit)(pid_t pid, void *context), void *context) {
    int fd = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    pid_t self = getpid();
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (pid <= 0 || *end != 0 || pid == self || !concerns_guest((pid_t)pid, self))
            continue;
        if (!visit((pid_t)pid, context))
            break;
    }
    closedir(directory);
}

ssize_t procfs_read(pid_t pid, const char *name, char *buffer, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "%d/%s", pid, name);
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t length = 0;
    ssize_t n = 0;
    while (length < size && (n = read(fd, buffer + length, size - length)) > 0)
        length += (size_t)n;
    close(fd);
    return n < 0 && length == 0 ? -1 : (ssize_t)length;
}

bool procfs_info(pid_t pid, struct proc_info *info) {
    char text[512];
    ssize_t length = procfs_read(pid, "stat", text, sizeof text - 1);
    if (length <= 0)
        return false;
    text[length] = 0;
    /* The command stands in parentheses and may hold any character, so the fields are found from its end: ") S 1 2 3
     * ". */
    char *next = strrchr(text, ')');
    if (next == NULL || strlen(next) < 4)
        return false;
    info->pid = pid;
    info->zombie = next[2] == 'Z' || next[2] == 'X';
    next += 3;
    info->parent = (pid_t)strtol(next, &next, 10);
    info->group = (pid_t)strtol(next, &next, 10);
    info->session = (pid_t)strtol(next, &next, 10);
    if (*next != ' ')
        return false;
    for (int field = 7; field < THREADS_FIELD; field++)
        strtol(next, &next, 10);
    long threads = strtol(next, NULL, 10);
    info->threads = threads > 0 ? (uint32_t)threads : 1;
    return true;
}

uint32_t procfs_stream(pid_t pid) {
    static char text[ENVIRONMENT_MOST];
    static const char name[] = "ATOLL_STREAM=";
    ssize_t length = procfs_read(pid, "environ", text, sizeof text - 1);
    if (length <= 0)
        return 0;
    text[length] = 0;
    for (char *at = text; at < text + length; at += strlen(at) + 1)
        if (strncmp(at, name, sizeof name - 1) == 0)
            return (uint32_t)strtoul(at + sizeof name - 1, NULL, 10);
    return 0;
}
