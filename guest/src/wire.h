/* Little-endian integers, and bounded reading and writing of payloads. */
#ifndef ATOLL_WIRE_H
#define ATOLL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A read past the end gives zero and sets `bad`, so that a parser checks once, after its last field. */
struct reader {
    const uint8_t *next;
    const uint8_t *end;
    bool bad;
};

struct text {
    const char *at;
    size_t length;
};

struct reader reader_over(const void *bytes, size_t length);
size_t reader_left(const struct reader *r);
uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
/* Returns NULL when fewer bytes are left. */
const uint8_t *read_bytes(struct reader *r, size_t length);
/* A NUL inside sets `bad`: no string of the protocol may have one. */
struct text read_text(struct reader *r);

/* Each writer returns the address after what it wrote; the caller makes sure that there is room. */
uint8_t *put_u8(uint8_t *to, uint8_t value);
uint8_t *put_u16(uint8_t *to, uint16_t value);
uint8_t *put_u32(uint8_t *to, uint32_t value);
uint8_t *put_u64(uint8_t *to, uint64_t value);
uint8_t *put_text(uint8_t *to, const char *text, size_t length);

uint8_t *put_header(uint8_t *to, uint8_t type, uint32_t id, uint32_t length);
uint32_t trailer_of(uint8_t type, uint32_t id, uint32_t length);

#endif
