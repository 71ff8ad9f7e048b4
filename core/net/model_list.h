/* Which models the fleet serves: asks every replica for GET /v1/models, at once when it is added,
 * comes back up or restarts, and then every interval; reports the names; and answers the merged
 * list from what it holds, so that a slow or failing replica delays nobody.
 *
 * Merged: one entry an id; of several engines that serve it, the object of the one with the
 * smallest max_model_len, whole as that engine wrote it, except `created`, which keeps the value
 * first seen: engines stamp it with the time of the answer. Replicas that are down, off or removed
 * do not count; draining ones do.
 *
 * Bounds: KVR_REPLICA_MODELS_MAX objects a replica, 1 MiB an answer; what is over is counted. */
#ifndef KVR_MODEL_LIST_H
#define KVR_MODEL_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "rounds.h"

struct kvr_model_list_options {
    const char *path;     /* default "/v1/models"; must live as long as the list */
    uint64_t interval_ns; /* default 10 s */
    uint64_t timeout_ns;  /* default 5 s */
};

struct kvr_model_list_events {
    void *context;
    /* What the replica at `slot` serves; the names live only during the call. Not called for slots
     * whose names are fixed. */
    void (*on_models)(void *context, uint32_t slot, const struct kvr_slice *names, uint32_t count);
};

struct kvr_model_list_slot;

struct kvr_model_list {
    struct kvr_rounds rounds;
    struct kvr_model_list_events events;
    struct kvr_model_list_slot *slots; /* by replica slot */
    uint64_t malformed;                /* answers that are no model list */
    uint64_t over_limit;               /* models left out */
};

/* `options` may be NULL. */
void kvr_model_list_start(struct kvr_model_list *list, struct kvr_loop *loop,
                          const struct kvr_replica_table *replicas,
                          const struct kvr_model_list_options *options,
                          const struct kvr_target_source *source,
                          const struct kvr_model_list_events *events);
/* The fleet changed: a replica was added or removed, came up or went down. A name that is removed
 * and added again is another replica if this was called in between. */
void kvr_model_list_wake(struct kvr_model_list *list);
/* The operator says what the member at `slot` serves. It is still asked, for the objects; names it
 * does not list get an object of ours. `unix_s` is their `created`. */
void kvr_model_list_fix(struct kvr_model_list *list, uint32_t slot, const struct kvr_slice *names,
                        uint32_t count, uint64_t unix_s);
/* Appends {"object":"list","data":[...]}. */
void kvr_model_list_merged(const struct kvr_model_list *list, struct kvr_buffer *out);
/* The loop must run once more before the memory of the list goes. */
void kvr_model_list_close(struct kvr_model_list *list);

#endif
