#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive.h"
#include "archive_dirs.h"
#include "pack_file.h"
#include "pack_links.h"
#include "pack_out.h"
#include "walk.h"

/* A file was removed or became shorter while it was read: another attempt may succeed. */
#define EXIT_CHANGED 3
#define STAMP_FD 3
/* This bounds the names of all directories that are being read, taken together. */
#define NAMES_MOST ((size_t)1 << 30)

/* The names in one directory, in order, and the position of the next one. */
struct listing {
    struct listing *above;
    char **names;
    size_t count, next, bytes;
};

/* Both have no initial value: with one, their buffers would be a part of the guest's image, and of every checkpoint. */
static struct out archive, stamp;
/* Other processes write to the directories at the same time: a file that is removed after it was listed is left out. */
static bool is_living;
static size_t names_held;
/* The name that was being read when an error occurred. */
static char failed_name[ARCHIVE_NAME_MOST + 1];

static void forget_listing(struct listing *listing) {
    for (size_t i = 0; i < listing->count; i++)
        free(listing->names[i]);
    free(listing->names);
    names_held -= listing->bytes;
    free(listing);
}

static bool add_name(struct listing *listing, const char *name) {
    /* The array grows when its count is a power of two. */
    if ((listing->count & (listing->count - 1)) == 0) {
        size_t room = listing->count == 0 ? 1 : listing->count * 2;
        char **larger = reallocarray(listing->names, room, sizeof *larger);
        if (larger == NULL)
            return false;
        listing->names = larger;
    }
    size_t bytes = strlen(name) + 1 + sizeof(char *);
    char *copy = names_held + bytes > NAMES_MOST ? NULL : strdup(name);
    if (copy == NULL) {
        errno = ENOMEM;
        return false;
    }
    listing->names[listing->count++] = copy;
    listing->bytes += bytes;
    names_held += bytes;
    return true;
}

static struct listing *list(struct listing *above, int fd) {
    struct walk_entry entry;
    int more = -1;
    struct level *level = walk_into(NULL, fd, ".", false);
    struct listing *listing = calloc(1, sizeof *listing);
    if (level == NULL || listing == NULL)
        return NULL;
    listing->above = above;
    while ((more = walk_next(level, &entry)) == 1 && add_name(listing, entry.name))
        ;
    int error = errno;
    walk_out(level);
    errno = error;
    if (more != 0)
        return NULL;
    if (listing->count > 0)
        qsort(listing->names, listing->count, sizeof *listing->names, archive_compare_names);
    return listing;
}

/* The kernel records each change of a file in a time that no program can set: see `stampLayer`. */
static void stamp_node(const char *name, const struct stat *info) {
    out_name(&stamp, name);
    out_u32(&stamp, info->st_mode);
    /* Overlayfs shares one file among whiteouts, also with whiteouts outside of this tree. */
    if (archive_is_whiteout(info))
        return;
    out_attributes(&stamp, info);
    out_u64(&stamp, (uint64_t)info->st_ctim.tv_sec);
    out_u32(&stamp, (uint32_t)info->st_ctim.tv_nsec);
    out_u64(&stamp, info->st_ino);
    out_u64(&stamp, S_ISDIR(info->st_mode) ? 0 : (uint64_t)info->st_size);
}

static bool pack_regular(struct dir *at, const char *name) {
    struct stat info;
    int fd = openat(at->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return is_living && errno == ENOENT;
    /* The attributes are read from the open file, so that they belong to its contents. */
    bool done = fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || (errno = ESTALE, false));
    if (done) {
        out_tag(&archive, TAG_FILE);
        out_name(&archive, name);
        out_u64(&archive, (uint64_t)info.st_size);
        done = pack_contents(&archive, fd, &info);
        out_tag(&archive, TAG_END);
        out_attributes(&archive, &info);
        done = done && pack_xattrs(&archive, fd);
    }
    int error = errno;
    close(fd);
    errno = error;
    return done;
}

static bool pack_link(struct dir *at, const char *name, const struct stat *info) {
    char target[ARCHIVE_TARGET_MOST + 1];
    ssize_t length = readlinkat(at->fd, name, target, sizeof target);
    if (length < 0)
        return is_living && errno == ENOENT;
    out_tag(&archive, TAG_LINK);
    out_name(&archive, name);
    out_u32(&archive, (uint32_t)length);
    out_bytes(&archive, target, (size_t)length);
    out_attributes(&archive, info);
    return true;
}

/* Packs a file that has no contents besides its inode. */
static bool pack_special(const char *name, const struct stat *info) {
    if (!S_ISFIFO(info->st_mode) && !S_ISSOCK(info->st_mode)) {
        errno = ENOTSUP;
        return false;
    }
    out_tag(&archive, S_ISFIFO(info->st_mode) ? TAG_PIPE : TAG_SOCKET);
    out_name(&archive, name);
    out_attributes(&archive, info);
    return true;
}

/* Packs anything but a directory. */
static bool pack_node(struct dir *at, const char *name, const struct stat *info) {
    if (archive_is_whiteout(info)) {
        out_tag(&archive, TAG_WHITEOUT);
        out_name(&archive, name);
        return true;
    }
    /* While other processes write, the first name of a file may be removed before it is read. */
    bool has_names = info->st_nlink > 1 && !is_living;
    const char *first = has_names ? links_find(info) : NULL;
    if (first != NULL) {
        out_tag(&archive, TAG_ANOTHER_NAME);
        out_name(&archive, name);
        out_u32(&archive, (uint32_t)strlen(first));
        out_bytes(&archive, first, strlen(first));
        return true;
    }
    if (has_names && !links_note(info, dirs_path, name))
        return false;
    if (S_ISREG(info->st_mode))
        return pack_regular(at, name);
    return S_ISLNK(info->st_mode) ? pack_link(at, name, info) : pack_special(name, info);
}

