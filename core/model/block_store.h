/* The blocks of a prefix index: a slab of them, the table that finds them by key, and the exact
 * order in which they were last admitted. Numbers, not pointers; 0 is no block and closes the ring.
 *
 *   newest  block 0 .older -> 7 -> 3 -> 12 -> ... -> 5 -> block 0   oldest = block 0 .newer
 *
 * A prompt that comes again is found along that order: its blocks were taken together, so they lie
 * in a row, and admitted together, so they follow each other. Only its first block, and where two
 * admissions meet, are looked up in the table.
 *
 * Who holds a block is not this module's concern (belief.h). */
#ifndef KVR_BLOCK_STORE_H
#define KVR_BLOCK_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "block.h"
#include "block_table.h"
#include "pages.h"

struct kvr_block_store {
    struct kvr_block *blocks; /* blocks_max + 1 */
    uint32_t blocks_max;
    uint32_t count; /* in the order */
    uint32_t end;   /* blocks 1 .. end - 1 have been used */
    uint32_t free;  /* head of the free ones; 0 none */
    struct kvr_block_table table;
    struct kvr_pages pages;
};

void kvr_block_store_init(struct kvr_block_store *store, uint32_t blocks_max, uint64_t seed);
void kvr_block_store_deinit(struct kvr_block_store *store);
/* Bytes of a store for that many blocks. */
uint64_t kvr_block_store_bytes(uint32_t blocks_max);

/* Finds the blocks of a chain as far as it is there. `before` is the block of the key before these,
 * 0 at a chain's beginning. Returns how many leading keys have a block: `numbers` has those, and a
 * 0 for the key that ended it, and nothing behind that. `*run`, true at a chain's beginning,
 * becomes false unless all found lie in the order one right behind the other, as they were put
 * there. */
uint32_t kvr_block_store_find_leading(const struct kvr_block_store *store, const uint64_t *keys,
                                      uint32_t count, uint32_t before, uint32_t *numbers,
                                      bool *run);
/* Finds the block of every key, or 0. */
void kvr_block_store_find(const struct kvr_block_store *store, const uint64_t *keys, uint32_t count,
                          uint32_t before, uint32_t *numbers);

/* The `count` oldest blocks will be released next: fetches what that touches. */
void kvr_block_store_fetch_oldest(const struct kvr_block_store *store, uint32_t count);

/* A new block with that key, not in the order yet, without holders. There must be room. */
uint32_t kvr_block_store_take(struct kvr_block_store *store, uint64_t key);
/* Takes the blocks of a chain out of the order. A number that is not in it, because it is 0 or came
 * before, becomes 0. Returns how many those are. */
uint32_t kvr_block_store_unlink_chain(struct kvr_block_store *store, uint32_t *numbers,
                                      uint32_t len);
/* Puts blocks that are not in the order at its new end, the last one first. */
void kvr_block_store_link_chain(struct kvr_block_store *store, const uint32_t *numbers,
                                uint32_t len);
/* The same as the two above for blocks that are a run. It holds together: its two ends are touched
 * and their neighbours, not every block. */
void kvr_block_store_unlink_run(struct kvr_block_store *store, const uint32_t *numbers,
                                uint32_t len);
void kvr_block_store_link_run(struct kvr_block_store *store, const uint32_t *numbers, uint32_t len);
/* Forgets a block that is in the order and has no holders. */
void kvr_block_store_release(struct kvr_block_store *store, uint32_t number);

static inline uint32_t kvr_block_store_oldest(const struct kvr_block_store *store)
{
    return store->blocks[0].newer;
}

static inline bool kvr_block_store_linked(const struct kvr_block_store *store, uint32_t number)
{
    return store->blocks[number].newer != number;
}

#endif
