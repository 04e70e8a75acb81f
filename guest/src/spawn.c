#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "file_size_cap.h"
#include "child.h"
#include "host_output.h"
#include "process.h"
#include "protocol.h"
#include "pty.h"
#include "stream.h"
#include "undo.h"
#include "user.h"
#include "wire.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define KNOWN_FLAGS (ATOLL_SPAWN_PTY | ATOLL_SPAWN_STDIN | ATOLL_SPAWN_TOOL)
/* This is large enough that a fast writer seldom waits for the guest. */
#define OUTPUT_PIPE_SIZE (1 << 20)
/* A string takes at least four bytes of payload; the rest is what the guest itself adds. */
#define MOST_STRINGS (ATOLL_MAX_TO_GUEST / 4 + 16)

struct request {
    uint32_t flags, window, limit_ms, grace_ms;
    uint16_t rows, columns;
    const char *user, *directory;
};

/* Requests are parsed and started one at a time, so their data can be in static memory. */
static char text[ATOLL_MAX_TO_GUEST];
static size_t text_used;
static char *strings[MOST_STRINGS];
static char additions[6][PATH_MAX + 16];
static struct child_plan plan;
static struct user user;
static struct rlimit files;
static int null_fd = -1, self_fd = -1;

/* Root inside must not have these capabilities. The guest keeps them to set the host name and the limits of other
 * processes. */
static const int withheld[] = {CAP_SYS_ADMIN, CAP_SYS_RESOURCE};

void spawn_init(const struct rlimit *inherited_files) {
    files = *inherited_files;
    for (size_t i = 0; i < sizeof withheld / sizeof withheld[0]; i++)
        if (geteuid() == 0 && prctl(PR_CAPBSET_READ, withheld[i], 0, 0, 0) == 1)
            plan.withheld[plan.withheld_count++] = withheld[i];
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    self_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
}

/* Each string with its terminator is shorter than it was in the payload, so `text` cannot overflow. */
static char *keep(struct text t) {
    char *at = text + text_used;
    memcpy(at, t.at, t.length);
    at[t.length] = 0;
    text_used += t.length + 1;
    return at;
}

static bool parse_limits(struct reader *r) {
    uint32_t count = read_u32(r);
    memset(plan.limited, 0, sizeof plan.limited);
    for (uint32_t i = 0; i < count && !r->bad; i++) {
        uint32_t resource = read_u32(r);
        struct rlimit limit = {.rlim_cur = read_u64(r), .rlim_max = read_u64(r)};
        if (resource >= CHILD_LIMITS)
            return false;
        plan.limited[resource] = true;
        plan.limits[resource] = limit;
    }
    return true;
}

/* Reads a counted list of strings to `at`, and stores their number in `count`. */
static void parse_strings(struct reader *r, char **at, size_t *count) {
    uint32_t wanted = read_u32(r);
    *count = 0;
    while (*count < wanted && !r->bad) {
        struct text t = read_text(r);
        if (!r->bad)
            at[(*count)++] = keep(t);
    }
}

static const char *value_of(char **environment, size_t count, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=')
            return environment[i] + length + 1;
    return NULL;
}

/* Adds variables that the environment lacks; `environment` has room for them. */
static void complete_environment(char **environment, size_t count, uint32_t id) {
    const char *defaults[][2] = {
        {"HOME", user.home}, {"USER", user.name}, {"LOGNAME", user.name}, {"SHELL", user.shell}, {"PATH", DEFAULT_PATH},
    };
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environment[i], "ATOLL_STREAM=", 13) != 0)
            environment[kept++] = environment[i];
    count = kept;
    size_t given = count;
    for (size_t i = 0; i < 5; i++) {
        if (value_of(environment, given, defaults[i][0]) != NULL)
            continue;
        snprintf(additions[i], sizeof additions[i], "%s=%s", defaults[i][0], defaults[i][1]);
        environment[count++] = additions[i];
    }
    snprintf(additions[5], sizeof additions[5], "ATOLL_STREAM=%u", id);
    environment[count++] = additions[5];
    environment[count] = NULL;
    plan.envp = environment;
    plan.path = value_of(environment, count, "PATH");
}

