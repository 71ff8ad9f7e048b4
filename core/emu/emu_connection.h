/* Which connection a request came on, and the how manieth of it it is: for the log, and for servers
 * that close after so many requests. Kept by descriptor, which is small and never shared by two
 * live connections; a descriptor's next connection is told by its peer's port. */
#ifndef KVR_EMU_CONNECTION_H
#define KVR_EMU_CONNECTION_H

#include <stdint.h>

#include "client.h"

struct kvr_emu_connection {
    const struct kvr_client *client; /* to compare, not to follow */
    uint64_t number;                 /* of the replica's connections, from 1 */
    uint32_t requests;               /* so far */
    uint16_t port;                   /* of the peer */
};

struct kvr_emu_connections {
    struct kvr_emu_connection *items; /* owned; by descriptor */
    uint32_t len;
    uint64_t numbers; /* connections seen */
};

void kvr_emu_connections_deinit(struct kvr_emu_connections *connections);
/* Counts a request; valid until the next call. */
const struct kvr_emu_connection *kvr_emu_connections_count(struct kvr_emu_connections *connections,
                                                           const struct kvr_client *client);

#endif
