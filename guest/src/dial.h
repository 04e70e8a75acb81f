/* Connections from the host to a port inside. */
#ifndef ATOLL_DIAL_H
#define ATOLL_DIAL_H

#include <stdint.h>

#include "stream.h"
#include "wire.h"

/* Answers FAILED, or STARTED when the connection is established. */
void dial_frame(uint32_t id, struct reader *r);
/* Handles a ready descriptor of a connecting stream: the connection is established, or has failed and the stream is
 * freed. */
void dial_ready(struct stream *s);

#endif
