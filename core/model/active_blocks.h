/* Which blocks the prompts in flight on each replica have: of each pair (replica, block), how many
 * of those prompts begin with it. A running engine keeps these in memory, each once, however many
 * of its requests share it; so this is how much of its memory a router knows to be in use.
 *
 *   in flight on r0:  b0 b1 b2     b0 b1 b3          distinct 4
 *   a prompt  b0 b1 b3 b4:  leading blocks among them 3, so with it r0 would have 4 + 1
 *
 * Whoever has a block has those before it, so the leading run of a prompt is found by halving.
 * A pair takes 16 bytes of a table that is at most half full; what no longer fits under `pairs_max`
 * is not counted, and said. Two pairs with one 64-bit hash would be taken for one. */
#ifndef KVR_ACTIVE_BLOCKS_H
#define KVR_ACTIVE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"

#define KVR_ACTIVE_PAIRS_DEFAULT (1u << 21) /* 64 MiB of table when full */

struct kvr_active_pair {
    uint64_t hash;  /* of replica and block; 0: the place is empty */
    uint32_t count; /* prompts */
};

struct kvr_active_blocks {
    struct kvr_active_pair *pairs; /* mask + 1; NULL before the first prompt */
    uint32_t *distinct;            /* by replica slot */
    uint32_t replicas_max;
    uint32_t pairs_max;
    uint32_t used;    /* pairs in the table */
    uint32_t mask;    /* room of the table, a power of two, less 1 */
    uint64_t refused; /* prompts that did not fit */
};

/* `pairs_max` 0: the default. */
void kvr_active_blocks_init(struct kvr_active_blocks *active, uint32_t replicas_max,
                            uint32_t pairs_max);
void kvr_active_blocks_deinit(struct kvr_active_blocks *active);

/* A prompt is in flight on that replica. False: it does not fit and must not be removed. */
bool kvr_active_blocks_add(struct kvr_active_blocks *active, uint32_t replica,
                           const uint64_t *chain, uint32_t len) KVR_MUST_USE;
/* It is no longer: the same chain as was added. */
void kvr_active_blocks_remove(struct kvr_active_blocks *active, uint32_t replica,
                              const uint64_t *chain, uint32_t len);
/* How many leading blocks of the chain prompts in flight on that replica have. */
uint32_t kvr_active_blocks_match(const struct kvr_active_blocks *active, uint32_t replica,
                                 const uint64_t *chain, uint32_t len);
/* Distinct blocks of all of them. */
static inline uint32_t kvr_active_blocks_distinct(const struct kvr_active_blocks *active,
                                                  uint32_t replica)
{
    return active->distinct[replica];
}

#endif
