/* One remembered block of some prompt: its key, its place in the order of admission, and who is
 * believed to hold it. Exactly one cache line, because the index is as fast as it touches few.
 *
 * Holders fill their places from the first. A place that names KVR_HOLDER_OVERFLOW, always the
 * last, carries the number of an overflow line in place of a stamp (belief.h). */
#ifndef KVR_BLOCK_H
#define KVR_BLOCK_H

#include <stdint.h>

#define KVR_BLOCK_HOLDERS   8u
#define KVR_HOLDER_OVERFLOW UINT16_MAX
/* Blocks of one index: numbers of blocks leave room for a tag of 8 bits in 32. */
#define KVR_BLOCKS_MAX ((1u << 24) - 1)

struct kvr_block {
    _Alignas(64) uint64_t key;
    uint32_t newer; /* neighbours in the order of admission, as a ring through block 0 */
    uint32_t older; /* next free one while it is free */
    uint32_t stamps[KVR_BLOCK_HOLDERS];
    uint16_t tenancies[KVR_BLOCK_HOLDERS]; /* KVR_TENANCY_NONE: empty */
};

_Static_assert(sizeof(struct kvr_block) == 64, "a block is one cache line");

/* The first overflow line of the block; 0: it has none. */
static inline uint32_t kvr_block_overflow(const struct kvr_block *block)
{
    return block->tenancies[KVR_BLOCK_HOLDERS - 1] == KVR_HOLDER_OVERFLOW
               ? block->stamps[KVR_BLOCK_HOLDERS - 1]
               : 0;
}

#endif
