#include "requests.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "boot_id.h"
#include "file_size_cap.h"
#include "deleted_files.h"
#include "nodes.h"
#include "host_output.h"
#include "proxy.h"
#include "protocol.h"
#include "stream.h"
#include "tasks.h"

#define ENTROPY_SIZE 32

static void answer(uint32_t id, int error, const char *what) {
    if (error == 0)
        out_frame(ATOLL_FRAME_DONE, id, NULL, 0);
    else
        out_failed(id, error, "%s", what);
}

static void on_count(uint32_t id, struct reader without) {
    struct task_counts tasks = tasks_count(without);
    uint8_t payload[20];
    uint8_t *to = put_u32(payload, tasks.all);
    to = put_u32(to, (uint32_t)stream_count());
    to = put_u64(to, stream_memory());
    put_u32(to, tasks.most_of_one_user);
    out_frame(ATOLL_FRAME_COUNTED, id, payload, sizeof payload);
}

/* The kernel of a sandbox may refuse these bytes. It has its own randomness then, so that is no failure. */
static void mix_entropy(const uint8_t *bytes) {
    int fd = open("/dev/urandom", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, bytes, ENTROPY_SIZE) < 0)
        errno = 0;
    close(fd);
}

static bool is_hostname(struct text hostname) {
    char now[HOST_NAME_MAX + 1] = "";
    gethostname(now, sizeof now - 1);
    return strlen(now) == hostname.length && memcmp(now, hostname.at, hostname.length) == 0;
}

static int on_restored(const uint8_t *entropy, struct text hostname) {
    mix_entropy(entropy);
    if (hostname.length == 0 || is_hostname(hostname))
        return 0;
    if (sethostname(hostname.at, hostname.length) != 0)
        return errno;
    /* Only a copy of a sandbox gets another name. A copy works even if its kernel shows the old boot id. */
    boot_id_renew();
    return 0;
}

static bool is_complete(const struct reader *r) {
    return !r->bad && reader_left(r) == 0;
}

bool request_frame(uint8_t type, uint32_t id, struct reader *r) {
    switch (type) {
    case ATOLL_FRAME_PROXY: {
        uint16_t port = read_u16(r);
        if (is_complete(r)) {
            answer(id, proxy_listen(port), "listen on the proxy's port");
            return true;
        }
        break;
    }
    case ATOLL_FRAME_CAP: {
        uint64_t bytes = read_u64(r);
        if (is_complete(r)) {
            answer(id, cap_set(bytes), "set the file size limit of a process");
            return true;
        }
        break;
    }
    case ATOLL_FRAME_COUNT:
        if (!r->bad && reader_left(r) % sizeof(uint32_t) == 0) {
            on_count(id, *r);
            return true;
        }
        break;
    case ATOLL_FRAME_HOLDERS:
    case ATOLL_FRAME_END_HOLDERS: {
        struct text path = read_text(r);
        if (is_complete(r)) {
            deleted_files_answer(id, path, type == ATOLL_FRAME_END_HOLDERS);
            return true;
        }
        break;
    }
    case ATOLL_FRAME_PREPARE:
        if (is_complete(r)) {
            out_prepare(id);
            return true;
        }
        break;
    case ATOLL_FRAME_RESTORED: {
        read_u64(r);
        const uint8_t *entropy = read_bytes(r, ENTROPY_SIZE);
        struct text hostname = read_text(r);
        if (is_complete(r)) {
            answer(id, on_restored(entropy, hostname), "set the host name");
            return true;
        }
        break;
    }
    case ATOLL_FRAME_PING: {
        size_t length = reader_left(r);
        if (length <= ATOLL_MAX_PING) {
            out_frame(ATOLL_FRAME_PONG, id, r->next, length);
            return true;
        }
        break;
    }
    case ATOLL_FRAME_NODES:
        nodes_answer(id, r);
        return true;
    default:
        return false;
    }
    out_failed(id, EBADMSG, "read the request");
    return true;
}
