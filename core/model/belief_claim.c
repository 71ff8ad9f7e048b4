#include "belief_claim.h"

#include <string.h>

#include "check.h"
#include "lanes.h"

#define NO_SEAT KVR_BLOCK_HOLDERS

/* What a claim means to blocks that are alike. */
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

/* Where a pair lies in its block, and in every block that is alike. */
struct spot {
    uint32_t lines; /* behind the block; 0: in the block itself */
    uint32_t at;
};

static struct spot find_spot(const struct kvr_beliefs *beliefs, uint32_t number, uint16_t tenancy)
{
    uint32_t place = kvr_belief_find(beliefs, number, tenancy);
    KVR_CHECK(place != KVR_NO_PLACE);
    if (!(place & KVR_LINE_PLACE))
        return (struct spot){0, place % KVR_BLOCK_HOLDERS};
    struct spot spot = {1, place % 16};
    uint32_t line = kvr_block_overflow(&beliefs->blocks[number]);
    for (; line != (place & ~KVR_LINE_PLACE) / 16; line = beliefs->lines[line].next)
        spot.lines++;
    return spot;
}

static uint32_t *stamp_at(struct kvr_beliefs *beliefs, uint32_t number, struct spot spot)
{
    struct kvr_block *block = &beliefs->blocks[number];
    if (spot.lines == 0)
        return &block->stamps[spot.at];
    uint32_t line = kvr_block_overflow(block);
    for (uint32_t i = 1; i < spot.lines; i++)
        line = beliefs->lines[line].next;
    return &beliefs->lines[line].stamps[spot.at];
}

/* Puts the deepest block by itself. Those before it that are alike then have the tenancy's pair
 * too, and none to be dropped, as stamps fall with depth: they take their stamps. Returns how many
 * are left in front of the first that is not. */
static uint32_t put_over_lines(struct kvr_beliefs *beliefs, const uint32_t *numbers, uint32_t len,
                               uint16_t tenancy, uint32_t stamp)
{
    uint32_t deepest = numbers[--len];
    kvr_belief_put(beliefs, deepest, tenancy, stamp++);
    if (!kvr_block_overflow(&beliefs->blocks[deepest]))
        return len;
    struct spot spot = find_spot(beliefs, deepest, tenancy);
    for (; len && kvr_belief_alike(beliefs, numbers[len - 1], deepest); len--)
        *stamp_at(beliefs, numbers[len - 1], spot) = stamp++;
    return len;
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
            left = put_over_lines(beliefs, numbers, len, tenancy, stamp);
        else if (!seat.taken)
            add_pairs(beliefs, numbers + left, len - left, seat.lane, tenancy);
        stamp += len - left;
        len = left;
    }
}
