/* The sequences of a batch that decode. Each gets one token a step, so the set is kept as sums and
 * by appointment: a sequence is looked at in the steps that need a block for it (every 16th, by
 * `growing`) and in the step that ends with its last token (by `finishing`). In between, what it
 * has computed is a matter of counting steps. */
#ifndef KVR_DECODE_SET_H
#define KVR_DECODE_SET_H

#include <stdint.h>

#include "finish_queue.h"
#include "list.h"
#include "profile.h"
#include "sequence.h"

struct kvr_decode_set {
    struct kvr_list growing[KVR_BLOCK_TOKENS]; /* by step % 16 that begins a block; batch order */
    struct kvr_finish_queue finishing;
    uint32_t count;   /* sequences */
    uint32_t hashed;  /* of these, with hashes for blocks that decoding fills */
    uint64_t context; /* sum of their computed tokens at the start of the scheduler's step */
};

void kvr_decode_set_init(struct kvr_decode_set *set, uint32_t capacity);
void kvr_decode_set_deinit(struct kvr_decode_set *set);
/* The sequence decodes from `step` on. Joins come in batch order. */
void kvr_decode_set_join(struct kvr_decode_set *set, struct kvr_sequence *sequence, uint64_t step);
/* It decodes no more from `step` on; its `computed` and `generated` are true again. */
void kvr_decode_set_leave(struct kvr_decode_set *set, struct kvr_sequence *sequence, uint64_t step);

/* Tokens computed and emitted before `step`. */
static inline uint32_t kvr_decode_computed(const struct kvr_sequence *sequence, uint64_t step)
{
    return sequence->computed + (uint32_t)(step - sequence->join_step);
}

static inline uint32_t kvr_decode_generated(const struct kvr_sequence *sequence, uint64_t step)
{
    return sequence->generated + (uint32_t)(step - sequence->join_step);
}

#endif
