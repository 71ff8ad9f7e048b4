#include "block_table.h"

#include <stdbool.h>
#include <string.h>

#include "check.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

/* The low bits of the hash, which the choice of the bucket leaves nearly alone. */
static inline uint32_t tag_of(const struct kvr_block_table *table, uint64_t hash)
{
    return (uint32_t)hash & (UINT32_MAX >> table->number_bits);
}

static inline uint32_t entry_of(const struct kvr_block_table *table, uint64_t hash, uint32_t number)
{
    return tag_of(table, hash) << table->number_bits | number;
}

/* One bit for each place whose tag fits. Empty places have tag 0, so a set bit may mean nothing. */
static inline uint32_t places_with_tag(const struct kvr_bucket *bucket, uint32_t tag,
                                       uint32_t number_bits)
{
    uint32_t places = 0;
#if defined(__SSE2__)
    __m128i wanted = _mm_set1_epi32((int)tag);
    __m128i shift = _mm_cvtsi32_si128((int)number_bits);
    for (int i = 0; i < 4; i++) {
        __m128i four = _mm_load_si128((const __m128i *)(const void *)bucket + i);
        __m128i equal = _mm_cmpeq_epi32(_mm_srl_epi32(four, shift), wanted);
        places |= (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(equal)) << (4 * i);
    }
    places &= (1u << KVR_BUCKET_ENTRIES) - 1;
#else
    for (uint32_t i = 0; i < KVR_BUCKET_ENTRIES; i++)
        places |= (uint32_t)(bucket->entries[i] >> number_bits == tag) << i;
#endif
    return places;
}

uint32_t kvr_block_table_guess(const struct kvr_block_table *table, uint64_t hash)
{
    uint32_t number_mask = (1u << table->number_bits) - 1;
    uint64_t at = kvr_block_table_bucket(table, hash);
    for (uint64_t walked = 0; walked < table->bucket_count; walked++) {
        const struct kvr_bucket *bucket = &table->buckets[at];
        uint32_t places = places_with_tag(bucket, tag_of(table, hash), table->number_bits);
        for (; places; places &= places - 1) {
            uint32_t number = bucket->entries[__builtin_ctz(places)] & number_mask;
            if (number)
                return number;
        }
        if (bucket->passed == 0)
            return 0;
        at = at + 1 == table->bucket_count ? 0 : at + 1;
    }
    return 0;
}

uint32_t kvr_block_table_find(const struct kvr_block_table *table, const struct kvr_block *blocks,
                              uint64_t hash, uint64_t key)
{
    uint32_t number_mask = (1u << table->number_bits) - 1;
    uint64_t at = kvr_block_table_bucket(table, hash);
    for (uint64_t walked = 0; walked < table->bucket_count; walked++) {
        const struct kvr_bucket *bucket = &table->buckets[at];
        uint32_t places = places_with_tag(bucket, tag_of(table, hash), table->number_bits);
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
        uint32_t places = places_with_tag(bucket, wanted, 0);
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
