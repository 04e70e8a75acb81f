/* Replaces a function of the C library that is called before main. */
#ifndef ATOLL_DL_ORIGIN_H
#define ATOLL_DL_ORIGIN_H

const char *_dl_get_origin(void);

#endif
