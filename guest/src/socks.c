#include "socks.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>

enum { ADDRESS_V4 = 1, ADDRESS_NAME = 3, ADDRESS_V6 = 4 };

enum socks_result socks_greeting(const unsigned char *bytes, size_t length, size_t *taken) {
    if (length < 2 || length < 2u + bytes[1])
        return SOCKS_MORE;
    *taken = 2u + bytes[1];
    return memchr(bytes + 2, 0, bytes[1]) != NULL ? SOCKS_DONE : SOCKS_BAD;
}

static bool valid_name(const unsigned char *name, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (name[i] <= ' ' || name[i] >= 0x7f)
            return false;
    return length > 0;
}

enum socks_result socks_request(const unsigned char *bytes, size_t length, size_t *taken, struct egress *wanted,
                                unsigned char *code) {
    size_t address, start = 4;
    if (length < 5)
        return SOCKS_MORE;
    *code = SOCKS_FAILURE;
    if (bytes[0] != SOCKS_VERSION || bytes[2] != 0)
        return SOCKS_BAD;
    *code = SOCKS_COMMAND_UNKNOWN;
    if (bytes[1] != 1)
        return SOCKS_BAD;
    *code = SOCKS_ADDRESS_UNKNOWN;
    switch (bytes[3]) {
    case ADDRESS_V4:
        address = 4;
        break;
    case ADDRESS_V6:
        address = 16;
        break;
    case ADDRESS_NAME:
        address = bytes[4];
        start = 5;
        break;
    default:
        return SOCKS_BAD;
    }
    if (length < start + address + 2)
        return SOCKS_MORE;
    *taken = start + address + 2;
    wanted->protocol = EGRESS_SOCKS5;
    wanted->port = (uint16_t)(bytes[start + address] << 8 | bytes[start + address + 1]);
    *code = SOCKS_FAILURE;
    if (wanted->port == 0)
        return SOCKS_BAD;
    if (bytes[3] != ADDRESS_NAME) {
        inet_ntop(bytes[3] == ADDRESS_V4 ? AF_INET : AF_INET6, bytes + start, wanted->host, sizeof wanted->host);
        return SOCKS_DONE;
    }
    if (!valid_name(bytes + start, address))
        return SOCKS_BAD;
    memcpy(wanted->host, bytes + start, address);
    wanted->host[address] = 0;
    return SOCKS_DONE;
}
