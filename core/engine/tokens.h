/* The emulated tokenizer: turns a prompt, piece by piece, into a token count and the chained
 * hashes of its full blocks of 16 tokens. Nothing here knows a language; what counts is that equal
 * prompts give equal tokens and that a longer prompt keeps the tokens of the shorter one it
 * extends.
 *
 * Pieces. A prompt is a sequence of pieces, and every piece is cut on its own:
 *
 *   text      token k of a text of n bytes is the bytes [floor(k*b), floor((k+1)*b)), b the
 *             profile's bytes a token; the last may be shorter. Its id is a hash of those bytes.
 *   markup    one token of the chat template. A message is 3 markup tokens that name its role, its
 *             text, and 1 markup token that ends it; a prompt ends with the 3 that open an answer.
 *   ids       tokens that the client chose itself.
 *   segment   `len` tokens that stand for some text named `id`: the simulator's form. No text is
 *             needed: two segments of one id hold the same tokens as far as both reach.
 *
 * Because a piece is cut on its own, the answer to a prompt, sent back as an assistant message in
 * the next turn, gives there the very tokens that the engine generated: it follows the same three
 * markup tokens in both. That is the whole rule by which generated blocks can be found again. To
 * offer them to the engine, go on after the prompt with the answer's text (or its segment) and hand
 * over all blocks; the engine registers those that it fills.
 *
 *   struct kvr_tokens tokens;                       tokens.blocks[i]  hash of tokens 0..16*(i+1)-1
 *   kvr_tokens_init(&tokens, 1.59);
 *   kvr_tokens_begin(&tokens, salt, false);         <- once a request; keeps its memory
 *   kvr_tokens_markup(&tokens, KVR_MARKUP_HEAD, 28);
 *   kvr_tokens_markup(&tokens, KVR_MARKUP_USER, KVR_MARKUP_OPEN_TOKENS);    <- a message
 *   kvr_tokens_text(&tokens, text);
 *   kvr_tokens_markup(&tokens, KVR_MARKUP_END, 1);
 *   kvr_tokens_markup(&tokens, KVR_MARKUP_ASSISTANT, 3);
 *   prompt_tokens = tokens.count;
 *   kvr_tokens_text(&tokens, answer);
 *
 * A block hash covers everything before it: equal hash, equal whole prefix, as far as 64 bits tell.
 * It is never 0. */
#ifndef KVR_TOKENS_H
#define KVR_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* What a run of markup tokens stands for; ids below 4096 are markup. */
enum kvr_markup {
    KVR_MARKUP_HEAD = 1,    /* before the first message */
    KVR_MARKUP_SYSTEM_HEAD, /* the same, where a system prompt follows */
    KVR_MARKUP_SYSTEM,      /* opens a message of that role */
    KVR_MARKUP_USER,
    KVR_MARKUP_ASSISTANT,
    KVR_MARKUP_TOOL,
    KVR_MARKUP_TOOLS, /* opens the list of tools */
    KVR_MARKUP_IMAGE, /* stands before an image's identity */
    KVR_MARKUP_END,   /* ends a message */
};

#define KVR_MARKUP_OPEN_TOKENS  3 /* tokens that open a message */
#define KVR_BYTES_PER_TOKEN_MAX 64.0

struct kvr_tokens {
    uint64_t step;       /* bytes a token, in 1/65536 */
    uint64_t chain;      /* hash so far: the last full block and the tokens after it */
    uint32_t count;      /* tokens so far */
    uint32_t blocks_len; /* full blocks so far: count / 16 */
    uint32_t blocks_capacity;
    uint32_t ids_capacity;
    uint64_t *blocks; /* owned; chained hashes */
    uint32_t *ids;    /* owned; `count` ids when kept, else unused */
    bool keep_ids;
};

/* `bytes_per_token` in [1, 64]. */
void kvr_tokens_init(struct kvr_tokens *tokens, double bytes_per_token);
void kvr_tokens_deinit(struct kvr_tokens *tokens);
/* Starts a new prompt. `salt` separates caches (cache_salt, LoRA); 0 = none. With `keep_ids`, ids
 * are written beside the hashes; segments have none and must not occur then. */
void kvr_tokens_begin(struct kvr_tokens *tokens, uint64_t salt, bool keep_ids);

void kvr_tokens_text(struct kvr_tokens *tokens, struct kvr_slice text);
/* `len` tokens of one kind, the same ones each time. len <= 256. */
void kvr_tokens_markup(struct kvr_tokens *tokens, enum kvr_markup kind, uint32_t len);
void kvr_tokens_id(struct kvr_tokens *tokens, uint32_t id);
void kvr_tokens_segment(struct kvr_tokens *tokens, uint64_t id, uint32_t len);

/* A hash of everything so far, also of the last, open block: what an answer is a function of. */
uint64_t kvr_tokens_digest(const struct kvr_tokens *tokens);
/* First byte of token `index` of a text piece: floor(index * bytes a token). */
size_t kvr_tokens_cut(const struct kvr_tokens *tokens, uint32_t index);
/* Tokens of a text piece of `bytes` bytes, without reading it. */
uint32_t kvr_tokens_of_bytes(const struct kvr_tokens *tokens, size_t bytes);

#endif
