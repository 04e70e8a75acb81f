#include "watched_directories.h"

#include <stdlib.h>
#include <string.h>

/* A power of two, and sparse enough for short searches. */
#define BUCKETS (NODES_MOST * 2)

struct node {
    int watch;
    uint32_t parent;
    /* The next node whose watch has the same hash, or the next free node. */
    uint32_t next;
    uint32_t cookie;
    bool used, detached;
    char *name;
};

static struct node nodes[NODES_MOST];
/* Numbers plus one, so that zeroed memory means empty. */
static uint32_t buckets[BUCKETS];
static uint32_t first_free = NODE_NONE;
static uint32_t count;

static uint32_t *bucket_of(int watch) {
    return &buckets[((uint32_t)watch * 2654435761u) & (BUCKETS - 1)];
}

void watched_clear(void) {
    for (uint32_t i = 0; i < count; i++) {
        free(nodes[i].name);
        nodes[i] = (struct node){0};
    }
    memset(buckets, 0, sizeof buckets);
    first_free = NODE_NONE;
    count = 0;
}

uint32_t watched_of_watch(int watch) {
    for (uint32_t n = *bucket_of(watch); n != 0; n = nodes[n - 1].next)
        if (nodes[n - 1].watch == watch)
            return n - 1;
    return NODE_NONE;
}

uint32_t watched_add(int watch, uint32_t parent, const char *name) {
    char *copy = strdup(name);
    if (copy == NULL)
        return NODE_NONE;
    uint32_t number = first_free != NODE_NONE ? first_free : count;
    if (number == NODES_MOST) {
        free(copy);
        return NODE_NONE;
    }
    if (number == count)
        count++;
    else
        first_free = nodes[number].next;
    uint32_t *bucket = bucket_of(watch);
    nodes[number] = (struct node){.watch = watch, .parent = parent, .next = *bucket, .used = true, .name = copy};
    *bucket = number + 1;
    return number;
}

void watched_drop(uint32_t number) {
    struct node *node = &nodes[number];
    uint32_t *link = bucket_of(node->watch);
    while (*link != number + 1)
        link = &nodes[*link - 1].next;
    *link = node->next;
    free(node->name);
    *node = (struct node){.next = first_free};
    first_free = number;
}

uint32_t watched_child(uint32_t parent, const char *name) {
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i].used && !nodes[i].detached && i != 0 && nodes[i].parent == parent &&
            strcmp(nodes[i].name, name) == 0)
            return i;
    return NODE_NONE;
}

bool watched_move(uint32_t number, uint32_t parent, const char *name) {
    char *copy = strdup(name);
    if (copy == NULL)
        return false;
    free(nodes[number].name);
    nodes[number].name = copy;
    nodes[number].parent = parent;
    nodes[number].detached = false;
    return true;
}

void watched_detach(uint32_t number, uint32_t cookie) {
    nodes[number].detached = true;
    nodes[number].cookie = cookie;
}

uint32_t watched_detached(uint32_t cookie) {
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i].used && nodes[i].detached && nodes[i].cookie == cookie)
            return i;
    return NODE_NONE;
}

/* A parent that was dropped before its child counts as detached: the child will be dropped too. */
bool watched_is_detached(uint32_t number) {
    for (uint32_t steps = 0; number != 0; number = nodes[number].parent)
        if (!nodes[number].used || nodes[number].detached || steps++ > NODES_MOST)
            return true;
    return false;
}

void watched_drop_detached(void (*forget)(int watch)) {
    /* All are marked first, because a node is found to be detached through the nodes above it. */
    for (uint32_t i = 1; i < count; i++)
        if (nodes[i].used && watched_is_detached(i))
            nodes[i].detached = true;
    for (uint32_t i = 1; i < count; i++) {
        if (!nodes[i].used || !nodes[i].detached)
            continue;
        forget(nodes[i].watch);
        watched_drop(i);
    }
}

bool watched_path(uint32_t number, const char *name, char *path, size_t size) {
    /* The path is written from its end, because a node knows only the nodes above it. */
    size_t at = size;
    path[--at] = 0;
    const char *part = name;
    for (;;) {
        size_t length = part == NULL ? 0 : strlen(part);
        bool slash = length > 0 && path[at] != 0;
        if (at < length + (slash ? 1 : 0))
            return false;
        if (slash)
            path[--at] = '/';
        at -= length;
        if (length > 0)
            memcpy(path + at, part, length);
        if (number == 0)
            break;
        part = nodes[number].name;
        number = nodes[number].parent;
    }
    memmove(path, path + at, size - at);
    return true;
}
