#include "pollset.h"

#include <poll.h>
#include <stddef.h>

#include "protocol.h"

/* Three for each stream, and a few for the loop and the proxy. */
#define MOST (ATOLL_MAX_STREAMS * 3 + 128)

static struct pollfd polls[MOST];
static struct {
    poll_serve serve;
    void *subject;
    int role;
} owners[MOST];
static int count;

void pollset_clear(void) {
    count = 0;
}

void pollset_add(int fd, short events, poll_serve serve, void *subject, int role) {
    if (fd < 0 || count == MOST)
        return;
    polls[count] = (struct pollfd){.fd = fd, .events = events};
    owners[count].serve = serve;
    owners[count].subject = subject;
    owners[count].role = role;
    count++;
}

bool pollset_wait(int timeout_ms) {
    return poll(polls, (nfds_t)count, timeout_ms) >= 0;
}

void pollset_serve(void) {
    for (int i = 0; i < count; i++)
        if (polls[i].revents != 0 && owners[i].serve != NULL)
            owners[i].serve(owners[i].subject, owners[i].role, polls[i].revents);
    count = 0;
}

void pollset_forget(const void *subject) {
    for (int i = 0; i < count; i++)
        if (owners[i].subject == subject)
            owners[i].serve = NULL;
}
