#include "wire.h"

#include <string.h>

#include "protocol.h"

struct reader reader_over(const void *bytes, size_t length) {
    const uint8_t *start = bytes;
    return (struct reader){.next = start, .end = start + length, .bad = false};
}

size_t reader_left(const struct reader *r) {
    return (size_t)(r->end - r->next);
}

const uint8_t *read_bytes(struct reader *r, size_t length) {
    if (r->bad || reader_left(r) < length) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->next;
    r->next += length;
    return at;
}

static uint64_t read_little(struct reader *r, size_t size) {
    const uint8_t *at = read_bytes(r, size);
    uint64_t value = 0;
    for (size_t i = 0; at != NULL && i < size; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

uint8_t read_u8(struct reader *r) {
    return (uint8_t)read_little(r, 1);
}

uint16_t read_u16(struct reader *r) {
    return (uint16_t)read_little(r, 2);
}

uint32_t read_u32(struct reader *r) {
    return (uint32_t)read_little(r, 4);
}

uint64_t read_u64(struct reader *r) {
    return read_little(r, 8);
}

struct text read_text(struct reader *r) {
    uint32_t length = read_u32(r);
    const uint8_t *at = read_bytes(r, length);
    if (at == NULL)
        return (struct text){"", 0};
    if (memchr(at, 0, length) != NULL) {
        r->bad = true;
        return (struct text){"", 0};
    }
    return (struct text){(const char *)at, length};
}

static uint8_t *put_little(uint8_t *to, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)(value >> (8 * i));
    return to + size;
}

uint8_t *put_u8(uint8_t *to, uint8_t value) {
    return put_little(to, value, 1);
}

uint8_t *put_u16(uint8_t *to, uint16_t value) {
    return put_little(to, value, 2);
}

uint8_t *put_u32(uint8_t *to, uint32_t value) {
    return put_little(to, value, 4);
}

uint8_t *put_u64(uint8_t *to, uint64_t value) {
    return put_little(to, value, 8);
}

uint8_t *put_text(uint8_t *to, const char *text, size_t length) {
    to = put_u32(to, (uint32_t)length);
    if (length > 0)
        memcpy(to, text, length);
    return to + length;
}

uint8_t *put_header(uint8_t *to, uint8_t type, uint32_t id, uint32_t length) {
    to = put_u32(to, ATOLL_MAGIC);
    to = put_u32(to, length);
    to = put_u32(to, type);
    return put_u32(to, id);
}

uint32_t trailer_of(uint8_t type, uint32_t id, uint32_t length) {
    return ~(length ^ id ^ type);
}
