#include "report.h"

#include "check.h"
#include "memory.h"

void kvr_report_queue_init(struct kvr_report_queue *queue)
{
    *queue = (struct kvr_report_queue){.mask = 255};
    queue->items = kvr_alloc((queue->mask + 1) * sizeof *queue->items);
}

void kvr_report_queue_deinit(struct kvr_report_queue *queue)
{
    kvr_free(queue->items);
}

static void grow(struct kvr_report_queue *queue)
{
    uint32_t capacity = (queue->mask + 1) * 2;
    KVR_CHECK(capacity <= KVR_REPORTS_MAX);
    struct kvr_report *items = kvr_alloc(capacity * sizeof *items);
    for (uint32_t i = 0; i < queue->len; i++)
        items[i] = queue->items[(queue->first + i) & queue->mask];
    kvr_free(queue->items);
    queue->items = items;
    queue->first = 0;
    queue->mask = capacity - 1;
}

struct kvr_report *kvr_report_queue_add(struct kvr_report_queue *queue)
{
    if (queue->len > queue->mask)
        grow(queue);
    return &queue->items[(queue->first + queue->len++) & queue->mask];
}

bool kvr_report_queue_take(struct kvr_report_queue *queue, struct kvr_report *report)
{
    if (!queue->len)
        return false;
    *report = queue->items[queue->first];
    queue->first = (queue->first + 1) & queue->mask;
    queue->len--;
    return true;
}
