#include "prefix_index.h"

#include <string.h>

#include "belief_claim.h"
#include "belief_walk.h"
#include "check.h"
#include "memory.h"
#include "replica.h"

#define NO_CAP UINT32_MAX
/* Blocks that are gone over together: 8 KiB of them, which stay in the nearest cache in between. */
#define STRETCH     128u
#define EVICT_BATCH 16u

/* Sizes: what a block costs, and what is set aside whatever the number of blocks. */

static uint64_t fixed_bytes(uint32_t replicas_max)
{
    uint32_t tenancies = KVR_TENANCIES_MAX;
    return sizeof(struct kvr_prefix_index) + KVR_PREFIX_CHAIN_MAX * sizeof(uint32_t) +
           (KVR_STAMP_TICKS + 1) * sizeof(struct kvr_stamp_tick) +
           tenancies * sizeof(struct kvr_tenancy) + sizeof(uint16_t) * 2 * replicas_max;
}

/* Blocks that fit in `bytes`. The table grows in steps of a line, so the quotient may be one line
 * too large; and the slab has one block that is none. */
static uint32_t blocks_in(uint64_t bytes, bool ordered)
{
    uint64_t links = ordered ? KVR_BLOCK_HOLDERS * sizeof(struct kvr_belief_link) : 0;
    uint64_t hundred = 100 * (sizeof(struct kvr_block) + links) +
                       100 / KVR_BUCKET_BLOCKS * sizeof(struct kvr_bucket);
    uint64_t once = sizeof(struct kvr_block) + links + sizeof(struct kvr_bucket);
    uint64_t blocks = (bytes - once) * 100 / hundred;
    return blocks < KVR_BLOCKS_MAX ? (uint32_t)blocks : KVR_BLOCKS_MAX;
}

