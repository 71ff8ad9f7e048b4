#include "belief_claim.h"

#include <string.h>

#include "check.h"
#include "lanes.h"

#define NO_SEAT KVR_BLOCK_HOLDERS

/* What a claim means to blocks whose holders lie in the same places. Neighbours in a chain mostly
 * do: they came together. */
struct seat {
    _Alignas(16) uint16_t layout[KVR_BLOCK_HOLDERS]; /* the tenancies of those blocks */
    uint32_t lane; /* where the claiming tenancy has its pair, or will; or NO_SEAT */
    bool taken;    /* the pair is there */
};

/* NO_SEAT where it takes more than one store: overflow, a full block, a pair to be dropped. If this
 * block has none of those, no block of its layout before it in the chain has: stamps fall with
 * depth (belief.h), so that what is fresh here is fresh there. */
static struct seat find_seat(const struct kvr_beliefs *beliefs, const struct kvr_block *block,
                             uint16_t tenancy)
{
    struct seat seat;
    memcpy(seat.layout, block->tenancies, sizeof seat.layout);
    uint32_t empty = kvr_lanes_naming(seat.layout, KVR_TENANCY_NONE);
    uint32_t own = kvr_lanes_naming(seat.layout, tenancy);
    seat.taken = own != 0;
    KVR_CHECK(!(seat.taken && kvr_belief_order_kept(&beliefs->order)));
    /* Pairs are dense, so the first empty place is the next; bit NO_SEAT if there is none. */
    seat.lane = (uint32_t)__builtin_ctz(own ? own : empty | 1u << NO_SEAT);
    for (uint32_t others = KVR_LANES_ALL & ~empty & ~own; others; others &= others - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(others);
        if (seat.layout[lane] == KVR_HOLDER_OVERFLOW ||
            !kvr_belief_live(beliefs, seat.layout[lane], block->stamps[lane]))
            seat.lane = NO_SEAT;
    }
    return seat;
}

/* Gives the blocks that fit the seat their stamps, from the last block on. Returns how many are
 * left in front of the first that does not. */
static uint32_t take_seats(struct kvr_beliefs *beliefs, const struct seat *seat,
                           const uint32_t *numbers, uint32_t len, uint32_t stamp)
{
    struct kvr_block *blocks = beliefs->blocks;
    uint32_t lane = seat->lane;
    for (; len && kvr_lanes_alike(blocks[numbers[len - 1]].tenancies, seat->layout); len--)
        blocks[numbers[len - 1]].stamps[lane] = stamp++;
    return len;
}

/* The blocks that just took a stamp had no pair of that tenancy. */
static void add_pairs(struct kvr_beliefs *beliefs, const uint32_t *numbers, uint32_t len,
                      uint32_t lane, uint16_t tenancy)
{
    struct kvr_tenancy *item = &beliefs->tenancies.items[tenancy];
    bool ordered = kvr_belief_order_kept(&beliefs->order);
    for (uint32_t i = len; i-- > 0;) {
        beliefs->blocks[numbers[i]].tenancies[lane] = tenancy;
        if (ordered)
            kvr_belief_order_push(&beliefs->order, item, numbers[i] * KVR_BLOCK_HOLDERS + lane);
    }
    beliefs->pairs += len;
    item->beliefs += len;
}

void kvr_belief_claim(struct kvr_beliefs *beliefs, const uint32_t *numbers, uint32_t len,
                      uint16_t tenancy, uint32_t stamp)
{
    KVR_CHECK(tenancy != KVR_TENANCY_NONE);
    while (len) {
        struct seat seat = find_seat(beliefs, &beliefs->blocks[numbers[len - 1]], tenancy);
        uint32_t left =
            seat.lane == NO_SEAT ? len : take_seats(beliefs, &seat, numbers, len, stamp);
        if (left == len)
            kvr_belief_put(beliefs, numbers[--left], tenancy, stamp);
        else if (!seat.taken)
            add_pairs(beliefs, numbers + left, len - left, seat.lane, tenancy);
        stamp += len - left;
        len = left;
    }
}