static void complete_limits(struct stream *s, bool tool) {
    if (tool)
        plan.limited[RLIMIT_NPROC] = false;
    /* The guest raised its own limit for its many descriptors; no other process gets that limit. */
    if (!plan.limited[RLIMIT_NOFILE]) {
        plan.limited[RLIMIT_NOFILE] = true;
        plan.limits[RLIMIT_NOFILE] = files;
    }
    if (plan.limited[RLIMIT_FSIZE])
        s->process.file_size_limit = plan.limits[RLIMIT_FSIZE].rlim_max;
    cap_apply(&plan.limited[RLIMIT_FSIZE], &plan.limits[RLIMIT_FSIZE]);
}

static int open_pipe(int *mine, int *theirs, bool to_child) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    *mine = ends[to_child ? 1 : 0];
    *theirs = ends[to_child ? 0 : 1];
    fcntl(*mine, F_SETFL, O_NONBLOCK);
    if (!to_child)
        fcntl(*mine, F_SETPIPE_SZ, OUTPUT_PIPE_SIZE);
    return 0;
}

static int open_terminal(struct stream *s, const struct request *request) {
    struct pty pty;
    int error = pty_open(&pty, request->rows, request->columns, user.uid);
    if (error != 0)
        return error;
    s->process.pty = true;
    s->out_fd[0] = pty.master;
    plan.terminal = plan.out_fd = plan.err_fd = pty.slave;
    if (!(request->flags & ATOLL_SPAWN_STDIN))
        return 0;
    plan.in_fd = pty.slave;
    s->in_fd = fcntl(pty.master, F_DUPFD_CLOEXEC, 3);
    return s->in_fd < 0 ? errno : 0;
}

static int open_descriptors(struct stream *s, const struct request *request) {
    plan.in_fd = null_fd;
    plan.out_fd = plan.err_fd = plan.terminal = plan.extra_fd = -1;
    if ((request->flags & ATOLL_SPAWN_TOOL) && strcmp(strings[2], "write") == 0) {
        s->process.undo = undo_new(&user, &plan.extra_fd);
        if (s->process.undo == NULL)
            return errno;
    }
    if (request->flags & ATOLL_SPAWN_PTY)
        return open_terminal(s, request);
    int error = open_pipe(&s->out_fd[0], &plan.out_fd, false);
    if (error == 0)
        error = open_pipe(&s->out_fd[1], &plan.err_fd, false);
    if (error == 0 && (request->flags & ATOLL_SPAWN_STDIN))
        error = open_pipe(&s->in_fd, &plan.in_fd, true);
    return error;
}

static void close_theirs(void) {
    if (plan.in_fd >= 0 && plan.in_fd != null_fd && plan.in_fd != plan.out_fd)
        close(plan.in_fd);
    if (plan.out_fd >= 0)
        close(plan.out_fd);
    if (plan.err_fd >= 0 && plan.err_fd != plan.out_fd)
        close(plan.err_fd);
    if (plan.extra_fd >= 0)
        close(plan.extra_fd);
}

static void answer_failed_step(uint32_t id, const struct request *request) {
    int error = plan.error;
    switch (plan.failed) {
    case STEP_EXEC:
        out_failed(id, error, "exec %s", plan.program >= 0 ? "the guest's own program" : plan.argv[0]);
        break;
    case STEP_DIRECTORY:
        out_failed(id, error, "change to directory %s", plan.directory);
        break;
    case STEP_USER:
        out_failed(id, error, "become user %s", request->user);
        break;
    case STEP_CAPABILITIES:
        out_failed(id, error, "give capabilities up");
        break;
    case STEP_LIMITS:
        out_failed(id, error, "set limit %d", plan.limit_failed);
        break;
    case STEP_NONE:
    case STEP_SESSION:
    case STEP_DESCRIPTORS:
    case STEP_TERMINAL:
        out_failed(id, error, "prepare the process");
        break;
    }
}

