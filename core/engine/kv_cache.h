/* The paged KV cache of one engine: which blocks exist, who uses them, which prefixes they hold,
 * and who is evicted next. Token contents are not stored; a block is known by the chained hash of
 * everything up to its last token (tokens.h).
 *
 *   free queue   head -> next victim ... most recently freed -> tail
 *                [unhashed][unhashed][hash a3][hash a2][hash a1][hash b1] ...
 *
 * - A block is pinned while refs > 0. Only blocks with refs == 0 are in the free queue.
 * - A free block may still hold a prefix: it is found by `lookup` until it is taken for something
 *   else, which evicts it. So `free` says nothing about how full the cache is.
 * - Freed blocks go back last block first, hashed ones to the tail, unhashed ones to the head: of
 *   one request, the end of the prefix is evicted before its start.
 * - One block a hash: the first one registered wins; a duplicate stays unhashed.
 *
 * Changes of what the cache holds are journalled in order when asked for; the reader takes them. */
#ifndef KVR_KV_CACHE_H
#define KVR_KV_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"

#define KVR_KV_NONE UINT32_MAX

struct kvr_kv_block {
    uint64_t hash;   /* 0: holds no complete prefix */
    uint32_t refs;   /* requests that use it */
    uint32_t bucket; /* next block in its hash bucket; KVR_KV_NONE ends */
    uint32_t next;   /* free queue; meaningless while pinned */
    uint32_t prev;
};

enum kvr_kv_change_kind { KVR_KV_STORED, KVR_KV_REMOVED, KVR_KV_CLEARED };

struct kvr_kv_change {
    enum kvr_kv_change_kind kind;
    uint32_t index;  /* STORED: which block of its sequence, 0 first */
    uint64_t hash;   /* 0 for CLEARED */
    uint64_t parent; /* STORED: hash of the block before; 0 for the first */
    uint64_t owner;  /* STORED: the caller's name for the sequence */
};

struct kvr_kv_stats {
    uint64_t stored;     /* blocks that became findable */
    uint64_t evicted;    /* findable blocks taken for something else */
    uint64_t duplicates; /* registrations that lost to an earlier block */
};

struct kvr_kv_cache {
    struct kvr_kv_block *blocks; /* owned; blocks[count] is the ring's sentinel */
    uint32_t *buckets;           /* owned; first block of each hash bucket */
    uint32_t count;              /* blocks */
    uint32_t bucket_shift;       /* 64 - log2 of the number of buckets */
    uint32_t free;               /* blocks with refs == 0 */
    uint32_t cached;             /* blocks with a hash, pinned or free */
    uint64_t version;            /* grows with every change that a lookup or admission could see */
    bool journal;                /* record changes */
    uint32_t changes_len;
    uint32_t changes_capacity;
    struct kvr_kv_change *changes; /* owned */
    struct kvr_kv_stats stats;
};

void kvr_kv_cache_init(struct kvr_kv_cache *cache, uint32_t count, bool journal);
void kvr_kv_cache_deinit(struct kvr_kv_cache *cache);
/* Forgets every prefix. KVR_E_STATE while a block is pinned. */
int kvr_kv_cache_reset(struct kvr_kv_cache *cache) KVR_MUST_USE;

/* The longest run of leading hashes that are held: writes their blocks to `found`, returns how
 * many, and sets *idle to how many of them are free (to be taken out of the queue by `pin`). */
uint32_t kvr_kv_cache_lookup(const struct kvr_kv_cache *cache, const uint64_t *hashes,
                             uint32_t count, uint32_t *found, uint32_t *idle);
/* One more user for each of these blocks. */
void kvr_kv_cache_pin(struct kvr_kv_cache *cache, const uint32_t *blocks, uint32_t count);
/* Takes `count` <= free blocks from the head of the queue, evicting what they held. */
void kvr_kv_cache_allocate(struct kvr_kv_cache *cache, uint32_t *blocks, uint32_t count);
/* One user less for each, last block first. */
void kvr_kv_cache_release(struct kvr_kv_cache *cache, const uint32_t *blocks, uint32_t count);
/* These will be registered next, in this order: the memory is asked for what that needs. Called
 * before each of them it keeps ahead of them. */
void kvr_kv_cache_expect(const struct kvr_kv_cache *cache, const uint64_t *hashes, uint32_t count);
/* Gives a pinned, unhashed block its hash; false when another block holds it already. `parent`,
 * `owner` and `index` go into the journal. */
bool kvr_kv_cache_register(struct kvr_kv_cache *cache, uint32_t block, uint64_t hash,
                           uint64_t parent, uint64_t owner, uint32_t index);
/* Whether some block holds this hash. */
bool kvr_kv_cache_holds(const struct kvr_kv_cache *cache, uint64_t hash);
/* Dies unless refs, queue, buckets and counts agree. For tests; walks everything. */
void kvr_kv_cache_verify(const struct kvr_kv_cache *cache);

#endif
