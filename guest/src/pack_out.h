/* Output streams that gather bytes into large writes. A stream that is not open ignores all bytes. */
#ifndef ATOLL_PACK_OUT_H
#define ATOLL_PACK_OUT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "archive.h"

#define OUT_BUFFER (256 * 1024)

struct out {
    int fd;
    /* The first errno; nothing is written after it. */
    int error;
    size_t used;
    uint8_t buffer[OUT_BUFFER];
};

void out_bytes(struct out *out, const void *bytes, size_t length);
void out_u16(struct out *out, uint16_t value);
void out_u32(struct out *out, uint32_t value);
void out_u64(struct out *out, uint64_t value);
void out_tag(struct out *out, enum archive_tag tag);
void out_name(struct out *out, const char *name);
void out_attributes(struct out *out, const struct stat *info);
/* Returns 0 or an errno. */
int out_flush(struct out *out);

#endif
