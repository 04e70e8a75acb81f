#include "watch_seen.h"

#include <string.h>

/* The number of slots is a power of two. */
#define SLOTS 65536
#define PROBES 16

/* Fingerprints; 0 means empty. */
static uint64_t slots[SLOTS];
static bool dirty;

static uint64_t mixed(uint64_t hash, unsigned char byte) {
    return (hash ^ byte) * 1099511628211u;
}

/* The hash is FNV-1a. */
static uint64_t fingerprint(uint32_t node, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (int shift = 0; shift < 32; shift += 8)
        hash = mixed(hash, (unsigned char)(node >> shift));
    for (const char *c = name; *c != 0; c++)
        hash = mixed(hash, (unsigned char)*c);
    hash ^= hash >> 29;
    return hash != 0 ? hash : 1;
}

void seen_clear(void) {
    if (dirty)
        memset(slots, 0, sizeof slots);
    dirty = false;
}

void seen_add(uint32_t node, const char *name) {
    uint64_t hash = fingerprint(node, name);
    dirty = true;
    for (int i = 0; i < PROBES; i++) {
        uint64_t *slot = &slots[(hash + (uint64_t)i) & (SLOTS - 1)];
        if (*slot == 0 || *slot == hash) {
            *slot = hash;
            return;
        }
    }
}

bool seen_take(uint32_t node, const char *name) {
    if (!dirty)
        return false;
    uint64_t hash = fingerprint(node, name);
    for (int i = 0; i < PROBES; i++) {
        uint64_t *slot = &slots[(hash + (uint64_t)i) & (SLOTS - 1)];
        if (*slot == hash) {
            *slot = 0;
            return true;
        }
    }
    return false;
}
