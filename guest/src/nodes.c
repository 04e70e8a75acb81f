#include "nodes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "entry.h"
#include "host_output.h"
#include "protocol.h"
#include "walk.h"

#define FLAG_SYNCED 1
/* Init does nothing else during the search, so the number is bounded; a tool takes as long as it needs. */
#define FILES_MOST 4096

static bool has_changed_since(int root, const char *directory, int64_t changed) {
    struct stat info;
    return fstatat(root, directory, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           (int64_t)info.st_ctim.tv_sec * 1000000000 + info.st_ctim.tv_nsec != changed;
}

/* Says whether the entry is a pipe or a socket. An entry that is removed during the search is none. */
static bool is_node(int directory, const struct walk_entry *entry, struct stat *info) {
    if (entry->type != DT_FIFO && entry->type != DT_SOCK && entry->type != DT_UNKNOWN)
        return false;
    return fstatat(directory, entry->name, info, AT_SYMLINK_NOFOLLOW) == 0 &&
           (S_ISFIFO(info->st_mode) || S_ISSOCK(info->st_mode));
}

/* gVisor has the time of a directory that got a pipe only in memory. A time that is set is written to the host, even
 * if it is the same. */
static int sync_times(int root, const char *directory) {
    struct stat info;
    if (fstatat(root, directory, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    return utimensat(root, directory, times, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT ? 0 : errno;
}

int nodes_in(struct nodes_search *search, const char *directory, int64_t changed) {
    static char path[ENTRY_NAME_MOST + 1 + NAME_MAX];
    size_t length = strlen(directory);
    if (length + 1 > ENTRY_NAME_MOST || !has_changed_since(search->root, directory, changed))
        return 0;
    struct level *level = walk_into(NULL, search->root, directory, false);
    if (level == NULL)
        return errno == EMFILE || errno == ENOMEM ? errno : 0;
    memcpy(path, directory, length);
    path[length] = '/';
    length = strcmp(directory, ".") == 0 ? 0 : length + 1;
    struct walk_entry entry;
    struct stat info;
    bool has_some = false;
    int error = 0, more = 0;
    while (error == 0 && (more = walk_next(level, &entry)) > 0) {
        size_t whole = length + strlen(entry.name);
        if (search->left-- == 0) {
            error = E2BIG;
        } else if (whole <= ENTRY_NAME_MOST && is_node(level->fd, &entry, &info)) {
            memcpy(path + length, entry.name, whole - length);
            error = search->report(&info, path, whole);
            has_some = true;
        }
    }
    /* A directory that was removed during the search has no more entries. */
    if (more < 0 && errno != ENOENT)
        error = errno;
    walk_out(level);
    if (error != 0)
        return error;
    return has_some && search->is_synced ? sync_times(search->root, directory) : 0;
}

static uint8_t answer[ATOLL_MAX_TO_HOST], *answer_next;
static uint32_t answer_count;

static int put_in_answer(const struct stat *info, const char *path, size_t length) {
    size_t size = entry_size(length, 0);
    if ((size_t)(answer + sizeof answer - answer_next) < 4 + size)
        return E2BIG;
    answer_next = entry_put(put_u32(answer_next, (uint32_t)size), info, path, length, "", 0);
    answer_count++;
    return 0;
}

/* Searches the next directory that the request names. Returns 0 or an errno. */
static int search_next(struct nodes_search *search, struct reader *request) {
    static char directory[ENTRY_NAME_MOST + 1];
    int64_t changed = (int64_t)read_u64(request);
    struct text path = read_text(request);
    if (request->bad || path.length > ENTRY_NAME_MOST)
        return EBADMSG;
    memcpy(directory, path.at, path.length);
    directory[path.length] = 0;
    return nodes_in(search, directory, changed);
}

void nodes_answer(uint32_t id, struct reader *request) {
    uint32_t flags = read_u32(request);
    uint32_t count = read_u32(request);
    struct nodes_search search = {
        .is_synced = (flags & FLAG_SYNCED) != 0, .left = FILES_MOST, .report = put_in_answer};
    answer_count = 0;
    answer_next = put_u32(answer, 0);
    search.root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = search.root < 0 ? errno : flags > FLAG_SYNCED ? EBADMSG : 0;
    for (uint32_t i = 0; error == 0 && i < count; i++)
        error = search_next(&search, request);
    if (error == 0 && (request->bad || reader_left(request) > 0))
        error = EBADMSG;
    if (search.root >= 0)
        close(search.root);
    if (error != 0) {
        out_failed(id, error, "list pipes and sockets");
        return;
    }
    put_u32(answer, answer_count);
    out_frame(ATOLL_FRAME_NODES_ARE, id, answer, (size_t)(answer_next - answer));
}
