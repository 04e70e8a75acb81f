/* The guest's stdout: first replies, then the frames that follow from the state of the streams, in turn. */
#ifndef ATOLL_HOST_OUTPUT_H
#define ATOLL_HOST_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void out_init(void);

/* Queues a frame. While no host listens the frame is dropped: the next host says HELLO and asks again. */
void out_frame(uint8_t type, uint32_t id, const void *payload, size_t length);
__attribute__((format(printf, 3, 4))) void out_failed(uint32_t id, int error, const char *what, ...);

/* A host said HELLO: everything queued or half written is dropped. */
void out_greet(void);
bool out_greeted(void);
/* Queues READY and then sends nothing until the next out_greet. */
void out_prepare(uint32_t id);
/* Sends nothing after what is queued; for a host that speaks another version. */
void out_silence(void);

/* Says whether so much is queued that no more input should be taken. */
bool out_throttled(void);
/* Writes as much as the other end takes, up to a bound. */
void out_pump(void);
/* These say why out_pump stopped: it waits for POLLOUT, it waits for time to pass because the other end is broken,
 * or it stopped only for fairness. */
bool out_wants_poll(uint64_t now_ms);
bool out_broken(uint64_t now_ms);
bool out_unfinished(void);

#endif
