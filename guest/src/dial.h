/* Connections from the host to a port inside. */
#ifndef ATOLL_DIAL_H
#define ATOLL_DIAL_H

#include <stdint.h>

#include "stream.h"
#include "wire.h"

/* Answers FAILED, or STARTED when the connection stands. */
void dial_frame(uint32_t id, struct reader *r);
/* The descriptor of a connecting stream is ready: it stands, or has failed and is freed. */
void dial_ready(struct stream *s);

#endif
