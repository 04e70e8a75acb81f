#include "pack_out.h"

#include <string.h>

#include "tool.h"
#include "wire.h"

int out_flush(struct out *out) {
    if (out->error == 0 && out->used > 0)
        out->error = write_all(out->fd, out->buffer, out->used);
    out->used = 0;
    return out->error;
}

void out_bytes(struct out *out, const void *bytes, size_t length) {
    if (out->fd < 0)
        return;
    if (length > sizeof out->buffer - out->used)
        out_flush(out);
    if (length > sizeof out->buffer) {
        if (out->error == 0)
            out->error = write_all(out->fd, bytes, length);
        return;
    }
    memcpy(out->buffer + out->used, bytes, length);
    out->used += length;
}

void out_u16(struct out *out, uint16_t value) {
    uint8_t bytes[2];
    put_u16(bytes, value);
    out_bytes(out, bytes, sizeof bytes);
}

void out_u32(struct out *out, uint32_t value) {
    uint8_t bytes[4];
    put_u32(bytes, value);
    out_bytes(out, bytes, sizeof bytes);
}

void out_u64(struct out *out, uint64_t value) {
    uint8_t bytes[8];
    put_u64(bytes, value);
    out_bytes(out, bytes, sizeof bytes);
}

void out_tag(struct out *out, enum archive_tag tag) {
    uint8_t byte = (uint8_t)tag;
    out_bytes(out, &byte, 1);
}

void out_name(struct out *out, const char *name) {
    uint8_t length = (uint8_t)strlen(name);
    out_bytes(out, &length, 1);
    out_bytes(out, name, length);
}

void out_attributes(struct out *out, const struct stat *info) {
    out_u32(out, info->st_uid);
    out_u32(out, info->st_gid);
    out_u16(out, info->st_mode & 07777);
    out_u64(out, (uint64_t)info->st_mtim.tv_sec);
    out_u32(out, (uint32_t)info->st_mtim.tv_nsec);
}
