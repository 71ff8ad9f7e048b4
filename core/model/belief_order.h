/* In which order a replica was sent what it is believed to hold: a list of each tenancy's pairs
 * from newest to oldest, which its cap takes from at the old end. Kept only where such a cap is
 * set: the links take as much memory again as the blocks.
 *
 * Pairs are named by place, and the links lie in arrays beside the pairs by the same number:
 *   block b, position p: b * 8 + p         overflow line l, position p: 2^31 + l * 16 + p */
#ifndef KVR_BELIEF_ORDER_H
#define KVR_BELIEF_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"
#include "tenancy.h"

#define KVR_NO_PLACE   0u
#define KVR_LINE_PLACE UINT32_C(0x80000000)

struct kvr_belief_link {
    uint32_t newer; /* places of the same tenancy; KVR_NO_PLACE at the ends */
    uint32_t older;
};

/* All zero: no order is kept. */
struct kvr_belief_order {
    struct kvr_belief_link *of_blocks;
    struct kvr_belief_link *of_lines;
    struct kvr_pages block_pages, line_pages;
};

/* Room for places of blocks 0 .. blocks - 1 and lines 0 .. lines - 1. */
void kvr_belief_order_init(struct kvr_belief_order *order, uint64_t blocks, uint64_t lines);
void kvr_belief_order_deinit(struct kvr_belief_order *order);
uint64_t kvr_belief_order_bytes(const struct kvr_belief_order *order);

static inline bool kvr_belief_order_kept(const struct kvr_belief_order *order)
{
    return order->of_blocks != NULL;
}

/* The place older than this one, or KVR_NO_PLACE. */
uint32_t kvr_belief_order_older(const struct kvr_belief_order *order, uint32_t place);

/* The ends of the list are in the tenancy, which must be that of the pair at `place`. */
void kvr_belief_order_push(struct kvr_belief_order *order, struct kvr_tenancy *tenancy,
                           uint32_t place);
void kvr_belief_order_remove(struct kvr_belief_order *order, struct kvr_tenancy *tenancy,
                             uint32_t place);
/* The pair at `from` is now at `to`, and keeps its rank. */
void kvr_belief_order_move(struct kvr_belief_order *order, struct kvr_tenancy *tenancy, uint32_t to,
                           uint32_t from);

#endif
