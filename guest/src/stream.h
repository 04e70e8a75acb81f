/*
 * A stream: a process, a dialled connection or an egress connection. This file has the record, its table, and how bytes
 * and the frames that follow from its state pass through it; process.c, dial.c and egress.c have how each kind begins
 * and ends.
 */
#ifndef ATOLL_STREAM_H
#define ATOLL_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "input_buffer.h"
#include "protocol.h"
#include "ring.h"
#include "wire.h"

enum stream_kind { KIND_PROCESS = 1, KIND_DIALLED = 2, KIND_EGRESS = 3 };

enum input_state {
    INPUT_OPEN,
    /* The host has said where the end is; the reader gets it after the bytes before it. */
    INPUT_ENDING,
    INPUT_ENDED,
    /* The reader is gone, or there never was one. */
    INPUT_CLOSED,
};

struct undo;

/* What the EXIT of a reaped process waits for. */
enum exit_wait { WAIT_FOR_NOTHING, WAIT_FOR_GROUP, WAIT_FOR_DESCENDANTS };

struct process {
    pid_t pid;
    bool pty;
    bool reaped, exited, group_gone;
    bool limit_reached;
    enum exit_wait wait;
    /* Bytes that were in each output when the process was reaped and are not read yet. */
    uint64_t undrained[2];
    bool draining;
    uint64_t exit_at;
    uint8_t exit[ATOLL_EXIT_SIZE];
    /* Milliseconds of the monotonic clock; 0 means none. */
    uint64_t limit_at, kill_at, check_at;
    /* No process has the terminal open, but the stream's process lives: the terminal is not polled before this time. */
    uint64_t hung_until;
    uint32_t grace_ms, check_ms;
    /* The RLIMIT_FSIZE of the SPAWN request. */
    uint64_t file_size_limit;
    /* Set only for a tool that may leave something behind. */
    struct undo *undo;
};

struct egress;

struct stream {
    uint32_t id;
    enum stream_kind kind;
    bool attached, released;
    /* The stream is a dialled connection that is not connected yet. */
    bool connecting;
    /* Outputs 1 and 2; -1 when ended or absent. A connection and a pty have one, and a second descriptor of it as
     * `in_fd`. */
    int out_fd[2];
    int in_fd;
    /* `readable`: the output is known to have bytes. `owed`: bytes of the other output that were there before, and
     * are read first. */
    bool readable[2];
    uint64_t owed[2];
    enum input_state input;
    uint64_t in_received, in_handed, in_sent;
    uint8_t in_last;
    bool closed_sent, exit_sent, end_sent;
    struct process process;
    /* Set only for an egress connection that waits for its verdict. */
    struct egress *egress;
    struct input_buffer in;
    struct ring out;
};

/* Returns NULL with errno on failure: EEXIST, EAGAIN when there are too many, ENOMEM. A new stream is attached if a
 * host is listening. */
struct stream *stream_new(uint32_t id, enum stream_kind kind, uint32_t window);
struct stream *stream_find(uint32_t id);
struct stream *stream_of_pid(pid_t pid);
void stream_free(struct stream *s);
int stream_count(void);
struct stream *stream_nth(int n);
/* Returns the bytes of buffers that all streams have. */
uint64_t stream_memory(void);

bool stream_output_ended(const struct stream *s);
bool stream_input_done(const struct stream *s);
/* Says whether the stream has ended and nothing more can come of it. */
bool stream_over(const struct stream *s);
void stream_close_output(struct stream *s, int output);
void stream_close_input(struct stream *s);
/*
 * Called when the other side of a terminal is closed. While the process lives the terminal is kept: to close it would
 * kill, by SIGHUP, a process that is about to end by itself, and the terminal may be opened again. Returns false when
 * there is no reason to keep it.
 */
bool stream_keep_terminal(struct stream *s);

/*
 * Notes that output 0 or 1 has something to read. A process that writes to both writes in some order, which is kept as
 * well as two pipes allow: bytes that were in one pipe when the other was found readable are read first.
 */
void stream_ready(struct stream *s, int output);
/* Says whether it is this output's turn, if it is known to have bytes. */
bool stream_has_turn(const struct stream *s, int output);
/* Reads once into the ring. */
void stream_read(struct stream *s, int output);
/* Writes buffered input to the reader inside. */
void stream_write(struct stream *s);
void stream_take_input(struct stream *s, uint64_t offset, const uint8_t *data, size_t length);
void stream_end_input(struct stream *s, uint64_t offset);

/* Forgets what was sent to the last host: WELCOME brings the new host up to date. */
void stream_detach(struct stream *s);
bool stream_attach(struct stream *s, uint64_t at);
void stream_release(struct stream *s);
void stream_resize(struct stream *s, uint16_t rows, uint16_t columns);
uint8_t *stream_entry(const struct stream *s, uint8_t *to);

#endif
