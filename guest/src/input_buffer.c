#include "input_buffer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST 4096

static bool grow(struct input_buffer *b, size_t needed) {
    size_t capacity = b->capacity > 0 ? b->capacity : FIRST;
    while (capacity < needed)
        capacity *= 2;
    uint8_t *data = malloc(capacity);
    if (data == NULL)
        return false;
    if (b->length > 0)
        memcpy(data, b->data + b->start, b->length);
    free(b->data);
    *b = (struct input_buffer){.data = data, .capacity = capacity, .start = 0, .length = b->length};
    return true;
}

bool input_buffer_add(struct input_buffer *b, const uint8_t *bytes, size_t length) {
    if (length == 0)
        return true;
    if (b->length + length > b->capacity) {
        if (!grow(b, b->length + length))
            return false;
    } else if (b->start + b->length + length > b->capacity) {
        memmove(b->data, b->data + b->start, b->length);
        b->start = 0;
    }
    memcpy(b->data + b->start + b->length, bytes, length);
    b->length += length;
    return true;
}

void input_buffer_drop(struct input_buffer *b, size_t length) {
    b->start += length;
    b->length -= length;
    if (b->length > 0)
        return;
    b->start = 0;
    if (b->capacity > FIRST)
        input_buffer_clear(b);
}

void input_buffer_clear(struct input_buffer *b) {
    free(b->data);
    *b = (struct input_buffer){0};
}