/* Returns true when the process runs. Otherwise FAILED is queued and the stream is of no more use. */
static bool start(struct stream *s, const struct request *request) {
    complete_limits(s, request->flags & ATOLL_SPAWN_TOOL);
    int error = open_descriptors(s, request);
    if (error != 0) {
        out_failed(s->id, error, "open descriptors for the process");
        close_theirs();
        return false;
    }
    if (!(request->flags & ATOLL_SPAWN_STDIN)) {
        s->input = INPUT_CLOSED;
        s->closed_sent = true;
    }
    pid_t pid = child_start(&plan);
    error = errno;
    close_theirs();
    if (pid < 0) {
        out_failed(s->id, error, "start a process");
        return false;
    }
    if (plan.failed != STEP_NONE) {
        answer_failed_step(s->id, request);
        return false;
    }
    process_started(s, pid, request->limit_ms, request->grace_ms);
    return true;
}

/* Fills `request` and `plan`. Returns 0, or an errno after FAILED was queued. */
static int parse(uint32_t id, struct reader *r, struct request *request) {
    request->flags = read_u32(r);
    request->window = read_u32(r);
    request->limit_ms = read_u32(r);
    request->grace_ms = read_u32(r);
    request->rows = read_u16(r);
    request->columns = read_u16(r);
    text_used = 0;
    request->user = keep(read_text(r));
    request->directory = keep(read_text(r));
    bool limits_known = parse_limits(r);
    bool tool = request->flags & ATOLL_SPAWN_TOOL;
    size_t argument_count, environment_count;
    char **arguments = strings + (tool ? 2 : 0);
    parse_strings(r, arguments, &argument_count);
    char **environment = arguments + argument_count + 1;
    parse_strings(r, environment, &environment_count);
    if (limits_known && (r->bad || reader_left(r) > 0)) {
        out_failed(id, EBADMSG, "read the request");
        return EBADMSG;
    }
    if (!limits_known || argument_count == 0 || request->window > ATOLL_WINDOW_MAX || (request->flags & ~KNOWN_FLAGS)) {
        out_failed(id, EINVAL, "understand the request");
        return EINVAL;
    }
    arguments[argument_count] = NULL;
    strings[0] = tool ? "atoll-guest" : strings[0];
    strings[1] = tool ? "tool" : strings[1];
    plan.argv = strings;
    plan.program = tool ? self_fd : -1;
    if (tool && self_fd < 0) {
        out_failed(id, ENOEXEC, "find the guest's own program");
        return ENOEXEC;
    }
    if (user_find(request->user, &user) != 0) {
        out_failed(id, ENOENT, "find user %s", request->user);
        return ENOENT;
    }
    complete_environment(environment, environment_count, id);
    return 0;
}

void spawn_frame(uint32_t id, const uint8_t *payload, size_t length) {
    struct request request;
    struct reader r = reader_over(payload, length);
    if (id == 0 || (id & ATOLL_GUEST_ID_BIT)) {
        out_failed(id, EINVAL, "use stream id %u", id);
        return;
    }
    if (stream_find(id) != NULL) {
        out_failed(id, EEXIST, "use stream id %u", id);
        return;
    }
    if (parse(id, &r, &request) != 0)
        return;
    plan.directory = request.directory[0] != 0 ? request.directory : user.home;
    plan.directory_required = request.directory[0] != 0;
    plan.uid = user.uid;
    plan.gid = user.gid;
    plan.group_count = user.group_count;
    memcpy(plan.groups, user.groups, user.group_count * sizeof user.groups[0]);
    plan.same_user = geteuid() != 0 && user.uid == geteuid();
    struct stream *s = stream_new(id, KIND_PROCESS, request.window);
    if (s == NULL) {
        out_failed(id, errno, "make a stream");
        return;
    }
    if (!start(s, &request))
        stream_free(s);
}
