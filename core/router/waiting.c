/* The part of decide.h that is about requests in the queue. */
#include "decide.h"

#define HELD_TRIES_MAX 16 /* of requests that stay held, before others have their turn */

/* Some replica could take it now. */
static bool has_replica(const struct kvr_router *router, const struct kvr_request_record *record)
{
    const struct kvr_model *model = record->model;
    for (uint32_t i = 0; i < model->members_count; i++) {
        uint32_t slot = model->members[i];
        const struct kvr_replica *replica = &router->replicas.slots[slot];
        if (slot != record->replica && kvr_replica_in_rotation(replica) &&
            !kvr_decide_is_excluded(record, slot) &&
            router->loads[slot].in_flight < replica->capacity)
            return true;
    }
    return false;
}

bool kvr_router_can_move(struct kvr_router *router, struct kvr_request_ref request)
{
    const struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    return record->moves < router->options.moves && has_replica(router, record);
}

static struct kvr_request_ref ref_of(const struct kvr_router *router,
                                     const struct kvr_request_record *record)
{
    return (struct kvr_request_ref){(uint32_t)(record - router->requests.records),
                                    record->generation};
}

/* The first of the queue that has a replica, or of those the shortest. */
static struct kvr_request_record *next_to_go(struct kvr_router *router)
{
    struct kvr_queue *queue = &router->queue;
    struct kvr_request_record *best = NULL;
    for (uint32_t slot = queue->first; slot != KVR_QUEUE_END;) {
        struct kvr_request_record *record = &router->requests.records[slot];
        slot = record->queue_next;
        kvr_model_refresh(&router->models, record->model, &router->replicas);
        /* Nothing has changed since it was last tried: it would only be told so again. */
        if (record->queue_epoch == queue->epoch || !has_replica(router, record))
            continue;
        if (!best || record->uncached_tokens < best->uncached_tokens)
            best = record;
        if (queue->options.order == KVR_QUEUE_FIFO)
            break;
    }
    return best;
}

/* False: there is none to try. */
static bool try_one(struct kvr_router *router)
{
    struct kvr_queue *queue = &router->queue;
    struct kvr_request_record *best = next_to_go(router);
    if (!best)
        return false;
    struct kvr_request_ref request = ref_of(router, best);
    kvr_queue_remove(queue, &router->requests, best, router->now_ns);
    queue->trying = request.slot;
    kvr_decide(router, router->now_ns, request, best->chain);
    queue->trying = KVR_QUEUE_END;
    return true;
}

void kvr_decide_waiting(struct kvr_router *router)
{
    struct kvr_queue *queue = &router->queue;
    struct kvr_request_record *late = kvr_queue_expired(queue, &router->requests, router->now_ns);
    if (late) {
        kvr_queue_remove(queue, &router->requests, late, router->now_ns);
        queue->expired++;
        kvr_decide_reject(router, router->now_ns, ref_of(router, late), KVR_REJECT_QUEUE_DEADLINE);
        return;
    }
    kvr_router_settle(router); /* the view still stands on members and rings as they were */
    for (int tries = 0; tries < HELD_TRIES_MAX && router->actions_count == 0; tries++)
        if (!try_one(router))
            return;
}
