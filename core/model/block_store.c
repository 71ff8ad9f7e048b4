#include "block_store.h"

#include <stddef.h>
#include <string.h>

#include "check.h"
#include "prefetch.h"

/* Lookups in flight together: about as many lines as a core can wait for at once. */
#define BATCH 16u

uint64_t kvr_block_store_bytes(uint32_t blocks_max)
{
    return (blocks_max + UINT64_C(1)) * sizeof(struct kvr_block) +
           kvr_block_table_bytes(blocks_max);
}

void kvr_block_store_init(struct kvr_block_store *store, uint32_t blocks_max, uint64_t seed)
{
    KVR_CHECK(blocks_max > 0 && blocks_max <= KVR_BLOCKS_MAX);
    memset(store, 0, sizeof *store);
    store->blocks_max = blocks_max;
    store->end = 1;
    kvr_pages_init(&store->pages, (blocks_max + (size_t)1) * sizeof *store->blocks);
    store->blocks = store->pages.memory;
    kvr_block_table_init(&store->table, blocks_max, seed);
}

void kvr_block_store_deinit(struct kvr_block_store *store)
{
    kvr_block_table_deinit(&store->table);
    kvr_pages_deinit(&store->pages);
    memset(store, 0, sizeof *store);
}

/* Goes on from block `last` as long as the order's next block lies next in the slab and has the
 * next key: no table is asked, and the processor has fetched the lines before it is told to. Where
 * the next block lies elsewhere it stops, because each such step could wait for memory by itself,
 * and table lookups wait together. Returns how many keys it found. */
static uint32_t follow(const struct kvr_block_store *store, uint32_t last, const uint64_t *keys,
                       uint32_t count, uint32_t *numbers)
{
    const struct kvr_block *block = &store->blocks[last];
    uint32_t step = block->older - last;
    if (step != 1 && step != UINT32_MAX)
        return 0;
    /* Downwards it must end before block 0, which is none. Upwards the order ends in time. */
    if (step == UINT32_MAX && count >= last)
        count = last - 1;
    ptrdiff_t next = (int32_t)step;
    uint32_t found = 0;
    for (; found < count; found++) {
        if (block->older != last + step || block[next].key != keys[found])
            break;
        block += next;
        last += step;
        numbers[found] = last;
    }
    return found;
}

static void prefetch_buckets(const struct kvr_block_table *table, const uint64_t *keys,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        kvr_block_table_prefetch(table, kvr_block_table_hash(table, keys[i]));
}

/* The table's line tells which block it may be, so all blocks can be fetched before the first one
 * is looked at. */
static void find_batch(const struct kvr_block_store *store, const uint64_t *keys, uint32_t count,
                       uint32_t *numbers)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = kvr_block_table_hash(&store->table, keys[i]);
        numbers[i] = kvr_block_table_guess(&store->table, hash);
        kvr_prefetch(&store->blocks[numbers[i]]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] && store->blocks[numbers[i]].key != keys[i]) {
            uint64_t hash = kvr_block_table_hash(&store->table, keys[i]);
            numbers[i] = kvr_block_table_find(&store->table, store->blocks, hash, keys[i]);
        }
    }
}

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t kvr_block_store_find_leading(const struct kvr_block_store *store, const uint64_t *keys,
                                      uint32_t count, uint32_t before, uint32_t *numbers, bool *run)
{
    /* A block that the table finds probably leads to the next ones, so at first the table is asked
     * for one key; for more where that has turned out wrong. */
    uint32_t batch = 1;
    uint32_t found = 0;
    while (found < count) {
        if (before)
            found += follow(store, before, keys + found, count - found, numbers + found);
        before = found ? numbers[found - 1] : before;
        uint32_t until = found + smaller(batch, count - found);
        batch = smaller(4 * batch, BATCH);
        find_batch(store, keys + found, until - found, numbers + found);
        for (; found < until && numbers[found]; found++) {
            *run = *run && (before == 0 || store->blocks[before].older == numbers[found]);
            before = numbers[found];
        }
        if (found < until) {
            /* The rest will be admitted: its buckets can come while somebody decides where. */
            prefetch_buckets(&store->table, keys + until, smaller(BATCH, count - until));
            break;
        }
    }
    return found;
}

