#ifndef ATOLL_SPAWN_H
#define ATOLL_SPAWN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

/* Opens what every child needs, before a process inside can have moved it. */
void spawn_init(const struct rlimit *inherited_files);
/* Answers STARTED or FAILED. */
void spawn_frame(uint32_t id, const uint8_t *payload, size_t length);

#endif
