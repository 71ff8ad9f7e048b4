#include "emu_connection.h"

#include <netinet/in.h>
#include <string.h>

#include "check.h"
#include "memory.h"

void kvr_emu_connections_deinit(struct kvr_emu_connections *connections)
{
    kvr_free(connections->items);
    *connections = (struct kvr_emu_connections){0};
}

static uint16_t peer_port(const struct kvr_client *client)
{
    struct sockaddr_storage peer = {0};
    int len = sizeof peer;
    if (uv_tcp_getpeername(&client->stream.tcp, (struct sockaddr *)&peer, &len) != 0)
        return 0;
    return peer.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&peer)->sin6_port
                                      : ((struct sockaddr_in *)&peer)->sin_port;
}

const struct kvr_emu_connection *kvr_emu_connections_count(struct kvr_emu_connections *connections,
                                                           const struct kvr_client *client)
{
    uv_os_fd_t fd = -1;
    KVR_CHECK(uv_fileno((const uv_handle_t *)&client->stream.tcp, &fd) == 0 && fd >= 0);
    if ((uint32_t)fd >= connections->len) {
        uint32_t len = connections->len ? connections->len : 64;
        while (len <= (uint32_t)fd)
            len *= 2;
        connections->items = kvr_realloc(connections->items, len * sizeof *connections->items);
        memset(connections->items + connections->len, 0,
               (len - connections->len) * sizeof *connections->items);
        connections->len = len;
    }
    struct kvr_emu_connection *connection = &connections->items[fd];
    uint16_t port = peer_port(client);
    if (connection->client != client || connection->port != port || client->stream.bytes_out == 0)
        *connection = (struct kvr_emu_connection){client, ++connections->numbers, 0, port};
    connection->requests++;
    return connection;
}
