/* Frames that ask the guest as a whole and are answered at once. */
#ifndef ATOLL_REQUESTS_H
#define ATOLL_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* Returns false when the type is not one of these. */
bool request_frame(uint8_t type, uint32_t id, struct reader *r);

#endif
