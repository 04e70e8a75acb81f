#include <stdio.h>
#include <string.h>

#include "launch.h"

static const char usage[] =
    "Usage: atoll-guest launch --dir DIR [--cgroup DIR]... [--freezer DIR] [--overlay TARGET OPTIONS]...\n"
    "                          [--bind SOURCE TARGET]... [--rbind-ro SOURCE TARGET]... [--enter ROOT HOSTNAME]\n"
    "                          [--batch] [--no-attributes] [--wait] -- PROGRAM ARGUMENT...\n";

static bool add_mount(struct launch_plan *plan, enum mount_kind kind, const char *target, const char *from) {
    if (plan->mount_count == LAUNCH_MOUNTS)
        return false;
    plan->mounts[plan->mount_count++] = (struct mount_plan){kind, target, from};
    return true;
}

/* Returns how many arguments the option at `argv` has, itself included; 0 when it is unknown. */
static int parse_option(int argc, char **argv, struct launch_plan *plan) {
    const char *name = argv[0];
    if (strcmp(name, "--wait") == 0) {
        plan->waits = true;
        return 1;
    }
    if (strcmp(name, "--batch") == 0) {
        plan->batch = true;
        return 1;
    }
    if (strcmp(name, "--no-attributes") == 0) {
        plan->no_attributes = true;
        return 1;
    }
    if (argc >= 2 && strcmp(name, "--dir") == 0) {
        plan->directory = argv[1];
        return 2;
    }
    if (argc >= 2 && strcmp(name, "--cgroup") == 0 && plan->cgroup_count < LAUNCH_CGROUPS) {
        plan->cgroups[plan->cgroup_count++] = argv[1];
        return 2;
    }
    if (argc >= 2 && strcmp(name, "--freezer") == 0) {
        plan->freezer = argv[1];
        return 2;
    }
    if (argc < 3)
        return 0;
    if (strcmp(name, "--overlay") == 0)
        return add_mount(plan, MOUNT_OVERLAY, argv[1], argv[2]) ? 3 : 0;
    if (strcmp(name, "--bind") == 0)
        return add_mount(plan, MOUNT_BIND, argv[2], argv[1]) ? 3 : 0;
    if (strcmp(name, "--rbind-ro") == 0)
        return add_mount(plan, MOUNT_RBIND_RO, argv[2], argv[1]) ? 3 : 0;
    if (strcmp(name, "--enter") == 0) {
        plan->root = argv[1];
        plan->hostname = argv[2];
        return 3;
    }
    return 0;
}

bool launch_parse(int argc, char **argv, struct launch_plan *plan) {
    int at = 0;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        int taken = parse_option(argc - at, argv + at, plan);
        if (taken == 0) {
            fprintf(stderr, "Cannot understand %s\n%s", argv[at], usage);
            return false;
        }
        at += taken;
    }
    if (plan->directory == NULL || at + 1 >= argc) {
        fprintf(stderr, "%s", usage);
        return false;
    }
    plan->program = argv + at + 1;
    return true;
}
