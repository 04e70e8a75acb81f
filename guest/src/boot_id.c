#include "boot_id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <unistd.h>

#define SHOWN "/proc/sys/kernel/random/boot_id"
/* The draft is in memory, like everything in /dev. */
#define DRAFT "/dev/.boot_id"
#define TEXT_SIZE 38

/* Writes a random UUID and a newline. */
static int make_text(char text[TEXT_SIZE]) {
    uint8_t id[16];
    if (getrandom(id, sizeof id, 0) != sizeof id)
        return errno;
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    char *to = text;
    for (size_t i = 0; i < sizeof id; i++)
        to += sprintf(to, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
    strcpy(to, "\n");
    return 0;
}

static int write_draft(void) {
    char text[TEXT_SIZE];
    int error = make_text(text);
    if (error != 0)
        return error;
    unlink(DRAFT);
    int fd = open(DRAFT, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return errno;
    ssize_t written = write(fd, text, TEXT_SIZE - 1);
    error = written == TEXT_SIZE - 1 ? 0 : errno;
    close(fd);
    return error;
}

int boot_id_renew(void) {
    int error = write_draft();
    if (error != 0)
        return error;
    /* A copy of a copy has a mount from before; other sandboxes have none. */
    umount2(SHOWN, MNT_DETACH);
    if (mount(DRAFT, SHOWN, NULL, MS_BIND, NULL) != 0)
        error = errno;
    /* The mount keeps the file, and nothing else needs its name. */
    unlink(DRAFT);
    return error;
}