void kvr_block_store_find(const struct kvr_block_store *store, const uint64_t *keys, uint32_t count,
                          uint32_t before, uint32_t *numbers)
{
    uint32_t batch = before ? 1 : BATCH;
    for (uint32_t at = 0; at < count;) {
        if (before)
            at += follow(store, before, keys + at, count - at, numbers + at);
        uint32_t until = at + smaller(batch, count - at);
        batch = smaller(4 * batch, BATCH);
        if (batch == BATCH)
            prefetch_buckets(&store->table, keys + until, smaller(BATCH, count - until));
        find_batch(store, keys + at, until - at, numbers + at);
        at = until;
        before = at ? numbers[at - 1] : 0;
    }
}

void kvr_block_store_fetch_oldest(const struct kvr_block_store *store, uint32_t count)
{
    uint32_t number = kvr_block_store_oldest(store);
    for (; count && number; count--) {
        const struct kvr_block *block = &store->blocks[number];
        kvr_block_table_prefetch(&store->table, kvr_block_table_hash(&store->table, block->key));
        number = block->newer;
    }
}

uint32_t kvr_block_store_take(struct kvr_block_store *store, uint64_t key)
{
    uint32_t number = store->free;
    if (number) {
        store->free = store->blocks[number].older;
    } else {
        KVR_CHECK(store->end <= store->blocks_max);
        number = store->end++;
    }
    struct kvr_block *block = &store->blocks[number];
    memset(block, 0, sizeof *block);
    block->key = key;
    kvr_block_table_insert(&store->table, kvr_block_table_hash(&store->table, key), number);
    return number;
}

uint32_t kvr_block_store_unlink_chain(struct kvr_block_store *store, uint32_t *numbers,
                                      uint32_t len)
{
    struct kvr_block *blocks = store->blocks;
    uint32_t strangers = 0;
    for (uint32_t i = 0; i < len;) {
        uint32_t number = numbers[i];
        if (number == 0 || !kvr_block_store_linked(store, number)) {
            numbers[i++] = 0;
            strangers++;
            continue;
        }
        /* Blocks that follow each other in the order too are cut out of it in one piece. */
        uint32_t newer = blocks[number].newer;
        uint32_t older = number;
        do {
            struct kvr_block *block = &blocks[older];
            block->newer = older;
            older = block->older;
            i++;
        } while (i < len && numbers[i] == older && older);
        blocks[newer].older = older;
        blocks[older].newer = newer;
    }
    store->count -= len - strangers;
    return strangers;
}

void kvr_block_store_link_chain(struct kvr_block_store *store, const uint32_t *numbers,
                                uint32_t len)
{
    struct kvr_block *blocks = store->blocks;
    uint32_t newest = blocks[0].older;
    for (uint32_t i = len; i-- > 0;) {
        blocks[newest].newer = numbers[i];
        blocks[numbers[i]].older = newest;
        newest = numbers[i];
    }
    blocks[newest].newer = 0;
    blocks[0].older = newest;
    store->count += len;
}

void kvr_block_store_unlink_run(struct kvr_block_store *store, const uint32_t *numbers,
                                uint32_t len)
{
    struct kvr_block *blocks = store->blocks;
    uint32_t newer = blocks[numbers[0]].newer, older = blocks[numbers[len - 1]].older;
    blocks[newer].older = older;
    blocks[older].newer = newer;
    store->count -= len;
}

void kvr_block_store_link_run(struct kvr_block_store *store, const uint32_t *numbers, uint32_t len)
{
    struct kvr_block *blocks = store->blocks;
    uint32_t newest = blocks[0].older;
    blocks[newest].newer = numbers[len - 1];
    blocks[numbers[len - 1]].older = newest;
    blocks[numbers[0]].newer = 0;
    blocks[0].older = numbers[0];
    store->count += len;
}

void kvr_block_store_release(struct kvr_block_store *store, uint32_t number)
{
    struct kvr_block *block = &store->blocks[number];
    KVR_CHECK(number != 0 && block->tenancies[0] == 0);
    store->blocks[block->newer].older = block->older;
    store->blocks[block->older].newer = block->newer;
    block->newer = number;
    store->count--;
    kvr_block_table_remove(&store->table, kvr_block_table_hash(&store->table, block->key), number);
    block->older = store->free;
    store->free = number;
}
