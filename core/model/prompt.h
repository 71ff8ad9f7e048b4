/* A prompt as a chain of block hashes. The canonical bytes of a prompt are cut into blocks at fixed
 * offsets; the hash of a block is XXH3-64 of its bytes with the hash of the block before as seed,
 * so equal hashes mean equal whole prefixes. The first seed stands for what makes two equal texts
 * different KV: model, LoRA, cache salt, template arguments.
 *
 *   seed ──> [block 0] ──> [block 1] ──> ... [block n-1] ──> (rest, shorter than a block: dropped)
 *              chain[0]      chain[1]          chain[n-1]
 *
 * With `wide_after`, blocks that start at or after that offset are KVR_PROMPT_WIDE_BYTES long: long
 * prompts then cost a quarter of the index, for coarser matches deep in.
 *
 * A prompt without text, as simulations use, is a row of pieces, each an identity and a length in
 * bytes. Pieces stand for bytes derived from their identity, so they are cut at the same
 * boundaries, may be mixed with text, and two prompts share exactly the blocks before their pieces
 * differ.
 *
 * One struct serves one request after another: `chain` is valid until the next begin. */
#ifndef KVR_PROMPT_H
#define KVR_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "slice.h"

#define KVR_PROMPT_BLOCK_BYTES     64
#define KVR_PROMPT_BLOCK_BYTES_MIN 16
#define KVR_PROMPT_WIDE_BYTES      256
#define KVR_PROMPT_BLOCKS_MAX      524288            /* 32 MiB of prompt in blocks of 64 bytes */
#define KVR_PROMPT_KEEP_BYTES      ((size_t)4 << 20) /* scratch kept from one request to the next */

struct kvr_prompt_options {
    uint32_t block_bytes; /* 16..256; 0: KVR_PROMPT_BLOCK_BYTES */
    uint64_t wide_after;  /* bytes; 0: never */
    uint32_t max_blocks;  /* deeper blocks are counted, not hashed; 0: KVR_PROMPT_BLOCKS_MAX */
};

/* Where a chain stands: enough to go on with it later, when the reply is known. */
struct kvr_prompt_tail {
    uint64_t hash;       /* of the last full block, or the seed */
    uint64_t block_at;   /* canonical offset where the open block starts */
    uint32_t blocks;     /* full blocks so far */
    uint32_t rest_bytes; /* of the open block */
    unsigned char rest[KVR_PROMPT_WIDE_BYTES];
};

struct kvr_prompt {
    struct kvr_prompt_options options; /* defaults filled in */
    uint64_t *chain;                   /* hashes of full blocks */
    uint32_t chain_len;
    uint32_t chain_capacity;
    uint32_t first_block;        /* index of chain[0] in the prompt: 0 unless resumed */
    uint64_t bytes;              /* canonical bytes added */
    uint64_t prompts_cut;        /* counter: prompts longer than max_blocks */
    bool cut;                    /* this one is */
    struct kvr_prompt_tail tail; /* the open block */
    struct kvr_buffer text;      /* scratch of the request scan: canonical text */
    struct kvr_buffer spare;     /* scratch of the request scan: reordering */
};

void kvr_prompt_init(struct kvr_prompt *prompt, const struct kvr_prompt_options *options);
void kvr_prompt_deinit(struct kvr_prompt *prompt);
/* Lets go of scratch that one large request has blown up; between requests. */
void kvr_prompt_slim(struct kvr_prompt *prompt);

/* Hash of `model \0 lora \0 cache_salt \0`: the seed of a prompt without template arguments, and
 * the scope of a session key. */
uint64_t kvr_prompt_scope(struct kvr_slice model, struct kvr_slice lora,
                          struct kvr_slice cache_salt);

void kvr_prompt_begin(struct kvr_prompt *prompt, uint64_t seed);
void kvr_prompt_add(struct kvr_prompt *prompt, const void *data, size_t len);
/* A piece without text: `bytes` bytes that are a function of `id` and of nothing else. */
void kvr_prompt_add_piece(struct kvr_prompt *prompt, uint64_t id, uint64_t bytes);

/* Hash of all that has been added: of the blocks, and of the open one. Never 0. */
uint64_t kvr_prompt_so_far(const struct kvr_prompt *prompt);

/* Goes on from a saved tail: the chain then holds only the blocks completed from there on, the
 * first of them with index `first_block`. */
void kvr_prompt_resume(struct kvr_prompt *prompt, const struct kvr_prompt_tail *tail);

/* The identity of bytes that are no text (an image): XXH3-128, in canonical byte order. */
void kvr_prompt_identity(struct kvr_slice data, unsigned char identity[16]);
/* XXH3-64 of bytes; how this layer hashes everything that is not a block. */
uint64_t kvr_prompt_hash(struct kvr_slice data, uint64_t seed);

#endif
