/* Requests that wait for a replica: all that could serve them are at their caps, or the policy said
 * HOLD. Off by default: without a queue they are refused at once.
 *
 * A place in the queue is bounded in number and in time. Requests are tried again when something
 * has changed (a request ended, a replica came back), in order, and the first that has a replica
 * goes: one model's full replicas do not hold up another's requests. One that the policy holds once
 * more goes to the end, so that those it does not hold have their turn; its time runs on.
 * `shortest` takes the fewest tokens still to prefill first, which is fairest to the mean and not
 * to the long.
 *
 * Links are slots of the request table. */
#ifndef KVR_QUEUE_H
#define KVR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "request.h"

enum kvr_queue_order { KVR_QUEUE_FIFO, KVR_QUEUE_SHORTEST };

struct kvr_queue_options {
    uint32_t max;         /* requests that may wait; 0: off */
    uint64_t deadline_ns; /* of one; 0: 30 s */
    enum kvr_queue_order order;
};

struct kvr_queue {
    struct kvr_queue_options options;
    uint32_t first, last; /* KVR_QUEUE_END: empty */
    uint32_t count;
    uint32_t trying; /* slot of one that has been taken out to be decided on; else KVR_QUEUE_END */
    uint64_t epoch;  /* changes of the fleet or its load, ever */
    uint64_t due_ns; /* no deadline is before it */
    uint64_t queued, refused, expired;
};

#define KVR_QUEUE_END UINT32_MAX

void kvr_queue_init(struct kvr_queue *queue, const struct kvr_queue_options *options);

/* False: it is off or full. A copy of the chain is kept in the record until the request ends. One
 * that is being tried has never left. */
bool kvr_queue_add(struct kvr_queue *queue, struct kvr_request_table *requests,
                   struct kvr_request_ref request, const uint64_t *chain, uint64_t now_ns);
void kvr_queue_remove(struct kvr_queue *queue, struct kvr_request_table *requests,
                      struct kvr_request_record *record, uint64_t now_ns);
/* One whose deadline has passed, or NULL. */
struct kvr_request_record *kvr_queue_expired(struct kvr_queue *queue,
                                             const struct kvr_request_table *requests,
                                             uint64_t now_ns);

#endif
