#include "tool.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire.h"

#define RECORDS_SIZE 65536

static const struct {
    const char *name;
    int arguments;
    int (*run)(char **arguments);
} tools[] = {
    {"stat", 1, tool_stat},   {"list", 2, tool_list},     {"read", 3, tool_read},     {"write", 3, tool_write},
    {"mkdir", 3, tool_mkdir}, {"rename", 3, tool_rename}, {"remove", 2, tool_remove}, {"watch", 2, tool_watch},
    {"nodes", 2, tool_nodes}, {"mknodes", 2, tool_mknodes},
};

static uint8_t records[RECORDS_SIZE];
static size_t records_used;
static int records_error;

int tool_fail(int error, const char *what, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(line, sizeof line, what, arguments);
    va_end(arguments);
    /* A path may contain line ends; the message is one line. */
    for (char *c = line; *c != 0; c++)
        if ((unsigned char)*c < ' ')
            *c = '?';
    fprintf(stderr, "%s: %s\n", line, strerror(error));
    return error;
}

bool tool_number(const char *text, int base, int64_t *number) {
    char *end;
    errno = 0;
    *number = strtoll(text, &end, base);
    return errno == 0 && end != text && *end == 0;
}

int write_all(int fd, const void *bytes, size_t length) {
    const char *next = bytes;
    while (length > 0) {
        ssize_t n = write(fd, next, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        next += n;
        length -= (size_t)n;
    }
    return 0;
}

int record_flush(void) {
    if (records_error == 0)
        records_error = write_all(STDOUT_FILENO, records, records_used);
    records_used = 0;
    return records_error;
}

uint8_t *record_start(size_t size) {
    if (records_used + 4 + size > sizeof records)
        record_flush();
    uint8_t *at = put_u32(records + records_used, (uint32_t)size);
    records_used += 4 + size;
    return at;
}

int tool_make_parents(const char *path) {
    char *copy = strdup(path);
    if (copy == NULL)
        return ENOMEM;
    int error = 0;
    for (char *c = copy + 1; error == 0 && *c != 0; c++) {
        /* Slashes at the end do not make the part before them a parent. */
        if (*c != '/' || c[strspn(c, "/")] == 0)
            continue;
        *c = 0;
        if (mkdir(copy, 0755) != 0 && errno != EEXIST && errno != EISDIR) {
            struct stat info;
            /* mkdir may report EACCES or EROFS for a directory that exists. */
            error = errno;
            if (stat(copy, &info) == 0 && S_ISDIR(info.st_mode))
                error = 0;
        }
        *c = '/';
    }
    free(copy);
    return error;
}

int tool_main(int argc, char **argv) {
    const char *name = argc > 0 ? argv[0] : "";
    /* A file that grows too large is an error to report, not a reason to die. */
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
        if (strcmp(tools[i].name, name) != 0)
            continue;
        if (argc - 1 != tools[i].arguments)
            return tool_fail(EINVAL, "%s takes %d arguments", name, tools[i].arguments);
        return tools[i].run(argv + 1);
    }
    return tool_fail(ENOSYS, "%s is not a tool", name);
}
