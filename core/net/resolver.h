/* Replicas that are given by name: where each name leads now. A name is looked up at an interval,
 * and soon after a connection to its replica failed; a look-up runs in libuv's threads and never
 * holds up the loop.
 *
 * Of several addresses the one in use stays as long as the name has it: answers come in changing
 * order, and a replica's cache is at one address. Only when it cannot be connected to, the next one
 * is tried. A name that leads nowhere, or a look-up that fails, changes nothing.
 *
 * Whoever listens to on_moved opens new connections at the new address; old ones are its to keep.
 */
#ifndef KVR_RESOLVER_H
#define KVR_RESOLVER_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "loop.h"
#include "slice.h"

#define KVR_HOST_MAX          256 /* bytes of a name, its end included */
#define KVR_RESOLVER_OPEN_MAX 8   /* look-ups at once; others wait for their turn */

/* As uv_getaddrinfo, which it is outside of tests. */
typedef int kvr_look_up(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb on_done,
                        const char *host, const char *port, const struct addrinfo *hints);

struct kvr_resolver_options {
    uint64_t refresh_ns;  /* between look-ups of one name; 0: only after failures */
    uint64_t hurry_ns;    /* the same, after a failure; default 1 s */
    kvr_look_up *look_up; /* NULL: uv_getaddrinfo */
};

struct kvr_resolver_counters {
    uint64_t lookups;
    uint64_t failures; /* of those, without an answer */
    uint64_t moves;    /* to another address */
};

struct kvr_resolver_name;

struct kvr_resolver {
    struct kvr_loop *loop;
    struct kvr_resolver_options options; /* defaults filled in */
    struct kvr_resolver_counters counters;
    struct kvr_resolver_name *names; /* by replica slot */
    uint32_t capacity;
    uint32_t open; /* look-ups under way, forgotten ones too */
    void *context;
    void (*on_moved)(void *context, uint32_t slot, const struct sockaddr *address);
    bool closing;
    void *closed_context;
    void (*on_closed)(void *context);
};

void kvr_resolver_start(struct kvr_resolver *resolver, struct kvr_loop *loop, uint32_t capacity,
                        const struct kvr_resolver_options *options, void *context,
                        void (*on_moved)(void *context, uint32_t slot,
                                         const struct sockaddr *address));
/* Once every look-up under way has ended; cancels those that can be. */
void kvr_resolver_close(struct kvr_resolver *resolver, void *context,
                        void (*on_closed)(void *context));

/* Splits "host:port" into terminated texts; KVR_E_INVALID for what is not that. */
int kvr_resolver_split(struct kvr_slice authority, char host[KVR_HOST_MAX], char port[8],
                       struct kvr_error *error);
/* Looks a name up and waits for it: for the start only. */
int kvr_resolver_wait(const struct kvr_resolver *resolver, const char *host, const char *port,
                      struct sockaddr_storage *address, struct kvr_error *error);

/* Follows the name of that slot. `address`: where it leads now; NULL: not known, it is looked up at
 * once. */
void kvr_resolver_follow(struct kvr_resolver *resolver, uint32_t slot, const char *host,
                         const char *port, const struct sockaddr *address);
void kvr_resolver_forget(struct kvr_resolver *resolver, uint32_t slot);
/* Something is wrong with what is at that address. `unreachable`: it could not be connected to, so
 * another address of the name is as good. Slots that are not followed are allowed. */
void kvr_resolver_doubt(struct kvr_resolver *resolver, uint32_t slot, bool unreachable);
/* Starts what is due; to be called a few times a second. */
void kvr_resolver_tick(struct kvr_resolver *resolver, uint64_t now_ns);

#endif
