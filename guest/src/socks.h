/* The server's side of SOCKS5 (RFC 1928), as our clients use it: no authentication, CONNECT only. */
#ifndef ATOLL_SOCKS_H
#define ATOLL_SOCKS_H

#include <stddef.h>

#include "egress.h"

#define SOCKS_VERSION 5
#define SOCKS_COMMAND_UNKNOWN 7
#define SOCKS_ADDRESS_UNKNOWN 8
#define SOCKS_FAILURE 1

enum socks_result { SOCKS_MORE, SOCKS_DONE, SOCKS_BAD };

/* Sets `taken` to the bytes of the greeting. Returns SOCKS_BAD when the client insists on authentication. */
enum socks_result socks_greeting(const unsigned char *bytes, size_t length, size_t *taken);
/* Sets `taken` to the bytes of the request, and `code` to the answer for a bad one. */
enum socks_result socks_request(const unsigned char *bytes, size_t length, size_t *taken, struct egress *wanted,
                                unsigned char *code);

#endif
