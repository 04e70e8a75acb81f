/* Connections that something inside wants to the outside: asked of the host, relayed when it allows them. */
#ifndef ATOLL_ASKED_H
#define ATOLL_ASKED_H

#include "batch.h"
#include "stream.h"

void asked_emit(struct stream *s, struct batch *b);
void asked_free(struct stream *s);

#endif
