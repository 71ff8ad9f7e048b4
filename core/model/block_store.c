#include "block_store.h"

#include <string.h>

#include "check.h"

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
        __builtin_prefetch(&store->blocks[numbers[i]], 1);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] && store->blocks[numbers[i]].key != keys[i]) {
            uint64_t hash = kvr_block_table_hash(&store->table, keys[i]);
            numbers[i] = kvr_block_table_find(&store->table, store->blocks, hash, keys[i]);
        }
    }
}

void kvr_block_store_find(const struct kvr_block_store *store, const uint64_t *keys, uint32_t count,
                          uint32_t ahead, uint32_t *numbers)
{
    for (uint32_t at = 0; at < count; at += BATCH) {
        uint32_t left = count - at;
        uint32_t batch = left < BATCH ? left : BATCH;
        uint32_t next = left - batch + ahead;
        prefetch_buckets(&store->table, keys + at + batch, next < BATCH ? next : BATCH);
        find_batch(store, keys + at, batch, numbers + at);
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

void kvr_block_store_release(struct kvr_block_store *store, uint32_t number)
{
    struct kvr_block *block = &store->blocks[number];
    KVR_CHECK(number != 0 && block->tenancies[0] == 0);
    kvr_block_store_unlink(store, number);
    kvr_block_table_remove(&store->table, kvr_block_table_hash(&store->table, block->key), number);
    block->older = store->free;
    store->free = number;
}
