#include "block_table.h"

#include <stdbool.h>
#include <string.h>

#include "check.h"

static uint64_t bucket_count(uint32_t blocks_max)
{
    return blocks_max / KVR_BUCKET_BLOCKS + 1;
}

uint64_t kvr_block_table_bytes(uint32_t blocks_max)
{
    return bucket_count(blocks_max) * sizeof(struct kvr_bucket);
}

void kvr_block_table_init(struct kvr_block_table *table, uint32_t blocks_max, uint64_t seed)
{
    KVR_CHECK(blocks_max > 0 && blocks_max <= KVR_BLOCKS_MAX);
    memset(table, 0, sizeof *table);
    table->bucket_count = bucket_count(blocks_max);
    table->seed = seed;
    while (table->number_bits < 32 && blocks_max >> table->number_bits)
        table->number_bits++;
    kvr_pages_init(&table->pages, kvr_block_table_bytes(blocks_max));
    table->buckets = table->pages.memory;
}

void kvr_block_table_deinit(struct kvr_block_table *table)
{
    kvr_pages_deinit(&table->pages);
    memset(table, 0, sizeof *table);
}

static inline uint32_t entry_of(const struct kvr_block_table *table, uint64_t hash, uint32_t number)
{
    return kvr_block_table_tag(table, hash) << table->number_bits | number;
}

uint32_t kvr_block_table_find(const struct kvr_block_table *table, const struct kvr_block *blocks,
                              uint64_t hash, uint64_t key)
{
    uint32_t number_mask = (1u << table->number_bits) - 1;
    uint64_t at = kvr_block_table_bucket(table, hash);
    for (uint64_t walked = 0; walked < table->bucket_count; walked++) {
        const struct kvr_bucket *bucket = &table->buckets[at];
        uint32_t places =
            kvr_bucket_places(bucket, kvr_block_table_tag(table, hash), table->number_bits);
        for (; places; places &= places - 1) {
            uint32_t number = bucket->entries[__builtin_ctz(places)] & number_mask;
            if (number && blocks[number].key == key)
                return number;
        }
        if (bucket->passed == 0)
            return 0;
        at = at + 1 == table->bucket_count ? 0 : at + 1;
    }
    return 0;
}

/* Puts `value` in place of the first `wanted` on the way of that hash, and adds `step` to the
 * count of every bucket passed. */
static void replace_first(struct kvr_block_table *table, uint64_t hash, uint32_t wanted,
                          uint32_t value, uint32_t step)
{
    uint64_t at = kvr_block_table_bucket(table, hash);
    for (uint64_t walked = 0; walked < table->bucket_count; walked++) {
        struct kvr_bucket *bucket = &table->buckets[at];
        uint32_t places = kvr_bucket_places(bucket, wanted, 0);
        if (places) {
            bucket->entries[__builtin_ctz(places)] = value;
            return;
        }
        bucket->passed += step;
        at = at + 1 == table->bucket_count ? 0 : at + 1;
    }
    kvr_check_failed(__FILE__, __LINE__, "the table has room, and holds what is removed");
}

void kvr_block_table_insert(struct kvr_block_table *table, uint64_t hash, uint32_t number)
{
    KVR_CHECK(number > 0 && number >> table->number_bits == 0);
    replace_first(table, hash, 0, entry_of(table, hash, number), 1);
}

void kvr_block_table_remove(struct kvr_block_table *table, uint64_t hash, uint32_t number)
{
    replace_first(table, hash, entry_of(table, hash, number), 0, UINT32_MAX);
}
