/* Where a socket listens or connects, as text: "host:port" with a numeric host or localhost,
 * "[v6]:port", or "fd:N", a socket that was handed over as descriptor N. */
#ifndef KVR_ADDRESS_H
#define KVR_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

#include "error.h"

#define KVR_ADDRESS_TEXT 64 /* bytes that hold any numeric one */

/* Splits "host:port" and resolves a numeric host, or looks where descriptor N of "fd:N" is bound,
 * which must be a TCP socket; KVR_E_INVALID with the reason. */
int kvr_address_parse(const char *address, struct sockaddr_storage *out, struct kvr_error *error);
/* The descriptor of "fd:N", or -1. */
int kvr_address_descriptor(const char *address);
/* "host:port" or "[v6]:port" of an IPv4 or IPv6 address. */
void kvr_address_name(const struct sockaddr_storage *address, char *out, size_t size);

#endif
