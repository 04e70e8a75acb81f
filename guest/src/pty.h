#ifndef ATOLL_PTY_H
#define ATOLL_PTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pty {
    int master, slave;
};

/* Opens a terminal: both ends close on exec, the master does not block, and the slave belongs to the user. Returns 0
 * or an errno. */
int pty_open(struct pty *pty, uint16_t rows, uint16_t columns, uid_t uid);
/* Returns true where the kernel itself signals the programs in the foreground; gVisor only stores the size. */
bool pty_resize(int master, uint16_t rows, uint16_t columns);

#endif
