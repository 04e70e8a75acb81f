/* File operations as programs of their own: started by init as the user who asks. */
#ifndef ATOLL_TOOL_H
#define ATOLL_TOOL_H

/* `argv[0]` is the tool's name. The result is the exit code: 0 or an errno. */
int tool_main(int argc, char **argv);

#endif
