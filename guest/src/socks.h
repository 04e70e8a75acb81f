/* The client's side of SOCKS5 (RFC 1928): no authentication, CONNECT only. */
#ifndef ATOLL_SOCKS_H
#define ATOLL_SOCKS_H

#include <stddef.h>

#include "asked.h"

#define SOCKS_VERSION 5
#define SOCKS_COMMAND_UNKNOWN 7
#define SOCKS_ADDRESS_UNKNOWN 8
#define SOCKS_FAILURE 1

enum socks_result { SOCKS_MORE, SOCKS_DONE, SOCKS_BAD };

/* `taken`: bytes of the greeting. SOCKS_BAD when the client insists on authentication. */
enum socks_result socks_greeting(const unsigned char *bytes, size_t length, size_t *taken);
/* `taken`: bytes of the request. `code`: what to answer a bad one with. */
enum socks_result socks_request(const unsigned char *bytes, size_t length, size_t *taken, struct asked *wanted, unsigned char *code);

#endif
