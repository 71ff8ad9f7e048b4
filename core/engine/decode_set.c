#include "decode_set.h"

#include <stdbool.h>

#include "check.h"

void kvr_decode_set_init(struct kvr_decode_set *set, uint32_t capacity)
{
    *set = (struct kvr_decode_set){0};
    for (int i = 0; i < KVR_BLOCK_TOKENS; i++)
        kvr_list_init(&set->growing[i]);
    kvr_finish_queue_init(&set->finishing, capacity);
}

void kvr_decode_set_deinit(struct kvr_decode_set *set)
{
    kvr_finish_queue_deinit(&set->finishing);
}

static bool fills_hashed_blocks(const struct kvr_sequence *sequence)
{
    return sequence->hashes_len > sequence->registered;
}

void kvr_decode_set_join(struct kvr_decode_set *set, struct kvr_sequence *sequence, uint64_t step)
{
    KVR_CHECK(sequence->state == KVR_SEQUENCE_PREFILL);
    KVR_CHECK(sequence->generated > 0 && sequence->generated < sequence->output_tokens);
    sequence->state = KVR_SEQUENCE_DECODE;
    sequence->join_step = step;
    sequence->last_step = step + (sequence->output_tokens - sequence->generated) - 1;
    kvr_list_append(&set->growing[(step - sequence->computed) % KVR_BLOCK_TOKENS],
                    &sequence->growing);
    kvr_finish_queue_add(&set->finishing, sequence);
    set->count++;
    set->hashed += fills_hashed_blocks(sequence);
    set->context += sequence->computed;
}

void kvr_decode_set_leave(struct kvr_decode_set *set, struct kvr_sequence *sequence, uint64_t step)
{
    KVR_CHECK(sequence->state == KVR_SEQUENCE_DECODE && set->count > 0);
    kvr_list_remove(&sequence->growing);
    kvr_finish_queue_remove(&set->finishing, sequence);
    set->hashed -= fills_hashed_blocks(sequence);
    sequence->generated = kvr_decode_generated(sequence, step);
    sequence->computed = kvr_decode_computed(sequence, step);
    set->context -= sequence->computed;
    set->count--;
}
