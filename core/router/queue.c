#include "queue.h"

#include <string.h>

#include "memory.h"

#define DEADLINE_DEFAULT_NS 30000000000u

void kvr_queue_init(struct kvr_queue *queue, const struct kvr_queue_options *options)
{
    *queue = (struct kvr_queue){.options = *options,
                                .first = KVR_QUEUE_END,
                                .last = KVR_QUEUE_END,
                                .trying = KVR_QUEUE_END,
                                .epoch = 1,
                                .due_ns = UINT64_MAX};
    if (queue->options.deadline_ns == 0)
        queue->options.deadline_ns = DEADLINE_DEFAULT_NS;
}

static void append(struct kvr_queue *queue, struct kvr_request_table *requests, uint32_t slot)
{
    struct kvr_request_record *record = &requests->records[slot];
    record->queue_next = KVR_QUEUE_END;
    record->queue_previous = queue->last;
    if (queue->last == KVR_QUEUE_END)
        queue->first = slot;
    else
        requests->records[queue->last].queue_next = slot;
    queue->last = slot;
    queue->count++;
}

bool kvr_queue_add(struct kvr_queue *queue, struct kvr_request_table *requests,
                   struct kvr_request_ref request, const uint64_t *chain, uint64_t now_ns)
{
    struct kvr_request_record *record = kvr_request_at(requests, request);
    KVR_CHECK(!record->queued);
    if (queue->count >= queue->options.max) {
        queue->refused += queue->options.max != 0;
        return false;
    }
    if (record->chain_len && chain != record->chain) {
        size_t size = record->chain_len * sizeof *chain;
        record->chain = kvr_realloc(record->chain, size);
        memcpy(record->chain, chain, size);
    }
    if (request.slot == queue->trying) {
        record->waited_ns -= now_ns - record->queued_ns;
    } else {
        record->queued_ns = now_ns;
        queue->queued++;
    }
    record->queued = true;
    record->queue_epoch = queue->epoch;
    uint64_t deadline_ns = record->queued_ns + queue->options.deadline_ns;
    queue->due_ns = deadline_ns < queue->due_ns ? deadline_ns : queue->due_ns;
    append(queue, requests, request.slot);
    return true;
}

void kvr_queue_remove(struct kvr_queue *queue, struct kvr_request_table *requests,
                      struct kvr_request_record *record, uint64_t now_ns)
{
    KVR_CHECK(record->queued && queue->count > 0);
    if (record->queue_previous == KVR_QUEUE_END)
        queue->first = record->queue_next;
    else
        requests->records[record->queue_previous].queue_next = record->queue_next;
    if (record->queue_next == KVR_QUEUE_END)
        queue->last = record->queue_previous;
    else
        requests->records[record->queue_next].queue_previous = record->queue_previous;
    record->queued = false;
    record->waited_ns += now_ns - record->queued_ns;
    queue->count--;
}

struct kvr_request_record *kvr_queue_expired(struct kvr_queue *queue,
                                             const struct kvr_request_table *requests,
                                             uint64_t now_ns)
{
    if (now_ns < queue->due_ns)
        return NULL;
    uint64_t due_ns = UINT64_MAX;
    for (uint32_t slot = queue->first; slot != KVR_QUEUE_END;) {
        struct kvr_request_record *record = &requests->records[slot];
        uint64_t deadline_ns = record->queued_ns + queue->options.deadline_ns;
        if (now_ns >= deadline_ns)
            return record; /* others may be late, too: due_ns stays */
        due_ns = deadline_ns < due_ns ? deadline_ns : due_ns;
        slot = record->queue_next;
    }
    queue->due_ns = due_ns;
    return NULL;
}
