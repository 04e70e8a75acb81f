/* The host's side: a container's parent. */
#ifndef ATOLL_LAUNCH_H
#define ATOLL_LAUNCH_H

#include <stdbool.h>

#define LAUNCH_MOUNTS 256
#define LAUNCH_CGROUPS 16

enum mount_kind { MOUNT_OVERLAY, MOUNT_BIND, MOUNT_RBIND_RO };

struct mount_plan {
    enum mount_kind kind;
    const char *target;
    /* OPTIONS of an overlay, SOURCE of the others. */
    const char *from;
};

struct launch_plan {
    const char *directory;
    const char *cgroups[LAUNCH_CGROUPS];
    int cgroup_count;
    /* The one of them that can be frozen; NULL: there can be no deadline. */
    const char *freezer;
    struct mount_plan mounts[LAUNCH_MOUNTS];
    int mount_count;
    /* NULL without --enter. */
    const char *root;
    const char *hostname;
    /* None of the program's threads interrupts another one only because it has been woken. */
    bool batch;
    /* The program and all that it starts can read no extended attributes of open files. */
    bool no_attributes;
    /* Nothing is mounted or started before a byte has come on stdin. */
    bool held;
    char **program;
};

int launch_main(int argc, char **argv);

/* False after telling what is wrong on stderr. */
bool launch_parse(int argc, char **argv, struct launch_plan *plan);

/* Each of these returns NULL, or with errno set what it could not do. */
const char *launch_mounts(const struct launch_plan *plan);
const char *launch_enter(const struct launch_plan *plan);

#endif
