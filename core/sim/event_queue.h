/* What is yet to happen, by time: a heap of four children a node. Events of one time come out by
 * class, and within a class in the order in which they went in, so that a run is one sequence. */
#ifndef KVR_EVENT_QUEUE_H
#define KVR_EVENT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct kvr_sim_event {
    uint64_t time_ns;
    uint64_t order; /* class in the highest bits, then a serial number */
    uint32_t kind;  /* the caller's */
    uint32_t a;     /* the caller's */
    uint64_t b;     /* the caller's */
};

struct kvr_event_queue {
    struct kvr_sim_event *heap; /* owned */
    uint32_t len;
    uint32_t capacity;
    uint64_t serial; /* of the next event: among equal times the one that came first is first */
};

void kvr_event_queue_init(struct kvr_event_queue *queue);
void kvr_event_queue_deinit(struct kvr_event_queue *queue);
/* `late`: after all others of its time. */
void kvr_event_queue_add(struct kvr_event_queue *queue, uint64_t time_ns, bool late, uint32_t kind,
                         uint32_t a, uint64_t b);
/* Takes the first out; the queue is not empty. */
struct kvr_sim_event kvr_event_queue_take(struct kvr_event_queue *queue);

/* UINT64_MAX when empty. */
static inline uint64_t kvr_event_queue_time(const struct kvr_event_queue *queue)
{
    return queue->len ? queue->heap[0].time_ns : UINT64_MAX;
}

#endif
