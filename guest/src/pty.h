#ifndef ATOLL_PTY_H
#define ATOLL_PTY_H

#include <stdint.h>
#include <sys/types.h>

struct pty {
    int master, slave;
};

/* Both ends close on exec, the master does not block, and the slave belongs to the user. 0 or an errno. */
int pty_open(struct pty *pty, uint16_t rows, uint16_t columns, uid_t uid);
void pty_resize(int master, uint16_t rows, uint16_t columns);

#endif
