#include "kv_cache.h"

#include <string.h>

#include "memory.h"
#include "prefetch.h"

/* Buckets a block, at least: chains stay short, and the array is half the size of the blocks. */
#define BUCKETS_PER_BLOCK 2u
/* How far ahead memory is asked for: a fleet of caches is larger than any processor's. */
#define PREFETCH_AHEAD 8u

void kvr_kv_cache_init(struct kvr_kv_cache *cache, uint32_t count, bool journal)
{
    KVR_CHECK(count > 0 && count < UINT32_MAX / 4);
    *cache = (struct kvr_kv_cache){.count = count, .free = count, .journal = journal};
    uint32_t bits = 4;
    while ((1u << bits) < count * BUCKETS_PER_BLOCK)
        bits++;
    cache->bucket_shift = 64 - bits;
    cache->buckets = kvr_alloc(sizeof *cache->buckets << bits);
    memset(cache->buckets, 0xff, sizeof *cache->buckets << bits); /* KVR_KV_NONE */
    cache->blocks = kvr_alloc((count + 1) * sizeof *cache->blocks);
    for (uint32_t i = 0; i <= count; i++)
        cache->blocks[i] = (struct kvr_kv_block){
            .bucket = KVR_KV_NONE,
            .next = i == count ? 0 : i + 1,
            .prev = i == 0 ? count : i - 1,
        };
}

void kvr_kv_cache_deinit(struct kvr_kv_cache *cache)
{
    kvr_free(cache->blocks);
    kvr_free(cache->buckets);
    kvr_free(cache->changes);
}

static inline uint32_t *bucket_of(const struct kvr_kv_cache *cache, uint64_t hash)
{
    /* Multiplied, because hashes of a trace may be small numbers. */
    return &cache->buckets[(hash * 0x9e3779b97f4a7c15u) >> cache->bucket_shift];
}

/* Only the bucket: to fetch the block that it leads to as well, the bucket would have to be read,
 * and that costs more than it saves (6 % of a simulation). */
static inline void prefetch_bucket(const struct kvr_kv_cache *cache, uint64_t hash)
{
    kvr_prefetch(bucket_of(cache, hash));
}

static inline uint32_t find(const struct kvr_kv_cache *cache, uint64_t hash)
{
    uint32_t at = *bucket_of(cache, hash);
    while (at != KVR_KV_NONE && cache->blocks[at].hash != hash)
        at = cache->blocks[at].bucket;
    return at;
}

static inline void unlink_free(struct kvr_kv_block *blocks, struct kvr_kv_block *block)
{
    blocks[block->prev].next = block->next;
    blocks[block->next].prev = block->prev;
}

static inline void link_between(struct kvr_kv_block *blocks, uint32_t before, uint32_t block,
                                uint32_t after)
{
    blocks[block].prev = before;
    blocks[block].next = after;
    blocks[before].next = block;
    blocks[after].prev = block;
}

static void record(struct kvr_kv_cache *cache, struct kvr_kv_change change)
{
    if (cache->changes_len == cache->changes_capacity) {
        cache->changes_capacity = cache->changes_capacity ? cache->changes_capacity * 2 : 256;
        cache->changes =
            kvr_realloc(cache->changes, cache->changes_capacity * sizeof *cache->changes);
    }
    cache->changes[cache->changes_len++] = change;
}

static void forget(struct kvr_kv_cache *cache, uint32_t index)
{
    struct kvr_kv_block *block = &cache->blocks[index];
    uint32_t *link = bucket_of(cache, block->hash);
    while (*link != index)
        link = &cache->blocks[*link].bucket;
    *link = block->bucket;
    if (cache->journal)
        record(cache, (struct kvr_kv_change){.kind = KVR_KV_REMOVED, .hash = block->hash});
    block->hash = 0;
    cache->cached--;
    cache->stats.evicted++;
}

int kvr_kv_cache_reset(struct kvr_kv_cache *cache)
{
    if (cache->free != cache->count)
        return KVR_E_STATE;
    for (uint32_t i = 0; i < cache->count; i++) {
        struct kvr_kv_block *block = &cache->blocks[i];
        if (block->hash)
            *bucket_of(cache, block->hash) = KVR_KV_NONE;
        block->hash = 0;
        block->bucket = KVR_KV_NONE;
    }
    cache->cached = 0;
    cache->version++;
    if (cache->journal)
        record(cache, (struct kvr_kv_change){.kind = KVR_KV_CLEARED});
    return KVR_OK;
}

uint32_t kvr_kv_cache_lookup(const struct kvr_kv_cache *cache, const uint64_t *hashes,
                             uint32_t count, uint32_t *found, uint32_t *idle)
{
    uint32_t free_blocks = 0;
    uint32_t hits = 0;
    for (; hits < count; hits++) {
        if (hits + 2 * PREFETCH_AHEAD < count)
            prefetch_bucket(cache, hashes[hits + 2 * PREFETCH_AHEAD]);
        uint32_t block = find(cache, hashes[hits]);
        if (block == KVR_KV_NONE)
            break;
        found[hits] = block;
        free_blocks += cache->blocks[block].refs == 0;
    }
    *idle = free_blocks;
    return hits;
}

