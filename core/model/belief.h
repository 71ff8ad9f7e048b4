/* Beliefs: which replicas hold a block, as pairs (tenancy, stamp) in the block and, from the ninth
 * holder on, in overflow lines chained to it.
 *
 *   block  | t s | t s | t s | t s | t s | t s | t s | -> 41 |     line 41  | t s | t s |  -  ...
 *
 * Pairs are dense: a block fills its places first, then the head line; lines behind it are full. A
 * pair is live while its stamp is fresh and its tenancy has not ended. Lapsed pairs are dropped
 * when their block is admitted again or goes.
 *
 * Along a chain the stamps of one holder fall with depth: whoever is sent a block is sent those
 * before it too, and they take later stamps. So a holder that is fresh in one block of a chain is
 * fresh in all blocks before it that it holds. (Two prompts with one hash may break that; then a
 * belief lasts as long as the one before or behind it in the chain.)
 *
 * Blocks are alike when their holders lie in the same places, line by line. Neighbours in a chain
 * mostly are: they came together.
 *
 * A place, the name of a pair (belief_order.h), is good until the next change of its block. */
#ifndef KVR_BELIEF_H
#define KVR_BELIEF_H

#include <stdbool.h>
#include <stdint.h>

#include "belief_order.h"
#include "block.h"
#include "pages.h"
#include "stamp_clock.h"
#include "tenancy.h"

#define KVR_LINE_HOLDERS 9u

struct kvr_overflow_line {
    _Alignas(64) uint32_t stamps[KVR_LINE_HOLDERS];
    uint32_t next;  /* line of the same block, or free line; 0 none */
    uint32_t block; /* whose it is */
    uint16_t tenancies[KVR_LINE_HOLDERS];
};

_Static_assert(sizeof(struct kvr_overflow_line) == 64, "an overflow line is one cache line");

/* Pairs that ended, ever, by reason. */
struct kvr_belief_counters {
    uint64_t expired;   /* dropped after their TTL */
    uint64_t voided;    /* dropped after a purge of their replica */
    uint64_t evicted;   /* were live when their block or their replica was over its cap */
    uint64_t displaced; /* were live when the overflow was used up */
    uint64_t withdrawn;
};

struct kvr_beliefs {
    struct kvr_tenancies tenancies;
    struct kvr_stamp_clock clock;
    struct kvr_belief_counters counters;
    uint64_t pairs;           /* of block and replica; lapsed ones too, until somebody meets them */
    struct kvr_block *blocks; /* of the block store, which outlives this */
    struct kvr_overflow_line *lines;
    uint32_t lines_max;
    uint32_t lines_end;  /* lines 1 .. end - 1 have been used */
    uint32_t lines_free; /* first of a list; 0: none */
    uint32_t lines_used;
    struct kvr_pages line_pages;
    struct kvr_belief_order order; /* kept only if asked for */
};

struct kvr_beliefs_options {
    struct kvr_block *blocks;
    uint32_t blocks_max;
    uint32_t lines_max;
    uint32_t replicas_max;
    uint64_t ttl_ns;
    bool ordered;
};

void kvr_beliefs_init(struct kvr_beliefs *beliefs, const struct kvr_beliefs_options *options);
void kvr_beliefs_deinit(struct kvr_beliefs *beliefs);
uint64_t kvr_beliefs_bytes(const struct kvr_beliefs *beliefs);

/* Drops the lapsed pairs of the block; then its pair of that tenancy has this stamp, new or not. In
 * ordered beliefs it must be new: remove the old one first. */
void kvr_belief_put(struct kvr_beliefs *beliefs, uint32_t block, uint16_t tenancy, uint32_t stamp);
/* Place of the tenancy's pair in that block, or KVR_NO_PLACE. */
uint32_t kvr_belief_find(const struct kvr_beliefs *beliefs, uint32_t block, uint16_t tenancy);
uint32_t kvr_belief_stamp(const struct kvr_beliefs *beliefs, uint32_t place);
uint32_t kvr_belief_block(const struct kvr_beliefs *beliefs, uint32_t place);
void kvr_belief_remove(struct kvr_beliefs *beliefs, uint32_t place);
/* Have the two blocks their holders, lapsed ones too, in the same places? */
bool kvr_belief_alike(const struct kvr_beliefs *beliefs, uint32_t block, uint32_t other);
/* Is anybody believed to hold the block now? */
bool kvr_belief_any(const struct kvr_beliefs *beliefs, uint32_t block);
/* Drops the lapsed pairs of the block. */
void kvr_belief_prune(struct kvr_beliefs *beliefs, uint32_t block);
/* The block goes: drops every pair of it. Returns whether anybody was believed to hold it. */
bool kvr_belief_clear(struct kvr_beliefs *beliefs, uint32_t block);

static inline bool kvr_belief_live(const struct kvr_beliefs *beliefs, uint16_t tenancy,
                                   uint32_t stamp)
{
    return kvr_stamp_fresh(&beliefs->clock, stamp) &&
           beliefs->tenancies.items[tenancy].replica != KVR_TENANCY_ENDED;
}

#endif
