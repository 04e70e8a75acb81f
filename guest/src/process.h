/* Processes after their start: their end, the signals and limits that lead to it, and the truth about it. */
#ifndef ATOLL_PROCESS_H
#define ATOLL_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "stream.h"

void process_started(struct stream *s, pid_t pid, uint32_t limit_ms, uint32_t grace_ms);
/* Reaps every child that has ended, ours or adopted. */
void process_reap(void);
/* `scope` as in SIGNAL. */
void process_signal(struct stream *s, int signal, uint32_t scope);
/* Does what is due and returns when something is due next, 0 for never. May free a released stream. */
uint64_t process_tick(struct stream *s, uint64_t now_ms);
/* To be called when output was read: an exit may have waited for it. May free a released stream. */
void process_settle(struct stream *s);

#endif
