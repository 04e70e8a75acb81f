/* Takes the place of a function of the C library, which is called before main. */
#ifndef ATOLL_ORIGIN_H
#define ATOLL_ORIGIN_H

const char *_dl_get_origin(void);

#endif
