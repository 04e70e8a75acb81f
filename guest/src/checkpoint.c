#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What follows the message of an answer is not used. */
#define ANSWER_MOST 65536

/* The sandbox got no request, so it is unchanged. */
#define EXIT_NOT_ASKED 3

static const char success[] = "{\"success\":true,";

static bool is_complete(const char *answer, size_t length) {
    return length > 0 && answer[length - 1] == '}';
}

/* Connects through the name of a descriptor, because the path of the socket may be longer than the kernel takes. */
static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0)
        return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", place);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    int error = errno;
    close(place);
    errno = error;
    return fd;
}

/* Sends the request together with the file that runsc writes. A request that is sent in part does nothing. */
static bool send_request(int fd, const char *request, int image) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec text = {.iov_base = (void *)request, .iov_len = strlen(request)};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof image);
    memcpy(CMSG_DATA(rights), &image, sizeof image);
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)text.iov_len;
}

/* Returns the answer, or the part of it that arrived before the sandbox ended. */
static const char *read_answer(int fd) {
    static char answer[ANSWER_MOST];
    size_t length = 0;
    while (length < sizeof answer - 1 && !is_complete(answer, length)) {
        ssize_t got = read(fd, answer + length, sizeof answer - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    answer[length] = 0;
    return answer;
}

/* Writes the outcome in one step: a process that finds the file finds all of it. */
static bool write_outcome(const char *outcome, bool saved) {
    char draft[PATH_MAX];
    if (snprintf(draft, sizeof draft, "%s.new", outcome) >= (int)sizeof draft)
        return false;
    FILE *file = fopen(draft, "we");
    if (file == NULL)
        return false;
    bool written = fputs(saved ? "0\n" : "1\n", file) >= 0;
    return fclose(file) == 0 && written && rename(draft, outcome) == 0;
}

static bool redirect_errors(const char *outcome) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s.stderr", outcome) >= (int)sizeof path)
        return false;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd >= 0 && dup2(fd, STDERR_FILENO) >= 0;
}

/* Returns false when the process that started this one cancelled, or is dead. */
static bool is_wanted(void) {
    char word;
    ssize_t got;
    while ((got = read(STDIN_FILENO, &word, 1)) < 0 && errno == EINTR)
        ;
    return got == 1;
}

int checkpoint_main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "Usage: atoll-guest checkpoint SOCKET DIRECTORY NAME OUTCOME REQUEST\n");
        return 2;
    }
    const char *directory = argv[1], *name = argv[2], *outcome = argv[3];
    if (!is_wanted() || !redirect_errors(outcome))
        return EXIT_NOT_ASKED;
    int fd = connect_to(argv[0]);
    int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int image = fd < 0 || place < 0 ? -1 : openat(place, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (image < 0) {
        fprintf(stderr, "Cannot begin: %s\n", strerror(errno));
        return EXIT_NOT_ASKED;
    }
    if (!send_request(fd, argv[4], image)) {
        fprintf(stderr, "Cannot ask: %s\n", strerror(errno));
        unlinkat(place, name, 0);
        return EXIT_NOT_ASKED;
    }
    const char *answer = read_answer(fd);
    bool saved = strncmp(answer, success, sizeof success - 1) == 0;
    if (!saved)
        fprintf(stderr, "%s\n", answer);
    return write_outcome(outcome, saved) && saved ? 0 : 1;
}
