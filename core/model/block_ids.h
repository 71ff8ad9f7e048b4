/* Numbers for block keys, so that rows can show chains without 64-bit keys: blocks that are first
 * seen one after another get consecutive numbers, so a chain is a few runs.
 *
 *   first prompt   [a b c d]      -> 1 2 3 4   written [[1,4]]
 *   second prompt  [a b x y z]    -> 1 2 5 6 7 written [[1,2],[5,3]]
 *
 * Equal numbers mean equal whole prefixes. Bounded: when `keys_max` keys have been seen, a new
 * epoch begins, and keys that were not seen in the last one are forgotten. Numbering goes on, so a
 * number never means two things; what is seen again after it was forgotten has a new one. */
#ifndef KVR_BLOCK_IDS_H
#define KVR_BLOCK_IDS_H

#include <stdint.h>

#define KVR_BLOCK_IDS_DEFAULT (1u << 20)

struct kvr_block_id {
    uint64_t key; /* 0: free */
    uint64_t id;
};

struct kvr_block_ids {
    struct kvr_block_id *table; /* of this epoch; NULL until the first key */
    struct kvr_block_id *older; /* of the last one; NULL: there was none */
    uint32_t keys_max;          /* a power of two; a table has twice as many places */
    uint32_t count;             /* in `table` */
    uint64_t next;              /* number of the next new key; the first is 1 */
    uint64_t epochs;            /* ended */
};

struct kvr_block_run {
    uint64_t first;
    uint32_t count;
};

/* `keys_max` 0: KVR_BLOCK_IDS_DEFAULT; else rounded up to a power of two. */
void kvr_block_ids_init(struct kvr_block_ids *ids, uint32_t keys_max);
void kvr_block_ids_deinit(struct kvr_block_ids *ids);

/* The runs of a chain, in order, at most `len` of them. Returns how many. */
uint32_t kvr_block_ids_runs(struct kvr_block_ids *ids, const uint64_t *chain, uint32_t len,
                            struct kvr_block_run *runs);

#endif