/* Packs the next name of a directory, or enters it if it is a directory. */
static bool pack_next(struct dir **at, struct listing **listing) {
    struct stat info;
    const char *name = (*listing)->names[(*listing)->next++];
    snprintf(failed_name, sizeof failed_name, "%s", name);
    if (fstatat((*at)->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return is_living && errno == ENOENT;
    if (!S_ISDIR(info.st_mode)) {
        stamp_node(name, &info);
        return archive.fd < 0 || pack_node(*at, name, &info);
    }
    struct dir *below = dirs_enter(*at, name);
    if (below == NULL)
        return is_living && errno == ENOENT;
    out_tag(&archive, TAG_DIRECTORY);
    out_name(&archive, name);
    out_tag(&stamp, TAG_DIRECTORY);
    *at = below;
    struct listing *names = list(*listing, below->fd);
    if (names == NULL)
        return false;
    *listing = names;
    return true;
}

static bool end_directory(struct dir **at, struct listing **listing) {
    struct stat info;
    struct listing *above = (*listing)->above;
    if (fstat((*at)->fd, &info) != 0)
        return false;
    stamp_node(dirs_name(*at), &info);
    out_tag(&archive, TAG_END);
    out_attributes(&archive, &info);
    if (archive.fd >= 0 && !pack_xattrs(&archive, (*at)->fd))
        return false;
    forget_listing(*listing);
    *listing = above;
    *at = dirs_leave(*at);
    return *at != NULL || above == NULL;
}

static bool pack_tree(const char *path) {
    struct dir *at = dirs_open_root(path);
    struct listing *listing = at == NULL ? NULL : list(NULL, at->fd);
    bool done = listing != NULL;
    out_tag(&archive, TAG_TREE);
    out_tag(&stamp, TAG_TREE);
    while (done && listing != NULL) {
        done = listing->next < listing->count ? pack_next(&at, &listing) : end_directory(&at, &listing);
        /* The reader of the stream has gone. */
        if (archive.error != 0 || stamp.error != 0) {
            errno = archive.error != 0 ? archive.error : stamp.error;
            done = false;
        }
    }
    links_forget_all();
    return done;
}

static int fail(const char *what, const char *root) {
    int error = errno;
    /* The end of a long path says more than its start. */
    size_t length = strlen(dirs_path);
    const char *path = length > 200 ? dirs_path + length - 200 : dirs_path;
    fprintf(stderr, "Cannot %s %s: %s%s%s: %s\n", what, root, path, path[0] == 0 ? "" : "/", failed_name,
            strerror(error));
    return error == ENOENT || error == ESTALE ? EXIT_CHANGED : 1;
}

/* Begins to write the filesystem of a directory to disk; `await_durable` waits for that. Returns -1 with errno on
 * failure. */
static pid_t make_durable(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t pid = fd < 0 ? -1 : fork();
    if (pid == 0)
        _exit(syncfs(fd) == 0 ? 0 : errno);
    if (fd >= 0)
        close(fd);
    return pid;
}

static bool await_durable(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return errno == 0;
}

int pack_main(int argc, char **argv) {
    bool is_durable = argc > 0 && strcmp(argv[0], "--durable-stamp") == 0;
    bool stamps = is_durable || (argc > 0 && strcmp(argv[0], "--stamp") == 0);
    is_living = argc > 0 && strcmp(argv[0], "--living") == 0;
    int first = stamps || is_living ? 1 : 0;
    if (argc <= first) {
        fprintf(stderr, "Usage: atoll-guest pack [--stamp | --durable-stamp | --living] DIRECTORY...\n");
        return 2;
    }
    pid_t syncing = is_durable ? make_durable(argv[first]) : 0;
    if (syncing < 0)
        return fail("make durable", argv[first]);
    archive.fd = STDOUT_FILENO;
    stamp.fd = stamps ? STAMP_FD : -1;
    out_bytes(&archive, ARCHIVE_MAGIC, ARCHIVE_MAGIC_SIZE);
    for (int i = first; i < argc; i++)
        if (!pack_tree(argv[i]))
            return fail("pack", argv[i]);
    out_tag(&archive, TAG_END_OF_ALL);
    if ((errno = out_flush(&archive)) != 0 || (errno = out_flush(&stamp)) != 0)
        return fail("write the archive of", argv[first]);
    if (syncing > 0 && !await_durable(syncing))
        return fail("make durable", argv[first]);
    return 0;
}

int stamp_main(int argc, char **argv) {
    if (argc < 1) {
        fprintf(stderr, "Usage: atoll-guest stamp DIRECTORY... [-- DIRECTORY...]...\n");
        return 2;
    }
    int next = STAMP_FD;
    archive.fd = -1;
    stamp.fd = STDOUT_FILENO;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            if ((errno = out_flush(&stamp)) != 0)
                return fail("write the stamp of", argv[0]);
            stamp.fd = next++;
        } else if (!pack_tree(argv[i]))
            return fail("look at", argv[i]);
    }
    if ((errno = out_flush(&stamp)) != 0)
        return fail("write the stamp of", argv[0]);
    return 0;
}
