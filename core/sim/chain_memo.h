/* Chains of prompts that have been made before. Conversations quote themselves and templates are
 * shared, so most of what a prompt begins with has been hashed already: for each place in a prompt
 * the memo knows the blocks that its last piece completed and how the open block stands. A place is
 * named by a key that stands for all pieces up to it.
 *
 * Bounded: when it is full it forgets everything. What it gives is what hashing would have given.
 */
#ifndef KVR_CHAIN_MEMO_H
#define KVR_CHAIN_MEMO_H

#include <stdint.h>

#include "prompt.h"

struct kvr_chain_place {
    uint64_t key;        /* 0: free */
    uint64_t hash;       /* of the last full block */
    uint64_t block_at;   /* offset of the open block */
    uint32_t words_at;   /* in memo->words: blocks, then the bytes of the open block */
    uint32_t blocks;     /* that the last piece completed */
    uint32_t before;     /* blocks up to here, those among them */
    uint32_t rest_bytes; /* of the open block */
};

struct kvr_chain_memo {
    struct kvr_chain_place *places; /* owned; open addressing */
    uint32_t places_mask, places_len;
    uint64_t *words; /* owned */
    uint32_t words_len, words_capacity;
    uint64_t found, made, forgotten; /* counters; of the last: times it was full */
};

void kvr_chain_memo_init(struct kvr_chain_memo *memo);
void kvr_chain_memo_deinit(struct kvr_chain_memo *memo);

/* NULL: not known. Valid until the next keep. */
const struct kvr_chain_place *kvr_chain_memo_find(struct kvr_chain_memo *memo, uint64_t key);
/* place->blocks hashes. */
const uint64_t *kvr_chain_memo_blocks(const struct kvr_chain_memo *memo,
                                      const struct kvr_chain_place *place);
void kvr_chain_memo_tail(const struct kvr_chain_memo *memo, const struct kvr_chain_place *place,
                         struct kvr_prompt_tail *tail);
/* The prompt stands at the place `key`, which is not known yet; its chain is what the last piece
 * completed. */
void kvr_chain_memo_keep(struct kvr_chain_memo *memo, uint64_t key,
                         const struct kvr_prompt *prompt);

#endif
