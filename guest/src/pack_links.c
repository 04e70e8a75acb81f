#include "pack_links.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 1024

struct noted {
    dev_t device;
    ino_t inode;
    char *path;
};

/* A hash table with open addressing; at most half of the slots are taken. */
static struct noted *slots;
static size_t slot_count, taken;

static struct noted *slot_of(struct noted *in, size_t count, dev_t device, ino_t inode) {
    size_t at = ((uint64_t)inode ^ ((uint64_t)device << 32)) * UINT64_C(0x9e3779b97f4a7c15) >> 16;
    for (;; at++) {
        struct noted *slot = &in[at & (count - 1)];
        if (slot->path == NULL || (slot->inode == inode && slot->device == device))
            return slot;
    }
}

static bool grow(void) {
    size_t larger_count = slot_count == 0 ? FIRST_SLOTS : slot_count * 2;
    struct noted *larger = calloc(larger_count, sizeof *larger);
    if (larger == NULL)
        return false;
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i].path != NULL)
            *slot_of(larger, larger_count, slots[i].device, slots[i].inode) = slots[i];
    free(slots);
    slots = larger;
    slot_count = larger_count;
    return true;
}

const char *links_find(const struct stat *info) {
    return taken == 0 ? NULL : slot_of(slots, slot_count, info->st_dev, info->st_ino)->path;
}

bool links_note(const struct stat *info, const char *path, const char *name) {
    if (taken * 2 >= slot_count && !grow())
        return false;
    char *copy;
    if (asprintf(&copy, "%s%s%s", path, path[0] == 0 ? "" : "/", name) < 0)
        return false;
    *slot_of(slots, slot_count, info->st_dev, info->st_ino) = (struct noted){info->st_dev, info->st_ino, copy};
    taken++;
    return true;
}

void links_forget_all(void) {
    for (size_t i = 0; i < slot_count; i++)
        free(slots[i].path);
    free(slots);
    slots = NULL;
    slot_count = taken = 0;
}
