/* Processes after their start: the signals and limits that lead to their end, and how they ended. */
#ifndef ATOLL_PROCESS_H
#define ATOLL_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "stream.h"

void process_started(struct stream *s, pid_t pid, uint32_t limit_ms, uint32_t grace_ms);
/* Reaps every child that has ended, our own or adopted. */
void process_reap(void);
/* `scope` is as in SIGNAL. */
void process_signal(struct stream *s, int signal, uint32_t scope);
/* Does what is due. May free a released stream. */
void process_tick(struct stream *s, uint64_t now_ms);
/* Returns the time when something is due next, 0 for never. */
uint64_t process_due(const struct stream *s);
/* Must be called after output was read, because an exit may have waited for that. May free a released stream. */
void process_settle(struct stream *s);

#endif
