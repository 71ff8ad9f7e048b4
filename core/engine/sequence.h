/* One request inside the engine, and the pool that sequences live in.
 *
 *            +--------- preempted ---------+
 *            v                             |
 *   FREE -> WAITING -> PREFILL -> DECODE --+--> DONE -> FREE
 *                        |                       ^
 *                        +--- (one token only) --+
 *
 * DONE sequences have left the batch and hold no blocks; they wait for their last event to be read.
 * An abort leads from any of the middle three straight to FREE. Sequences are reused, last freed
 * first, and keep the memory of their tables, so that a warm engine allocates nothing. */
#ifndef KVR_SEQUENCE_H
#define KVR_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"

#define KVR_NEVER UINT64_MAX

enum kvr_sequence_state {
    KVR_SEQUENCE_FREE,
    KVR_SEQUENCE_WAITING,
    KVR_SEQUENCE_PREFILL,
    KVR_SEQUENCE_DECODE,
    KVR_SEQUENCE_DONE,
};

struct kvr_sequence {
    struct kvr_list link;    /* WAITING: the queue; PREFILL, DECODE: the batch */
    struct kvr_list growing; /* DECODE: those that need a block in the same steps (mod 16) */
    enum kvr_sequence_state state;
    uint32_t slot;       /* in the pool */
    uint32_t generation; /* odd while in use */
    uint32_t next_free;  /* FREE: slot; UINT32_MAX ends */

    uint64_t id; /* the caller's */
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* how many it will generate */
    uint8_t reason;         /* enum kvr_finish_reason, of its end */

    uint64_t order;     /* grows with each admission: the batch is in this order */
    uint32_t computed;  /* tokens whose KV is held; while DECODE: at join_step */
    uint32_t generated; /* tokens emitted; while DECODE: at join_step */
    uint32_t chunk;     /* PREFILL: tokens scheduled in the running step */
    uint64_t join_step; /* DECODE: first step that it decodes in */
    uint64_t last_step; /* DECODE: the step that ends with its last token */
    uint32_t heap_at;   /* DECODE: place in the finish queue */

    uint64_t *hashes; /* owned; of its full blocks, prompt first */
    uint32_t hashes_len;
    uint32_t hashes_capacity;
    uint32_t *blocks; /* owned; the blocks it has pinned, in order */
    uint32_t blocks_len;
    uint32_t blocks_capacity;
    uint32_t registered; /* leading blocks that were found or offered to the cache */

    uint32_t cached_tokens; /* found at first admission */
    uint32_t preemptions;
    uint64_t submitted_ns;
    uint64_t admitted_ns;    /* KVR_NEVER before */
    uint64_t first_token_ns; /* KVR_NEVER before */
    uint64_t last_token_ns;  /* only set when an interruption begins */

    uint64_t gap_step; /* DECODE: first step whose duration is a gap of it */
    uint64_t *gaps;    /* owned; gaps before the last interruption, ns */
    uint64_t gaps_len;
    uint64_t gaps_capacity;
    uint64_t gap_p50_ns; /* DONE */
    uint64_t gap_max_ns; /* DONE */
};

struct kvr_sequence_pool {
    struct kvr_sequence **slots; /* owned, and each sequence too: their addresses are stable */
    uint32_t len;
    uint32_t capacity;
    uint32_t first_free; /* UINT32_MAX: none */
    uint32_t in_use;
};

void kvr_sequence_pool_init(struct kvr_sequence_pool *pool);
void kvr_sequence_pool_deinit(struct kvr_sequence_pool *pool);
/* A cleared sequence, WAITING, with room for its hashes and blocks. */
struct kvr_sequence *kvr_sequence_acquire(struct kvr_sequence_pool *pool, uint32_t hashes,
                                          uint32_t blocks);
void kvr_sequence_release(struct kvr_sequence_pool *pool, struct kvr_sequence *sequence);
/* NULL when the slot has moved on. */
struct kvr_sequence *kvr_sequence_get(const struct kvr_sequence_pool *pool, uint32_t slot,
                                      uint32_t generation);
/* Room for `more` further saved gaps; returns where they go. */
uint64_t *kvr_sequence_reserve_gaps(struct kvr_sequence *sequence, uint64_t more);

/* Tokens that must be computed before the next one can be emitted. */
static inline uint32_t kvr_sequence_goal(const struct kvr_sequence *sequence)
{
    return sequence->prompt_tokens + sequence->generated;
}

#endif
