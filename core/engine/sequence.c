#include "sequence.h"

#include "check.h"
#include "memory.h"

#define NO_SLOT UINT32_MAX
/* Room for saved gaps that every sequence has from the start: a preemption of a common answer
 * should not be the first to ask for memory. */
#define FIRST_GAPS 64u

void kvr_sequence_pool_init(struct kvr_sequence_pool *pool)
{
    *pool = (struct kvr_sequence_pool){.first_free = NO_SLOT};
}

void kvr_sequence_pool_deinit(struct kvr_sequence_pool *pool)
{
    for (uint32_t i = 0; i < pool->len; i++) {
        kvr_free(pool->slots[i]->hashes);
        kvr_free(pool->slots[i]->blocks);
        kvr_free(pool->slots[i]->gaps);
        kvr_free(pool->slots[i]);
    }
    kvr_free(pool->slots);
}

static struct kvr_sequence *new_slot(struct kvr_sequence_pool *pool)
{
    if (pool->len == pool->capacity) {
        pool->capacity = pool->capacity ? pool->capacity * 2 : 64;
        pool->slots = kvr_realloc(pool->slots, pool->capacity * sizeof(struct kvr_sequence *));
    }
    struct kvr_sequence *sequence = kvr_alloc_zero(1, sizeof *sequence);
    kvr_list_init(&sequence->link);
    kvr_list_init(&sequence->growing);
    kvr_sequence_reserve_gaps(sequence, FIRST_GAPS);
    sequence->slot = pool->len;
    pool->slots[pool->len++] = sequence;
    return sequence;
}

/* A power of two, so that slots of mixed use soon fit everything. */
static uint32_t room(uint32_t wanted)
{
    uint32_t capacity = 64;
    while (capacity < wanted)
        capacity *= 2;
    return capacity;
}

struct kvr_sequence *kvr_sequence_acquire(struct kvr_sequence_pool *pool, uint32_t hashes,
                                          uint32_t blocks)
{
    struct kvr_sequence *sequence;
    if (pool->first_free == NO_SLOT) {
        sequence = new_slot(pool);
    } else {
        sequence = pool->slots[pool->first_free];
        pool->first_free = sequence->next_free;
    }
    KVR_CHECK(sequence->state == KVR_SEQUENCE_FREE);
    pool->in_use++;
    sequence->generation++;
    sequence->state = KVR_SEQUENCE_WAITING;
    if (sequence->hashes_capacity < hashes) {
        sequence->hashes_capacity = room(hashes);
        kvr_free(sequence->hashes);
        sequence->hashes = kvr_alloc(sequence->hashes_capacity * sizeof *sequence->hashes);
    }
    if (sequence->blocks_capacity < blocks) {
        sequence->blocks_capacity = room(blocks);
        kvr_free(sequence->blocks);
        sequence->blocks = kvr_alloc(sequence->blocks_capacity * sizeof *sequence->blocks);
    }
    sequence->hashes_len = 0;
    sequence->blocks_len = 0;
    sequence->registered = 0;
    sequence->computed = 0;
    sequence->generated = 0;
    sequence->chunk = 0;
    sequence->cached_tokens = 0;
    sequence->preemptions = 0;
    sequence->admitted_ns = KVR_NEVER;
    sequence->first_token_ns = KVR_NEVER;
    sequence->gaps_len = 0;
    sequence->gap_p50_ns = 0;
    sequence->gap_max_ns = 0;
    return sequence;
}

void kvr_sequence_release(struct kvr_sequence_pool *pool, struct kvr_sequence *sequence)
{
    KVR_CHECK(sequence->state != KVR_SEQUENCE_FREE && sequence->blocks_len == 0);
    KVR_CHECK(kvr_list_empty(&sequence->link) && kvr_list_empty(&sequence->growing));
    sequence->state = KVR_SEQUENCE_FREE;
    sequence->generation++;
    sequence->next_free = pool->first_free;
    pool->first_free = sequence->slot;
    pool->in_use--;
}

struct kvr_sequence *kvr_sequence_get(const struct kvr_sequence_pool *pool, uint32_t slot,
                                      uint32_t generation)
{
    if (slot >= pool->len || pool->slots[slot]->generation != generation || generation % 2 == 0)
        return NULL;
    return pool->slots[slot];
}

uint64_t *kvr_sequence_reserve_gaps(struct kvr_sequence *sequence, uint64_t more)
{
    uint64_t wanted = sequence->gaps_len + more;
    if (sequence->gaps_capacity < wanted) {
        if (!sequence->gaps_capacity)
            sequence->gaps_capacity = FIRST_GAPS;
        while (sequence->gaps_capacity < wanted)
            sequence->gaps_capacity *= 2;
        sequence->gaps =
            kvr_realloc(sequence->gaps, sequence->gaps_capacity * sizeof *sequence->gaps);
    }
    return sequence->gaps + sequence->gaps_len;
}
