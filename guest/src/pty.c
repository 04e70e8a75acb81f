#include "pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Debian and most other systems give terminals to this group, so that `write` and `wall` work. */
#define TTY_GROUP 5

bool pty_resize(int master, uint16_t rows, uint16_t columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    pid_t foreground;
    ioctl(master, TIOCSWINSZ, &size);
    /* A kernel that can say from here which group is in the foreground also signals that group. */
    return ioctl(master, TIOCGPGRP, &foreground) == 0;
}

int pty_open(struct pty *pty, uint16_t rows, uint16_t columns, uid_t uid) {
    int unlock = 0;
    unsigned number;
    char path[32];
    pty->slave = -1;
    pty->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (pty->master < 0)
        return errno;
    if (ioctl(pty->master, TIOCSPTLCK, &unlock) == 0 && ioctl(pty->master, TIOCGPTN, &number) == 0) {
        snprintf(path, sizeof path, "/dev/pts/%u", number);
        pty->slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    if (pty->slave < 0) {
        int error = errno;
        close(pty->master);
        return error;
    }
    pty_resize(pty->master, rows, columns);
    /* This is best effort: a terminal that its user does not own works, except for programs that open it again by
     * name. */
    if (fchown(pty->slave, uid, TTY_GROUP) == 0)
        fchmod(pty->slave, 0620);
    return 0;
}
