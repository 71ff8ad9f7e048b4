#include "finish_queue.h"

#include <stdbool.h>

#include "check.h"
#include "memory.h"

void kvr_finish_queue_init(struct kvr_finish_queue *queue, uint32_t capacity)
{
    *queue = (struct kvr_finish_queue){.capacity = capacity};
    queue->items = kvr_alloc(capacity * sizeof(struct kvr_sequence *));
}

void kvr_finish_queue_deinit(struct kvr_finish_queue *queue)
{
    kvr_free(queue->items);
}

static bool before(const struct kvr_sequence *a, const struct kvr_sequence *b)
{
    if (a->last_step != b->last_step)
        return a->last_step < b->last_step;
    return a->order < b->order;
}

static void place(struct kvr_finish_queue *queue, uint32_t at, struct kvr_sequence *sequence)
{
    queue->items[at] = sequence;
    sequence->heap_at = at;
}

static void sift_up(struct kvr_finish_queue *queue, uint32_t at, struct kvr_sequence *sequence)
{
    while (at > 0 && before(sequence, queue->items[(at - 1) / 2])) {
        place(queue, at, queue->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(queue, at, sequence);
}

static void sift_down(struct kvr_finish_queue *queue, uint32_t at, struct kvr_sequence *sequence)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= queue->len)
            break;
        if (child + 1 < queue->len && before(queue->items[child + 1], queue->items[child]))
            child++;
        if (!before(queue->items[child], sequence))
            break;
        place(queue, at, queue->items[child]);
        at = child;
    }
    place(queue, at, sequence);
}

void kvr_finish_queue_add(struct kvr_finish_queue *queue, struct kvr_sequence *sequence)
{
    KVR_CHECK(queue->len < queue->capacity);
    sift_up(queue, queue->len++, sequence);
}

void kvr_finish_queue_remove(struct kvr_finish_queue *queue, struct kvr_sequence *sequence)
{
    uint32_t at = sequence->heap_at;
    KVR_CHECK(at < queue->len && queue->items[at] == sequence);
    struct kvr_sequence *last = queue->items[--queue->len];
    if (last == sequence)
        return;
    if (at > 0 && before(last, queue->items[(at - 1) / 2]))
        sift_up(queue, at, last);
    else
        sift_down(queue, at, last);
}
