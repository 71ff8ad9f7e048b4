#include "event_queue.h"

#include "check.h"
#include "memory.h"

#define CHILDREN 4u
#define LATE     (UINT64_C(1) << 63)

void kvr_event_queue_init(struct kvr_event_queue *queue)
{
    *queue = (struct kvr_event_queue){.capacity = 256};
    queue->heap = kvr_alloc(queue->capacity * sizeof *queue->heap);
}

void kvr_event_queue_deinit(struct kvr_event_queue *queue)
{
    kvr_free(queue->heap);
    queue->heap = NULL;
}

static inline bool before(const struct kvr_sim_event *a, const struct kvr_sim_event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

void kvr_event_queue_add(struct kvr_event_queue *queue, uint64_t time_ns, bool late, uint32_t kind,
                         uint32_t a, uint64_t b)
{
    if (queue->len == queue->capacity) {
        KVR_CHECK(queue->capacity < UINT32_MAX / 2);
        queue->capacity *= 2;
        queue->heap = kvr_realloc(queue->heap, queue->capacity * sizeof *queue->heap);
    }
    struct kvr_sim_event event = {time_ns, (late ? LATE : 0) | queue->serial++, kind, a, b};
    uint32_t at = queue->len++;
    while (at > 0) {
        uint32_t parent = (at - 1) / CHILDREN;
        if (!before(&event, &queue->heap[parent]))
            break;
        queue->heap[at] = queue->heap[parent];
        at = parent;
    }
    queue->heap[at] = event;
}

struct kvr_sim_event kvr_event_queue_take(struct kvr_event_queue *queue)
{
    KVR_CHECK(queue->len > 0);
    struct kvr_sim_event first = queue->heap[0];
    struct kvr_sim_event last = queue->heap[--queue->len];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = at * CHILDREN + 1;
        if (child >= queue->len)
            break;
        uint32_t end = child + CHILDREN < queue->len ? child + CHILDREN : queue->len;
        uint32_t least = child;
        for (uint32_t other = child + 1; other < end; other++)
            if (before(&queue->heap[other], &queue->heap[least]))
                least = other;
        if (!before(&queue->heap[least], &last))
            break;
        queue->heap[at] = queue->heap[least];
        at = least;
    }
    queue->heap[at] = last;
    return first;
}
