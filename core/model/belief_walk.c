#include "belief_walk.h"

#include "lanes.h"

/* The tenancies in those lanes have passed `depth` blocks. */
static void write_reach(struct kvr_belief_walk *walk, uint32_t lanes, uint32_t depth)
{
    for (; lanes; lanes &= lanes - 1)
        walk->beliefs->tenancies.items[walk->layout[__builtin_ctz(lanes)]].reach = depth;
}

/* Of the pairs in a block or a line, those whose tenancy has walked up to here and that are fresh:
 * their tenancies pass this block too. Returns their places. */
static uint32_t pass_pairs(const struct kvr_belief_walk *walk, const uint16_t *tenancies,
                           const uint32_t *stamps, uint32_t places)
{
    const struct kvr_beliefs *beliefs = walk->beliefs;
    uint32_t passed = 0;
    for (uint32_t i = 0; i < places && tenancies[i] != KVR_TENANCY_NONE; i++) {
        struct kvr_tenancy *tenancy = &beliefs->tenancies.items[tenancies[i]];
        if (tenancy->reach == walk->depth && kvr_stamp_fresh(&beliefs->clock, stamps[i])) {
            tenancy->reach = walk->depth + 1;
            passed |= 1u << i;
        }
    }
    return passed;
}

/* Over one block, whatever its holders are. */
static void step(struct kvr_belief_walk *walk, uint32_t number)
{
    const struct kvr_beliefs *beliefs = walk->beliefs;
    const struct kvr_block *block = &beliefs->blocks[number];
    if (walk->layout)
        write_reach(walk, walk->walking, walk->depth);
    uint32_t line = kvr_block_overflow(block);
    uint32_t passed = pass_pairs(walk, block->tenancies, block->stamps,
                                 line ? KVR_BLOCK_HOLDERS - 1 : KVR_BLOCK_HOLDERS);
    walk->layout = line ? NULL : block->tenancies;
    walk->walking = passed;
    for (; line; line = beliefs->lines[line].next)
        passed |= pass_pairs(walk, beliefs->lines[line].tenancies, beliefs->lines[line].stamps,
                             KVR_LINE_HOLDERS);
    walk->anybody = passed != 0;
    walk->last = number;
    walk->depth++;
}

/* Those whose pair in the block is not fresh stay behind, at `depth` blocks. */
static void leave_stale(struct kvr_belief_walk *walk, struct kvr_lanes_span span,
                        const struct kvr_block *block, uint32_t depth)
{
    uint32_t behind = walk->walking & kvr_lanes_stale(span, block->stamps);
    if (behind) {
        write_reach(walk, behind, depth);
        walk->walking &= ~behind;
        walk->anybody = walk->walking != 0;
    }
}

/* Over as many blocks as have their holders where the last one had them. Returns how many. */
static uint32_t stride(struct kvr_belief_walk *walk, const uint32_t *numbers, uint32_t count)
{
    const struct kvr_block *blocks = walk->beliefs->blocks;
    struct kvr_lanes_span span = kvr_lanes_span(&walk->beliefs->clock);
    uint32_t alike = 0;
    while (alike < count && kvr_lanes_alike(blocks[numbers[alike]].tenancies, walk->layout))
        alike++;
    /* Stamps fall with depth: if the last block's are fresh, all are. */
    if (alike && walk->walking & kvr_lanes_stale(span, blocks[numbers[alike - 1]].stamps)) {
        for (uint32_t i = 0; i < alike && walk->anybody; i++)
            leave_stale(walk, span, &blocks[numbers[i]], walk->depth + i);
    }
    walk->depth += alike;
    return alike;
}

/* Is everybody fresh that walks, of the pairs in a block or a line? */
static bool are_fresh(const struct kvr_belief_walk *walk, const uint16_t *tenancies,
                      const uint32_t *stamps, uint32_t places)
{
    const struct kvr_beliefs *beliefs = walk->beliefs;
    for (uint32_t i = 0; i < places && tenancies[i] != KVR_TENANCY_NONE; i++)
        if (beliefs->tenancies.items[tenancies[i]].reach == walk->depth &&
            !kvr_stamp_fresh(&beliefs->clock, stamps[i]))
            return false;
    return true;
}

