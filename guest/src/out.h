/* The guest's stdout: replies first, then frames that follow from the state of the streams, in turn. */
#ifndef ATOLL_OUT_H
#define ATOLL_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void out_init(void);

/* Queues a frame; dropped while no host listens, who will say HELLO and ask again. */
void out_frame(uint8_t type, uint32_t id, const void *payload, size_t length);
__attribute__((format(printf, 3, 4))) void out_failed(uint32_t id, int error, const char *what, ...);

/* A host said HELLO: everything queued or half written is dropped. */
void out_greet(void);
bool out_greeted(void);
/* Queues READY and then falls silent until the next out_greet. */
void out_prepare(uint32_t id);
/* Falls silent after what is queued; for a host that speaks another version. */
void out_mute(void);

/* So much is queued that no more input should be taken. */
bool out_throttled(void);
/* Writes as much as the other end takes, up to a bound. */
void out_pump(void);
/* What out_pump left undone: POLLOUT will tell, or the clock when the other end is broken, or only fairness made it
 * stop. */
bool out_wants_poll(uint64_t now_ms);
bool out_broken(uint64_t now_ms);
bool out_unfinished(void);

#endif