static uint32_t lines_in(uint64_t bytes, uint32_t blocks_max, uint32_t replicas_max, bool ordered)
{
    if (replicas_max <= KVR_BLOCK_HOLDERS)
        return 0;
    uint64_t line =
        sizeof(struct kvr_overflow_line) + (ordered ? 16 * sizeof(struct kvr_belief_link) : 0);
    uint64_t each = (replicas_max - KVR_BLOCK_HOLDERS + KVR_LINE_HOLDERS) / KVR_LINE_HOLDERS;
    uint64_t useful = blocks_max * each;
    uint64_t lines = bytes / line;
    lines = lines ? lines - 1 : 0;
    lines = lines < useful ? lines : useful;
    return lines < KVR_BLOCKS_MAX ? (uint32_t)lines : KVR_BLOCKS_MAX;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void kvr_prefix_index_init(struct kvr_prefix_index *index,
                           const struct kvr_prefix_index_options *options)
{
    memset(index, 0, sizeof *index);
    uint64_t memory = options->memory_bytes ? options->memory_bytes : KVR_PREFIX_MEMORY_DEFAULT;
    uint32_t replicas_max = options->replicas_max ? options->replicas_max : KVR_REPLICAS_MAX;
    bool ordered = options->blocks_per_replica_max != 0;
    KVR_CHECK(memory >= KVR_PREFIX_MEMORY_MIN);
    KVR_CHECK(replicas_max <= KVR_REPLICAS_MAX);
    uint64_t left = memory - fixed_bytes(replicas_max);
    /* With more replicas than a block has places, an eighth is kept for the overflow. */
    uint64_t for_lines = replicas_max > KVR_BLOCK_HOLDERS ? left / 8 : 0;
    uint32_t blocks_max = blocks_in(left - for_lines, ordered);
    if (options->blocks_max)
        blocks_max = smaller(blocks_max, options->blocks_max);
    kvr_block_store_init(&index->store, blocks_max, options->seed);
    left -= kvr_block_store_bytes(blocks_max);
    if (ordered)
        left -= (blocks_max + UINT64_C(1)) * KVR_BLOCK_HOLDERS * sizeof(struct kvr_belief_link);
    kvr_beliefs_init(&index->beliefs,
                     &(struct kvr_beliefs_options){
                         .blocks = index->store.blocks,
                         .blocks_max = blocks_max,
                         .lines_max = lines_in(left, blocks_max, replicas_max, ordered),
                         .replicas_max = replicas_max,
                         .ttl_ns = options->ttl_ns ? options->ttl_ns : KVR_PREFIX_TTL_DEFAULT_NS,
                         .ordered = ordered,
                     });
    index->bytes_max = memory;
    index->replicas_max = replicas_max;
    index->blocks_per_replica_max = ordered ? options->blocks_per_replica_max : NO_CAP;
    index->chain_max =
        smaller(KVR_PREFIX_CHAIN_MAX, smaller(blocks_max, index->blocks_per_replica_max));
    index->found = kvr_alloc(index->chain_max * sizeof *index->found);
    index->alive = kvr_alloc(replicas_max * sizeof *index->alive);
}

void kvr_prefix_index_deinit(struct kvr_prefix_index *index)
{
    kvr_beliefs_deinit(&index->beliefs);
    kvr_block_store_deinit(&index->store);
    kvr_free(index->found);
    kvr_free(index->alive);
    memset(index, 0, sizeof *index);
}

/* Is what `found` knows about this chain? Equal keys stand for equal prefixes. */
static void begin_find(struct kvr_prefix_index *index, const uint64_t *chain, uint32_t len)
{
    uint32_t known = index->found_len;
    if (known > len || (known && chain[known - 1] != index->found_last))
        index->found_len = 0;
    if (index->found_len == 0)
        index->found_run = true;
}

/* Looks up the chain from where `found` ends up to `until`, exclusive, or to the first key that is
 * not there, which is known then too. Returns how many leading blocks are there. */
static uint32_t find_leading(struct kvr_prefix_index *index, const uint64_t *chain, uint32_t until)
{
    uint32_t from = index->found_len;
    uint32_t before = from ? index->found[from - 1] : 0;
    if (from && !before)
        return from - 1;
    if (from == until)
        return from;
    uint32_t there =
        from + kvr_block_store_find_leading(&index->store, chain + from, until - from, before,
                                            index->found + from, &index->found_run);
    index->found_len = smaller(there + 1, until);
    index->found_last = chain[index->found_len - 1];
    return there;
}

/* Looks up what `found` does not know of the chain. Changes follow: it knows nothing after them.
 * Returns how many leading blocks are there. */
static uint32_t find_all(struct kvr_prefix_index *index, const uint64_t *chain, uint32_t len)
{
    begin_find(index, chain, len);
    uint32_t there = find_leading(index, chain, len);
    uint32_t from = index->found_len;
    kvr_block_store_find(&index->store, chain + from, len - from, 0, index->found + from);
    index->found_len = 0;
    return there;
}

uint32_t kvr_prefix_index_match(struct kvr_prefix_index *index, uint64_t now_ns,
                                const uint64_t *chain, uint32_t len, uint32_t *blocks_by_replica)
{
    struct kvr_beliefs *beliefs = &index->beliefs;
    index->counters.matches++;
    kvr_stamp_clock_set(&beliefs->clock, now_ns);
    len = smaller(len, index->chain_max);
    index->found_len = 0;
    begin_find(index, chain, len);
    uint32_t there = find_leading(index, chain, smaller(len, STRETCH));
    if (there == 0)
        return 0;
    struct kvr_belief_walk walk;
    kvr_belief_walk_start(&walk, beliefs, index->found[0], index->alive);
    for (uint32_t at = 1;;) {
        kvr_belief_walk_on(&walk, index->found + at, there - at);
        if (!walk.anybody || there < index->found_len || there == len)
            break;
        at = there;
        there = find_leading(index, chain, smaller(len, there + STRETCH));
    }
    return kvr_belief_walk_end(&walk, blocks_by_replica);
}

/* Returns whether anybody was believed to hold it. */
static bool drop_block(struct kvr_prefix_index *index, uint32_t block)
{
    bool held = kvr_belief_clear(&index->beliefs, block);
    kvr_block_store_release(&index->store, block);
    return held;
}

/* Every number that a tenancy could have is still named by some belief: looks at all blocks once,
 * after at least KVR_TENANCIES_MAX / 2 purges that voided something since the last time. */
static void sweep(struct kvr_prefix_index *index)
{
    index->counters.sweeps++;
    for (uint32_t block = kvr_block_store_oldest(&index->store); block;
         block = index->store.blocks[block].newer)
        kvr_belief_prune(&index->beliefs, block);
}

static uint16_t open_tenancy(struct kvr_prefix_index *index, uint32_t replica)
{
    uint16_t tenancy = kvr_tenancy_open(&index->beliefs.tenancies, replica);
    if (tenancy == KVR_TENANCY_NONE) {
        sweep(index);
        tenancy = kvr_tenancy_open(&index->beliefs.tenancies, replica);
        KVR_CHECK(tenancy != KVR_TENANCY_NONE);
    }
    return tenancy;
}

/* Takes the chain's own blocks, and what the replica is believed to hold of them, out of all
 * orders, so that making room cannot meet them. A key that is twice in the chain, which takes a
 * collision of hashes, counts as missing the second time: a second block with that key is odd but
 * harmless. */
static uint32_t set_aside(struct kvr_prefix_index *index, uint32_t len, uint16_t tenancy)
{
    uint32_t missing = kvr_block_store_unlink_chain(&index->store, index->found, len);
    if (!kvr_belief_order_kept(&index->beliefs.order))
        return missing;
    for (uint32_t i = 0; i < len; i++) {
        uint32_t block = index->found[i];
        uint32_t place = block ? kvr_belief_find(&index->beliefs, block, tenancy) : KVR_NO_PLACE;
        if (place)
            kvr_belief_remove(&index->beliefs, place);
    }
    return missing;
}

/* Frees blocks at the old end that nobody is believed to hold, as many as an admission may add.
 * That keeps ahead of stamps that wrap: a block that has not been admitted for 2^31 stamps lies at
 * the old end, everything older than it does too, and each new stamp frees one. */
static void reclaim(struct kvr_prefix_index *index, uint32_t budget)
{
    for (; budget; budget--) {
        uint32_t block = kvr_block_store_oldest(&index->store);
        if (block == 0 || kvr_belief_any(&index->beliefs, block))
            return;
        drop_block(index, block);
        index->counters.blocks_reclaimed++;
    }
}

/* Takes from the replica what it was sent longest ago until `len` more beliefs fit under its cap.
 */
static void make_room_at_replica(struct kvr_prefix_index *index, uint16_t number, uint32_t len)
{
    struct kvr_beliefs *beliefs = &index->beliefs;
    struct kvr_tenancy *tenancy = &beliefs->tenancies.items[number];
    while (tenancy->beliefs + (uint64_t)len > index->blocks_per_replica_max) {
        uint32_t place = tenancy->oldest;
        uint32_t block = kvr_belief_block(beliefs, place);
        bool live = kvr_belief_live(beliefs, number, kvr_belief_stamp(beliefs, place));
        kvr_belief_remove(beliefs, place);
        if (!live) {
            beliefs->counters.expired++;
            continue;
        }
        beliefs->counters.evicted++;
        index->counters.replica_evicted++;
        if (!kvr_belief_any(beliefs, block))
            drop_block(index, block);
    }
}

/* `aside` blocks are out of the order and will come back. */
static void make_room(struct kvr_prefix_index *index, uint32_t missing, uint32_t aside)
{
    struct kvr_block_store *store = &index->store;
    uint32_t wanted = store->count + aside + missing;
    uint32_t excess = wanted > store->blocks_max ? wanted - store->blocks_max : 0;
    for (uint32_t i = 0; i < excess; i++) {
        if (i % EVICT_BATCH == 0)
            kvr_block_store_fetch_oldest(store, smaller(excess - i, EVICT_BATCH));
        uint32_t block = kvr_block_store_oldest(store);
        if (drop_block(index, block))
            index->counters.blocks_evicted++;
        else
            index->counters.blocks_reclaimed++;
    }
}

/* Takes blocks for the keys that have none, the last first. */
static void take_missing(struct kvr_prefix_index *index, const uint64_t *chain, uint32_t from,
                         uint32_t until)
{
    for (uint32_t i = until; i-- > from;) {
        if (index->found[i] == 0)
            index->found[i] = kvr_block_store_take(&index->store, chain[i]);
    }
}

uint32_t kvr_prefix_index_admit(struct kvr_prefix_index *index, uint64_t now_ns,
                                const uint64_t *chain, uint32_t len, uint32_t replica)
{
    struct kvr_beliefs *beliefs = &index->beliefs;
    KVR_CHECK(replica < index->replicas_max);
    index->counters.admissions++;
    if (len > index->chain_max) {
        index->counters.blocks_cut += len - index->chain_max;
        len = index->chain_max;
    }
    kvr_stamp_clock_set(&beliefs->clock, now_ns);
    if (len == 0)
        return beliefs->clock.next;
    uint16_t tenancy = open_tenancy(index, replica);
    bool known = find_all(index, chain, len) == len;
    bool run = known && index->found_run && !kvr_belief_order_kept(&beliefs->order);
    uint32_t missing = 0;
    if (run)
        kvr_block_store_unlink_run(&index->store, index->found, len);
    else
        missing = set_aside(index, len, tenancy);
    reclaim(index, len);
    if (kvr_belief_order_kept(&beliefs->order))
        make_room_at_replica(index, tenancy, len);
    make_room(index, missing, len - missing);
    uint32_t stamp = kvr_stamp_clock_take(&beliefs->clock, len);
    if (run)
        kvr_block_store_link_run(&index->store, index->found, len);
    for (uint32_t until = len; until;) {
        uint32_t from = until > STRETCH ? until - STRETCH : 0;
        uint32_t *stretch = index->found + from;
        if (missing)
            take_missing(index, chain, from, until);
        if (!run)
            kvr_block_store_link_chain(&index->store, stretch, until - from);
        kvr_belief_claim(beliefs, stretch, until - from, tenancy, stamp + len - until);
        until = from;
    }
    return stamp;
}

void kvr_prefix_index_withdraw(struct kvr_prefix_index *index, const uint64_t *chain, uint32_t len,
                               uint32_t replica, uint32_t stamp)
{
    struct kvr_beliefs *beliefs = &index->beliefs;
    uint16_t tenancy = kvr_tenancy_of(&beliefs->tenancies, replica);
    index->counters.withdrawals++;
    len = smaller(len, index->chain_max);
    if (len == 0 || tenancy == KVR_TENANCY_NONE)
        return;
    find_all(index, chain, len);
    for (uint32_t i = 0; i < len; i++) {
        uint32_t block = index->found[i];
        uint32_t place = block ? kvr_belief_find(beliefs, block, tenancy) : KVR_NO_PLACE;
        if (!place)
            continue;
        uint32_t claimed = kvr_belief_stamp(beliefs, place);
        if (claimed - stamp >= len || !kvr_stamp_fresh(&beliefs->clock, claimed))
            continue;
        kvr_belief_remove(beliefs, place);
        beliefs->counters.withdrawn++;
        if (!kvr_belief_any(beliefs, block))
            drop_block(index, block);
    }
}

void kvr_prefix_index_purge(struct kvr_prefix_index *index, uint32_t replica)
{
    index->counters.purges++;
    kvr_tenancy_end(&index->beliefs.tenancies, replica);
}

uint32_t kvr_prefix_index_believed(const struct kvr_prefix_index *index, uint32_t replica)
{
    uint16_t tenancy = kvr_tenancy_of(&index->beliefs.tenancies, replica);
    return tenancy == KVR_TENANCY_NONE ? 0 : index->beliefs.tenancies.items[tenancy].beliefs;
}

void kvr_prefix_index_read_stats(const struct kvr_prefix_index *index,
                                 struct kvr_prefix_index_stats *stats)
{
    *stats = (struct kvr_prefix_index_stats){
        .counters = index->counters,
        .beliefs = index->beliefs.counters,
        .blocks = index->store.count,
        .blocks_max = index->store.blocks_max,
        .blocks_per_replica_max =
            index->blocks_per_replica_max == NO_CAP ? 0 : index->blocks_per_replica_max,
        .holders = index->beliefs.pairs,
        .overflow = index->beliefs.lines_used,
        .overflow_max = index->beliefs.lines_max,
        .bytes = sizeof *index + kvr_block_store_bytes(index->store.blocks_max) +
                 kvr_beliefs_bytes(&index->beliefs) + index->chain_max * sizeof *index->found +
                 index->replicas_max * sizeof *index->alive,
        .bytes_max = index->bytes_max,
    };
}
