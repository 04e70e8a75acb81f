/* This host tool has a sandbox write its memory, as `runsc checkpoint` does, without the time that runsc takes to
 * start. */
#ifndef ATOLL_CHECKPOINT_H
#define ATOLL_CHECKPOINT_H

int checkpoint_main(int argc, char **argv);

#endif
