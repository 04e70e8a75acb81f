/* The proxy on 127.0.0.1 inside is the only way to the outside. It serves its clients until what they want is known. */
#ifndef ATOLL_PROXY_H
#define ATOLL_PROXY_H

#include <stdint.h>

#include "proxy_reply.h"

/* Returns 0 or an errno. On the port that it has already this does nothing; on another it moves. */
int proxy_listen(uint16_t port);
void proxy_watch(void);
/* Disconnects clients that take too long. */
void proxy_tick(uint64_t now_ms);
uint64_t proxy_due(void);
/* Sends a last answer, and closes when the client has read it or after a while. Takes ownership of `fd`. */
void proxy_close(int fd, const struct reply *reply);

#endif
