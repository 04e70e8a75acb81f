/* This host tool starts a container and stays as its parent. */
#ifndef ATOLL_LAUNCH_H
#define ATOLL_LAUNCH_H

#include <stdbool.h>

#define LAUNCH_MOUNTS 256
#define LAUNCH_CGROUPS 16

enum mount_kind { MOUNT_OVERLAY, MOUNT_BIND, MOUNT_RBIND_RO };

struct mount_plan {
    enum mount_kind kind;
    const char *target;
    /* The OPTIONS of an overlay, the SOURCE of other mounts. */
    const char *from;
};

struct launch_plan {
    const char *directory;
    const char *cgroups[LAUNCH_CGROUPS];
    int cgroup_count;
    /* The one of `cgroups` that can be frozen. With NULL there can be no deadline. */
    const char *freezer;
    struct mount_plan mounts[LAUNCH_MOUNTS];
    int mount_count;
    /* The root to enter; NULL without --enter. */
    const char *root;
    const char *hostname;
    /* No thread of the program preempts another one only because it was woken. */
    bool batch;
    /* The program and its descendants cannot read extended attributes of open files. */
    bool no_attributes;
    /* The launcher mounts and starts nothing before a byte has come on stdin. */
    bool waits;
    char **program;
};

int launch_main(int argc, char **argv);

/* Returns false after it has written to stderr what is wrong. */
bool launch_parse(int argc, char **argv, struct launch_plan *plan);

/* Each of these returns NULL, or the step that failed, with errno set. */
const char *launch_mounts(const struct launch_plan *plan);
const char *launch_enter(const struct launch_plan *plan);

#endif
