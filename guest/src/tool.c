#include "tool.h"

#include <errno.h>

int tool_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    return ENOSYS;
}
