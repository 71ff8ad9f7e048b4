#include "belief_order.h"

#include <string.h>

#define PLACES_OF_BLOCK 8u
#define PLACES_OF_LINE  16u

void kvr_belief_order_init(struct kvr_belief_order *order, uint64_t blocks, uint64_t lines)
{
    memset(order, 0, sizeof *order);
    kvr_pages_init(&order->block_pages, blocks * PLACES_OF_BLOCK * sizeof *order->of_blocks);
    kvr_pages_init(&order->line_pages, lines * PLACES_OF_LINE * sizeof *order->of_lines);
    order->of_blocks = order->block_pages.memory;
    order->of_lines = order->line_pages.memory;
}

void kvr_belief_order_deinit(struct kvr_belief_order *order)
{
    kvr_pages_deinit(&order->block_pages);
    kvr_pages_deinit(&order->line_pages);
    memset(order, 0, sizeof *order);
}

uint64_t kvr_belief_order_bytes(const struct kvr_belief_order *order)
{
    return order->block_pages.bytes + order->line_pages.bytes;
}

static inline struct kvr_belief_link *link_at(const struct kvr_belief_order *order, uint32_t place)
{
    if (place & KVR_LINE_PLACE)
        return &order->of_lines[place & ~KVR_LINE_PLACE];
    return &order->of_blocks[place];
}

/* What points at the newer neighbour of `place`, or at the old end. */
static inline uint32_t *newer_of(struct kvr_belief_order *order, struct kvr_tenancy *tenancy,
                                 uint32_t place)
{
    return place ? &link_at(order, place)->newer : &tenancy->oldest;
}

static inline uint32_t *older_of(struct kvr_belief_order *order, struct kvr_tenancy *tenancy,
                                 uint32_t place)
{
    return place ? &link_at(order, place)->older : &tenancy->newest;
}

uint32_t kvr_belief_order_older(const struct kvr_belief_order *order, uint32_t place)
{
    return link_at(order, place)->older;
}

void kvr_belief_order_push(struct kvr_belief_order *order, struct kvr_tenancy *tenancy,
                           uint32_t place)
{
    *link_at(order, place) = (struct kvr_belief_link){KVR_NO_PLACE, tenancy->newest};
    *newer_of(order, tenancy, tenancy->newest) = place;
    tenancy->newest = place;
}

void kvr_belief_order_remove(struct kvr_belief_order *order, struct kvr_tenancy *tenancy,
                             uint32_t place)
{
    struct kvr_belief_link link = *link_at(order, place);
    *older_of(order, tenancy, link.newer) = link.older;
    *newer_of(order, tenancy, link.older) = link.newer;
}

void kvr_belief_order_move(struct kvr_belief_order *order, struct kvr_tenancy *tenancy, uint32_t to,
                           uint32_t from)
{
    struct kvr_belief_link link = *link_at(order, from);
    *link_at(order, to) = link;
    *older_of(order, tenancy, link.newer) = to;
    *newer_of(order, tenancy, link.older) = to;
}