static bool all_are_fresh(const struct kvr_belief_walk *walk, uint32_t number)
{
    const struct kvr_block *block = &walk->beliefs->blocks[number];
    const struct kvr_overflow_line *lines = walk->beliefs->lines;
    bool fresh = are_fresh(walk, block->tenancies, block->stamps, KVR_BLOCK_HOLDERS - 1);
    for (uint32_t line = kvr_block_overflow(block); line && fresh; line = lines[line].next)
        fresh = are_fresh(walk, lines[line].tenancies, lines[line].stamps, KVR_LINE_HOLDERS);
    return fresh;
}

/* The same behind a block with overflow lines: over blocks that are alike, as far as everybody is
 * fresh in the last of them. */
static uint32_t stride_over_lines(struct kvr_belief_walk *walk, const uint32_t *numbers,
                                  uint32_t count)
{
    uint32_t alike = 0;
    while (alike < count && kvr_belief_alike(walk->beliefs, numbers[alike], walk->last))
        alike++;
    while (alike && !all_are_fresh(walk, numbers[alike - 1]))
        alike /= 2;
    if (alike == 0)
        return 0;
    struct kvr_tenancy *items = walk->beliefs->tenancies.items;
    for (uint32_t i = 0; i < walk->started_count; i++)
        if (items[walk->started[i]].reach == walk->depth)
            items[walk->started[i]].reach += alike;
    walk->last = numbers[alike - 1];
    walk->depth += alike;
    return alike;
}

/* Those of the pairs that are live set out. Returns their places. */
static uint32_t start_pairs(struct kvr_belief_walk *walk, const uint16_t *tenancies,
                            const uint32_t *stamps, uint32_t places)
{
    uint32_t walking = 0;
    for (uint32_t i = 0; i < places && tenancies[i] != KVR_TENANCY_NONE; i++) {
        if (kvr_belief_live(walk->beliefs, tenancies[i], stamps[i])) {
            walk->started[walk->started_count++] = tenancies[i];
            walk->beliefs->tenancies.items[tenancies[i]].reach = 1;
            walking |= 1u << i;
        }
    }
    return walking;
}

void kvr_belief_walk_start(struct kvr_belief_walk *walk, const struct kvr_beliefs *beliefs,
                           uint32_t block, uint16_t *started)
{
    const struct kvr_block *first = &beliefs->blocks[block];
    uint32_t line = kvr_block_overflow(first);
    *walk =
        (struct kvr_belief_walk){.beliefs = beliefs, .started = started, .depth = 1, .last = block};
    walk->layout = line ? NULL : first->tenancies;
    walk->walking = start_pairs(walk, first->tenancies, first->stamps,
                                line ? KVR_BLOCK_HOLDERS - 1 : KVR_BLOCK_HOLDERS);
    for (; line; line = beliefs->lines[line].next)
        start_pairs(walk, beliefs->lines[line].tenancies, beliefs->lines[line].stamps,
                    KVR_LINE_HOLDERS);
    walk->anybody = walk->started_count != 0;
}

void kvr_belief_walk_on(struct kvr_belief_walk *walk, const uint32_t *blocks, uint32_t count)
{
    uint32_t passed = 0;
    while (passed < count && walk->anybody) {
        passed += walk->layout ? stride(walk, blocks + passed, count - passed)
                               : stride_over_lines(walk, blocks + passed, count - passed);
        if (passed < count && walk->anybody)
            step(walk, blocks[passed++]);
    }
}

uint32_t kvr_belief_walk_end(struct kvr_belief_walk *walk, uint32_t *reach_by_replica)
{
    uint32_t longest = 0;
    if (walk->layout)
        write_reach(walk, walk->walking, walk->depth);
    for (uint32_t i = 0; i < walk->started_count; i++) {
        struct kvr_tenancy *tenancy = &walk->beliefs->tenancies.items[walk->started[i]];
        reach_by_replica[tenancy->replica] = tenancy->reach;
        longest = tenancy->reach > longest ? tenancy->reach : longest;
        tenancy->reach = 0;
    }
    return longest;
}
