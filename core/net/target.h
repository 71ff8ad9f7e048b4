/* Where the background requests to a replica go. The ingress knows (it resolves names and holds the
 * keys), the prober, the scraper and the model list ask it each time, just before they connect. */
#ifndef KVR_TARGET_H
#define KVR_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "slice.h"

/* Everything here must live only until the asker's next call into the loop: it is copied. */
struct kvr_target {
    const struct sockaddr *address;
    struct kvr_slice authority; /* for Host */
    struct kvr_slice key;       /* the replica's own bearer token; empty: none */
};

struct kvr_target_source {
    void *context;
    /* False: its address is not known now (a name that does not resolve). */
    bool (*on_target)(void *context, uint32_t slot, struct kvr_target *target);
};

#endif
