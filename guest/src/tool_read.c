#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

#define BUFFER_SIZE (256 << 10)

static int check(const struct stat *info) {
    if (S_ISDIR(info->st_mode))
        return EISDIR;
    return S_ISREG(info->st_mode) ? 0 : EINVAL;
}

static int copy_out(int fd, int64_t offset, int64_t length) {
    static char buffer[BUFFER_SIZE];
    while (length != 0) {
        size_t wanted = length < 0 || length > BUFFER_SIZE ? BUFFER_SIZE : (size_t)length;
        ssize_t n = pread(fd, buffer, wanted, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return 0;
        int error = write_all(STDOUT_FILENO, buffer, (size_t)n);
        if (error != 0)
            return error;
        offset += n;
        if (length > 0)
            length -= n;
    }
    return 0;
}

int tool_read(char **arguments) {
    const char *path = arguments[0];
    int64_t offset, length;
    struct stat info;
    if (!tool_number(arguments[1], 10, &offset) || !tool_number(arguments[2], 10, &length) || offset < 0 || length < -1)
        return tool_fail(EINVAL, "read %s bytes at %s", arguments[2], arguments[1]);
    /* The file is checked before it is opened, because opening a device may have effects, and again after that,
     * because it may have changed. */
    int error = stat(path, &info) == 0 ? check(&info) : errno;
    if (error != 0)
        return tool_fail(error, "read %s", path);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return tool_fail(errno, "read %s", path);
    error = fstat(fd, &info) == 0 ? check(&info) : errno;
    if (error == 0)
        error = copy_out(fd, offset, length);
    return error == 0 ? 0 : tool_fail(error, "read %s", path);
}
