#include "address.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

int kvr_address_descriptor(const char *address)
{
    char *end = NULL;
    if (strncmp(address, "fd:", 3) != 0)
        return -1;
    long fd = strtol(address + 3, &end, 10);
    return end == address + 3 || *end || fd < 0 || fd > INT_MAX ? -1 : (int)fd;
}

static int look_where_bound(int fd, struct sockaddr_storage *out, struct kvr_error *error)
{
    int type = 0;
    socklen_t type_len = sizeof type;
    socklen_t len = sizeof *out;
    memset(out, 0, sizeof *out);
    bool is_tcp = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0 &&
                  type == SOCK_STREAM && getsockname(fd, (struct sockaddr *)out, &len) == 0 &&
                  (out->ss_family == AF_INET || out->ss_family == AF_INET6);
    return is_tcp ? 0
                  : kvr_error_set(error, KVR_E_INVALID,
                                  "descriptor %d, handed over, is no TCP socket", fd);
}

int kvr_address_parse(const char *address, struct sockaddr_storage *out, struct kvr_error *error)
{
    int fd = kvr_address_descriptor(address);
    if (fd >= 0)
        return look_where_bound(fd, out, error);
    char host[INET6_ADDRSTRLEN + 1];
    const char *colon = strrchr(address, ':');
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 65536;
    if (!colon || end == colon + 1 || *end || port > 65535)
        return kvr_error_set(error, KVR_E_INVALID, "\"%s\" is not host:port", address);
    bool v6 = address[0] == '[' && colon > address && colon[-1] == ']';
    const char *start = v6 ? address + 1 : address;
    size_t len = (size_t)(colon - start) - (v6 ? 1 : 0);
    if (len >= sizeof host)
        return kvr_error_set(error, KVR_E_INVALID, "host of \"%s\" is too long", address);
    memcpy(host, start, len);
    host[len] = '\0';
    if (strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    memset(out, 0, sizeof *out);
    int rc = v6 ? uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)out)
                : uv_ip4_addr(host[0] ? host : "0.0.0.0", (int)port, (struct sockaddr_in *)out);
    if (rc)
        return kvr_error_set(error, KVR_E_INVALID, "\"%s\" is not a numeric address", address);
    return 0;
}

void kvr_address_name(const struct sockaddr_storage *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        uv_ip6_name(in6, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        uv_ip4_name(in, host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(in->sin_port));
    }
}
