/* Decoding sequences by the step that ends with their last token, those of one step in batch order:
 * a binary heap whose places are written into the sequences, so that any can leave early. */
#ifndef KVR_FINISH_QUEUE_H
#define KVR_FINISH_QUEUE_H

#include <stdint.h>

#include "sequence.h"

struct kvr_finish_queue {
    struct kvr_sequence **items; /* owned array of borrowed sequences */
    uint32_t len;
    uint32_t capacity;
};

void kvr_finish_queue_init(struct kvr_finish_queue *queue, uint32_t capacity);
void kvr_finish_queue_deinit(struct kvr_finish_queue *queue);
void kvr_finish_queue_add(struct kvr_finish_queue *queue, struct kvr_sequence *sequence);
void kvr_finish_queue_remove(struct kvr_finish_queue *queue, struct kvr_sequence *sequence);

/* The next to finish; NULL when nothing decodes. */
static inline struct kvr_sequence *kvr_finish_queue_first(const struct kvr_finish_queue *queue)
{
    return queue->len ? queue->items[0] : NULL;
}

#endif
