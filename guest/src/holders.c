#include "holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "out.h"
#include "procfs.h"
#include "protocol.h"

#define COMMAND_MOST 256
#define MAPS_MOST (1 << 20)
/* More would not help whoever has to end them, and these fit into a frame: an entry takes 12 bytes and its command. */
#define HOLDERS_MOST 240

struct answer {
    struct text path;
    bool end;
    uint32_t count;
    uint8_t *next;
    uint8_t payload[ATOLL_MAX_TO_HOST];
};

static struct answer answer;

/* A link to a deleted file says so after its path. */
static bool is_path(const char *name, size_t length) {
    static const char deleted[] = " (deleted)";
    size_t wanted = answer.path.length;
    if (length < wanted || memcmp(name, answer.path.at, wanted) != 0)
        return false;
    size_t more = length - wanted;
    return more == 0 || (more == sizeof deleted - 1 && memcmp(name + wanted, deleted, more) == 0);
}

static bool links_to_path(int directory, const char *name) {
    char target[PATH_MAX];
    ssize_t length = readlinkat(directory, name, target, sizeof target);
    return length > 0 && is_path(target, (size_t)length);
}

static bool has_open(pid_t pid) {
    char name[64];
    snprintf(name, sizeof name, "%d/exe", pid);
    if (links_to_path(procfs_fd(), name))
        return true;
    snprintf(name, sizeof name, "%d/cwd", pid);
    if (links_to_path(procfs_fd(), name))
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
        found = links_to_path(dirfd(directory), entry->d_name);
    closedir(directory);
    return found;
}

/* The path is the sixth column of a line, after any number of blanks, and the first slash in it. */
static bool has_mapped(pid_t pid) {
    char *text = malloc(MAPS_MOST);
    if (text == NULL)
        return false;
    ssize_t length = procfs_read(pid, "maps", text, MAPS_MOST);
    bool found = false;
    char *at = text;
    while (!found && length > 0 && at < text + length) {
        char *newline = memchr(at, '\n', (size_t)(text + length - at));
        char *end = newline != NULL ? newline : text + length;
        char *slash = memchr(at, '/', (size_t)(end - at));
        found = slash != NULL && is_path(slash, (size_t)(end - slash));
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
    /* Read before it is ended: the dead have no environment. */
    uint32_t stream = procfs_stream(pid);
    /* One that has gone by itself was not ended by us. */
    if (answer.end && kill(pid, SIGKILL) != 0)
        return true;
    answer.next = put_u32(answer.next, (uint32_t)pid);
    answer.next = put_u32(answer.next, stream);
    answer.next = put_text(answer.next, command, length);
    answer.count++;
    return answer.count < HOLDERS_MOST;
}

void holders_answer(uint32_t id, struct text path, bool end) {
    answer.path = path;
    answer.end = end;
    answer.count = 0;
    answer.next = put_u32(answer.payload, 0);
    procfs_each(look_at, NULL);
    put_u32(answer.payload, answer.count);
    out_frame(ATOLL_FRAME_HELD_BY, id, answer.payload, (size_t)(answer.next - answer.payload));
}
