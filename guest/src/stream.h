/*
 * A stream: a process, a dialled connection or an asked connection. This file knows the record, its table, and how
 * bytes and the frames that follow from its state pass through it; how each kind begins and ends stands in process.c,
 * dial.c and asked.c.
 */
#ifndef ATOLL_STREAM_H
#define ATOLL_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "inbuf.h"
#include "protocol.h"
#include "ring.h"
#include "wire.h"

enum stream_kind { KIND_PROCESS = 1, KIND_DIALLED = 2, KIND_ASKED = 3 };

enum input_state {
    INPUT_OPEN,
    /* The host has said where the end is; it is handed on after the bytes before it. */
    INPUT_ENDING,
    INPUT_ENDED,
    /* The reader is gone, or there never was one. */
    INPUT_CLOSED,
};

struct undo;

/* What holds the EXIT of a reaped process back. */
enum hold { HOLD_NONE, HOLD_GROUP, HOLD_FOLLOWERS };

struct process {
    pid_t pid;
    bool pty;
    bool reaped, exited, group_gone;
    bool limit_reached;
    enum hold hold;
    /* Bytes that were in each output at the reap and have yet to be read. */
    uint64_t undrained[2];
    bool draining;
    uint64_t exit_at;
    uint8_t exit[ATOLL_EXIT_SIZE];
    /* Milliseconds of the monotonic clock; 0: none. */
    uint64_t limit_at, kill_at, check_at;
    /* Nobody has the terminal open, but its process lives: not looked at before then. */
    uint64_t hung_until;
    uint32_t grace_ms, check_ms;
    /* What SPAWN asked for as RLIMIT_FSIZE. */
    uint64_t file_size_limit;
    /* Only of a tool that may leave something behind. */
    struct undo *undo;
};

struct asked;

struct stream {
    uint32_t id;
    enum stream_kind kind;
    bool attached, released;
    /* A dialled connection that is not connected yet. */
    bool connecting;
    /* Outputs 1 and 2; -1 when ended or absent. A connection and a pty have one, and a second descriptor of it as
     * `in_fd`. */
    int out_fd[2];
    int in_fd;
    /* The output is known to have bytes. Those of the other that were there before, and are to be read first. */
    bool readable[2];
    uint64_t owed[2];
    enum input_state input;
    uint64_t in_received, in_handed, in_sent;
    uint8_t in_last;
    bool closed_sent, exit_sent, end_sent;
    struct process process;
    /* Only of an asked connection that waits for its verdict. */
    struct asked *asked;
    struct inbuf in;
    struct ring out;
};

/* NULL with errno: EEXIST, EAGAIN when there are too many, ENOMEM. A new stream is attached if a host is listening. */
struct stream *stream_new(uint32_t id, enum stream_kind kind, uint32_t window);
struct stream *stream_find(uint32_t id);
struct stream *stream_of_pid(pid_t pid);
void stream_free(struct stream *s);
int stream_count(void);
struct stream *stream_nth(int n);
/* Bytes held for all streams. */
uint64_t stream_memory(void);

bool stream_output_ended(const struct stream *s);
bool stream_input_done(const struct stream *s);
/* Ended in every sense: nothing more can come of it. */
bool stream_over(const struct stream *s);
void stream_close_output(struct stream *s, int output);
void stream_close_input(struct stream *s);
/*
 * The other side of a terminal is closed. While the process lives the terminal is kept: to close it would kill, by
 * SIGHUP, a process that is just about to end by itself, and it may be opened again. False when there is no reason to
 * keep it.
 */
bool stream_keep_terminal(struct stream *s);

/*
 * Output 0 or 1 has something to read. A process that writes to both writes in some order; it is kept as well as two
 * pipes allow: what was in the one when the other was found to have bytes is read before those.
 */
void stream_ready(struct stream *s, int output);
/* Whether it is this output's turn, if it is known to have bytes. */
bool stream_has_turn(const struct stream *s, int output);
/* Reads once into the ring. */
void stream_read(struct stream *s, int output);
/* Hands buffered input on. */
void stream_write(struct stream *s);
void stream_take_input(struct stream *s, uint64_t offset, const uint8_t *data, size_t length);
void stream_end_input(struct stream *s, uint64_t offset);

/* Forgets what was told to the last host: WELCOME tells the new one. */
void stream_detach(struct stream *s);
bool stream_attach(struct stream *s, uint64_t at);
void stream_release(struct stream *s);
void stream_resize(struct stream *s, uint16_t rows, uint16_t columns);
uint8_t *stream_entry(const struct stream *s, uint8_t *to);

#endif
