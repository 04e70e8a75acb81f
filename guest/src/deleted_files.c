#include "deleted_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host_output.h"
#include "procfs.h"
#include "protocol.h"

#define COMMAND_MOST 256
#define MAPS_MOST (1 << 20)
/* A longer list would not help the user who has to end these processes, and this many fit into a frame: an entry
 * takes 12 bytes and its command. */
#define HOLDERS_MOST 240

static const char mark[] = " (deleted)";

/* Enough for a path and the mark after it. */
#define NAME_MOST (PATH_MAX + sizeof mark)

struct answer {
    bool end;
    uint32_t count;
    uint8_t *next;
    /* The text of the links to the deleted file. */
    char name[NAME_MOST];
    size_t length;
    /* A file may really have such a name: then this is the file. */
    bool has_namesake;
    struct stat namesake;
    uint8_t payload[ATOLL_MAX_TO_HOST];
};

static struct answer answer;

static bool is_name(const char *name, size_t length) {
    return length == answer.length && memcmp(name, answer.name, length) == 0;
}

static bool is_namesake(dev_t device, ino_t inode) {
    return answer.has_namesake && answer.namesake.st_dev == device && answer.namesake.st_ino == inode;
}

static bool links_to_deleted(int directory, const char *name) {
    char target[NAME_MOST];
    struct stat info;
    ssize_t length = readlinkat(directory, name, target, sizeof target);
    if (length <= 0 || !is_name(target, (size_t)length))
        return false;
    return fstatat(directory, name, &info, 0) != 0 || !is_namesake(info.st_dev, info.st_ino);
}

static bool has_open(pid_t pid) {
    char name[64];
    snprintf(name, sizeof name, "%d/exe", pid);
    if (links_to_deleted(procfs_fd(), name))
        return true;
    snprintf(name, sizeof name, "%d/cwd", pid);
    if (links_to_deleted(procfs_fd(), name))
        return true;
    snprintf(name, sizeof name, "%d/fd", pid);
    int fd = openat(procfs_fd(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (directory == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool found = false;
    struct dirent *entry;
    while (!found && (entry = readdir(directory)) != NULL)
        found = links_to_deleted(dirfd(directory), entry->d_name);
    closedir(directory);
    return found;
}

/* The device and the inode are the fourth and fifth column. The path is the sixth, after any number of blanks; its
 * first character is the first slash in the line. */
static bool maps_deleted(const char *line) {
    unsigned major, minor;
    unsigned long long inode;
    const char *slash = strchr(line, '/');
    if (slash == NULL || !is_name(slash, strlen(slash)))
        return false;
    if (sscanf(line, "%*s %*s %*s %x:%x %llu", &major, &minor, &inode) != 3)
        return true;
    return !is_namesake(makedev(major, minor), (ino_t)inode);
}

static bool has_mapped(pid_t pid) {
    char *text = malloc(MAPS_MOST + 1);
    if (text == NULL)
        return false;
    ssize_t length = procfs_read(pid, "maps", text, MAPS_MOST);
    bool found = false;
    char *at = text;
    while (!found && length > 0 && at < text + length) {
        char *newline = memchr(at, '\n', (size_t)(text + length - at));
        char *end = newline != NULL ? newline : text + length;
        *end = 0;
        found = maps_deleted(at);
        at = end + 1;
    }
    free(text);
    return found;
}

static size_t command_of(pid_t pid, char command[COMMAND_MOST]) {
    ssize_t length = procfs_read(pid, "cmdline", command, COMMAND_MOST);
    while (length > 0 && command[length - 1] == 0)
        length--;
    for (ssize_t i = 0; i < length; i++)
        if (command[i] == 0)
            command[i] = ' ';
    return length > 0 ? (size_t)length : 0;
}

static bool look_at(pid_t pid, void *context) {
    (void)context;
    char command[COMMAND_MOST];
    if (!has_open(pid) && !has_mapped(pid))
        return true;
    size_t length = command_of(pid, command);
    /* The environment is read before the process is killed: a dead process has none. */
    uint32_t stream = procfs_stream(pid);
    /* A process that has ended by itself was not ended by us. */
    if (answer.end && kill(pid, SIGKILL) != 0)
        return true;
    answer.next = put_u32(answer.next, (uint32_t)pid);
    answer.next = put_u32(answer.next, stream);
    answer.next = put_text(answer.next, command, length);
    answer.count++;
    return answer.count < HOLDERS_MOST;
}

/* Returns false when the path is too long. */
static bool look_for(struct text path) {
    if (path.length > PATH_MAX)
        return false;
    memcpy(answer.name, path.at, path.length);
    memcpy(answer.name + path.length, mark, sizeof mark);
    answer.length = path.length + sizeof mark - 1;
    answer.has_namesake = fstatat(AT_FDCWD, answer.name, &answer.namesake, AT_SYMLINK_NOFOLLOW) == 0;
    return true;
}

void deleted_files_answer(uint32_t id, struct text path, bool end) {
    answer.end = end;
    answer.count = 0;
    answer.next = put_u32(answer.payload, 0);
    if (look_for(path))
        procfs_each(look_at, NULL);
    put_u32(answer.payload, answer.count);
    out_frame(ATOLL_FRAME_HELD_BY, id, answer.payload, (size_t)(answer.next - answer.payload));
}
