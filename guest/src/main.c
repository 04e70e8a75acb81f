#include <stdio.h>
#include <string.h>

#include "archive.h"
#include "checkpoint.h"
#include "init.h"
#include "launch.h"
#include "merge.h"
#include "protocol.h"
#include "tool.h"

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "";
    if (strcmp(role, "init") == 0)
        init_main();
    if (strcmp(role, "tool") == 0)
        return tool_main(argc - 2, argv + 2);
    if (strcmp(role, "launch") == 0)
        return launch_main(argc - 2, argv + 2);
    if (strcmp(role, "merge") == 0)
        return merge_main(argc - 2, argv + 2);
    if (strcmp(role, "pack") == 0)
        return pack_main(argc - 2, argv + 2);
    if (strcmp(role, "stamp") == 0)
        return stamp_main(argc - 2, argv + 2);
    if (strcmp(role, "unpack") == 0)
        return unpack_main(argc - 2, argv + 2);
    if (strcmp(role, "checkpoint") == 0)
        return checkpoint_main(argc - 2, argv + 2);
    if (strcmp(role, "--version") == 0) {
        printf("%d\n", ATOLL_VERSION);
        return 0;
    }
    fprintf(stderr, "Usage: atoll-guest init | tool NAME ARGUMENT... | launch OPTION... |\n"
                    "       merge LOWER UPPER TARGET LINKS [BELOW]... |\n"
                    "       pack [--stamp | --durable-stamp | --living] DIRECTORY... |\n"
                    "       stamp DIRECTORY... [-- DIRECTORY...]... | unpack DIRECTORY... |\n"
                    "       checkpoint SOCKET DIRECTORY NAME OUTCOME REQUEST | --version\n");
    return 2;
}
