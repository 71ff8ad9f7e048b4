/* Block key -> block number: an open hash table whose buckets are cache lines of 15 entries, so
 * that a lookup is one line of the table and one of the block.
 *
 *   bucket: | e0 | e1 | ... | e14 | passed |      entry: tag (high bits) | block number (low bits)
 *
 * An entry that finds its bucket full goes on to the next with a free place, and every bucket it
 * passes counts it in `passed`; a lookup goes on only where somebody has passed. Removal takes
 * those counts back, so there are no tombstones and nothing ever moves. Keys are not stored: the
 * tag sorts out most strangers and the caller compares the key in the block. 6.4 bytes a block. */
#ifndef KVR_BLOCK_TABLE_H
#define KVR_BLOCK_TABLE_H

#include <stdint.h>

#include "block.h"
#include "pages.h"
#include "prefetch.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define KVR_BUCKET_ENTRIES 15u
#define KVR_BUCKET_BLOCKS  10u /* blocks a bucket at the cap: one in 20 buckets is then full */

struct kvr_bucket {
    _Alignas(64) uint32_t entries[KVR_BUCKET_ENTRIES]; /* 0: empty */
    uint32_t passed;
};

struct kvr_block_table {
    struct kvr_bucket *buckets;
    uint64_t bucket_count;
    uint64_t seed;
    uint32_t number_bits; /* low bits of an entry that are the block's number */
    struct kvr_pages pages;
};

void kvr_block_table_init(struct kvr_block_table *table, uint32_t blocks_max, uint64_t seed);
void kvr_block_table_deinit(struct kvr_block_table *table);
/* Bytes of a table for that many blocks. */
uint64_t kvr_block_table_bytes(uint32_t blocks_max);

/* Stays within two multiplications, because every lookup of every block pays it. The two halves of
 * the product are folded, so that all bits of the key reach both the bucket and the tag. */
static inline uint64_t kvr_block_table_hash(const struct kvr_block_table *table, uint64_t key)
{
    unsigned __int128 product =
        (unsigned __int128)(key ^ table->seed) * UINT64_C(0x9e3779b97f4a7c15);
    return ((uint64_t)(product >> 64) ^ (uint64_t)product) * UINT64_C(0xd6e8feb86659fd93);
}

static inline uint64_t kvr_block_table_bucket(const struct kvr_block_table *table, uint64_t hash)
{
    return (uint64_t)(((unsigned __int128)hash * table->bucket_count) >> 64);
}

static inline void kvr_block_table_prefetch(const struct kvr_block_table *table, uint64_t hash)
{
    kvr_prefetch(&table->buckets[kvr_block_table_bucket(table, hash)]);
}

/* The low bits of the hash, which the choice of the bucket leaves nearly alone. */
static inline uint32_t kvr_block_table_tag(const struct kvr_block_table *table, uint64_t hash)
{
    return (uint32_t)hash & (UINT32_MAX >> table->number_bits);
}

/* One bit for each place whose tag fits. Empty places have tag 0, so a set bit may mean nothing. */
static inline uint32_t kvr_bucket_places(const struct kvr_bucket *bucket, uint32_t tag,
                                         uint32_t number_bits)
{
    uint32_t places = 0;
#if defined(__SSE2__)
    __m128i wanted = _mm_set1_epi32((int)tag);
    __m128i shift = _mm_cvtsi32_si128((int)number_bits);
    const __m128i *four = (const __m128i *)(const void *)bucket;
    __m128i a = _mm_cmpeq_epi32(_mm_srl_epi32(_mm_load_si128(four), shift), wanted);
    __m128i b = _mm_cmpeq_epi32(_mm_srl_epi32(_mm_load_si128(four + 1), shift), wanted);
    __m128i c = _mm_cmpeq_epi32(_mm_srl_epi32(_mm_load_si128(four + 2), shift), wanted);
    __m128i d = _mm_cmpeq_epi32(_mm_srl_epi32(_mm_load_si128(four + 3), shift), wanted);
    __m128i all = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
    places = (uint32_t)_mm_movemask_epi8(all) & ((1u << KVR_BUCKET_ENTRIES) - 1);
#else
    for (uint32_t i = 0; i < KVR_BUCKET_ENTRIES; i++)
        places |= (uint32_t)(bucket->entries[i] >> number_bits == tag) << i;
#endif
    return places;
}

/* A block that may have that hash, without looking at it; 0: there is none. Right but for one in
 * 2^8 or rarer, when only kvr_block_table_find can tell. */
static inline uint32_t kvr_block_table_guess(const struct kvr_block_table *table, uint64_t hash)
{
    uint32_t number_mask = (1u << table->number_bits) - 1;
    uint64_t at = kvr_block_table_bucket(table, hash);
    for (uint64_t walked = 0; walked < table->bucket_count; walked++) {
        const struct kvr_bucket *bucket = &table->buckets[at];
        uint32_t tag = kvr_block_table_tag(table, hash);
        uint32_t places = kvr_bucket_places(bucket, tag, table->number_bits);
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

/* The block with that key, or 0. */
uint32_t kvr_block_table_find(const struct kvr_block_table *table, const struct kvr_block *blocks,
                              uint64_t hash, uint64_t key);
void kvr_block_table_insert(struct kvr_block_table *table, uint64_t hash, uint32_t number);
/* The pair must be in the table. */
void kvr_block_table_remove(struct kvr_block_table *table, uint64_t hash, uint32_t number);

#endif