void kvr_kv_cache_pin(struct kvr_kv_cache *cache, const uint32_t *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct kvr_kv_block *block = &cache->blocks[blocks[i]];
        if (block->refs++ == 0) {
            unlink_free(cache->blocks, block);
            cache->free--;
        }
    }
    cache->version++;
}

void kvr_kv_cache_allocate(struct kvr_kv_cache *cache, uint32_t *blocks, uint32_t count)
{
    KVR_CHECK(count <= cache->free);
    struct kvr_kv_block *sentinel = &cache->blocks[cache->count];
    uint32_t next = sentinel->next;
    for (uint32_t i = 0; i < count; i++) {
        struct kvr_kv_block *block = &cache->blocks[next];
        kvr_prefetch(&cache->blocks[block->next]);
        if (block->hash)
            prefetch_bucket(cache, block->hash);
        blocks[i] = next;
        next = block->next;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (cache->blocks[blocks[i]].hash)
            forget(cache, blocks[i]);
        cache->blocks[blocks[i]].refs = 1;
    }
    sentinel->next = next;
    cache->blocks[next].prev = cache->count;
    cache->free -= count;
    cache->version++;
}

void kvr_kv_cache_release(struct kvr_kv_cache *cache, const uint32_t *blocks, uint32_t count)
{
    uint32_t sentinel = cache->count;
    for (uint32_t i = count; i-- > 0;) {
        if (i >= PREFETCH_AHEAD)
            kvr_prefetch(&cache->blocks[blocks[i - PREFETCH_AHEAD]]);
        struct kvr_kv_block *block = &cache->blocks[blocks[i]];
        KVR_CHECK(block->refs > 0);
        if (--block->refs)
            continue;
        if (block->hash)
            link_between(cache->blocks, cache->blocks[sentinel].prev, blocks[i], sentinel);
        else
            link_between(cache->blocks, sentinel, blocks[i], cache->blocks[sentinel].next);
        cache->free++;
    }
    cache->version++;
}

void kvr_kv_cache_expect(const struct kvr_kv_cache *cache, const uint64_t *hashes, uint32_t count)
{
    if (count > 2 * PREFETCH_AHEAD)
        prefetch_bucket(cache, hashes[(size_t)2 * PREFETCH_AHEAD]);
}

bool kvr_kv_cache_register(struct kvr_kv_cache *cache, uint32_t block, uint64_t hash,
                           uint64_t parent, uint64_t owner, uint32_t index)
{
    struct kvr_kv_block *held = &cache->blocks[block];
    KVR_CHECK(held->refs > 0 && held->hash == 0 && hash != 0);
    if (find(cache, hash) != KVR_KV_NONE) {
        cache->stats.duplicates++;
        return false;
    }
    uint32_t *bucket = bucket_of(cache, hash);
    held->hash = hash;
    held->bucket = *bucket;
    *bucket = block;
    cache->cached++;
    cache->stats.stored++;
    cache->version++;
    if (cache->journal)
        record(cache, (struct kvr_kv_change){.kind = KVR_KV_STORED,
                                             .index = index,
                                             .hash = hash,
                                             .parent = parent,
                                             .owner = owner});
    return true;
}

bool kvr_kv_cache_holds(const struct kvr_kv_cache *cache, uint64_t hash)
{
    return find(cache, hash) != KVR_KV_NONE;
}

void kvr_kv_cache_verify(const struct kvr_kv_cache *cache)
{
    uint32_t unused = 0;
    uint32_t hashed = 0;
    for (uint32_t i = 0; i < cache->count; i++) {
        unused += cache->blocks[i].refs == 0;
        if (cache->blocks[i].hash) {
            hashed++;
            KVR_CHECK(find(cache, cache->blocks[i].hash) == i);
        }
    }
    KVR_CHECK(unused == cache->free);
    KVR_CHECK(hashed == cache->cached);
    uint32_t queued = 0;
    uint32_t before = cache->count;
    for (uint32_t at = cache->blocks[before].next; at != cache->count;
         at = cache->blocks[at].next) {
        KVR_CHECK(cache->blocks[at].refs == 0 && cache->blocks[at].prev == before);
        KVR_CHECK(++queued <= cache->free);
        before = at;
    }
    KVR_CHECK(queued == cache->free && cache->blocks[cache->count].prev == before);
    uint32_t chained = 0;
    for (uint64_t i = 0; i <= UINT64_MAX >> cache->bucket_shift; i++)
        for (uint32_t at = cache->buckets[i]; at != KVR_KV_NONE; at = cache->blocks[at].bucket)
            chained++;
    KVR_CHECK(chained == hashed);
}
