/* Hands each frame from the host to the code that handles it. */
#ifndef ATOLL_DISPATCH_H
#define ATOLL_DISPATCH_H

#include <stddef.h>
#include <stdint.h>

void dispatch_frame(uint8_t type, uint32_t id, const uint8_t *payload, size_t length);

#endif
