#include "tokens.h"

#include <string.h>

#include "check.h"
#include "memory.h"
#include "profile.h"
#include "rng.h"

/* First id that is not markup. */
#define TEXT_IDS          4096u
#define MARKUP_IDS_A_KIND 256u

/* One more word into a chain: 64 x 64 -> 128 bits, folded. */
static inline uint64_t stir(uint64_t chain, uint64_t word)
{
    unsigned __int128 product =
        (unsigned __int128)(chain ^ 0x2d358dccaa6c78a5u) * (word ^ 0x8bb84b93962eacc9u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t step_of(double bytes_per_token)
{
    KVR_CHECK(bytes_per_token >= 1.0 && bytes_per_token <= KVR_BYTES_PER_TOKEN_MAX);
    return (uint64_t)(bytes_per_token * 65536.0 + 0.5);
}

void kvr_tokens_init(struct kvr_tokens *tokens, double bytes_per_token)
{
    *tokens = (struct kvr_tokens){.step = step_of(bytes_per_token)};
}

void kvr_tokens_deinit(struct kvr_tokens *tokens)
{
    kvr_free(tokens->blocks);
    kvr_free(tokens->ids);
}

void kvr_tokens_begin(struct kvr_tokens *tokens, uint64_t salt, bool keep_ids)
{
    tokens->chain = kvr_mix64(salt + 0x9e3779b97f4a7c15u);
    tokens->count = 0;
    tokens->blocks_len = 0;
    tokens->keep_ids = keep_ids;
}

/* Makes room for `more` tokens, so that appending them needs no check. */
static void reserve(struct kvr_tokens *tokens, uint32_t more)
{
    KVR_CHECK(tokens->count + (uint64_t)more < UINT32_MAX / 2);
    uint32_t blocks = (tokens->count + more) / KVR_BLOCK_TOKENS;
    if (blocks > tokens->blocks_capacity) {
        tokens->blocks_capacity = blocks + blocks / 2 + 64;
        tokens->blocks =
            kvr_realloc(tokens->blocks, tokens->blocks_capacity * sizeof *tokens->blocks);
    }
    if (tokens->keep_ids && tokens->count + more > tokens->ids_capacity) {
        tokens->ids_capacity = (tokens->count + more) + (tokens->count + more) / 2 + 64;
        tokens->ids = kvr_realloc(tokens->ids, tokens->ids_capacity * sizeof *tokens->ids);
    }
}

static inline void end_block(struct kvr_tokens *tokens)
{
    if (tokens->chain == 0)
        tokens->chain = 1; /* 0 means no hash */
    tokens->blocks[tokens->blocks_len++] = tokens->chain;
}

static inline void append(struct kvr_tokens *tokens, uint32_t id)
{
    if (tokens->keep_ids)
        tokens->ids[tokens->count] = id;
    tokens->chain = stir(tokens->chain, id);
    if (++tokens->count % KVR_BLOCK_TOKENS == 0)
        end_block(tokens);
}

/* Up to 8 bytes, the first one lowest on any machine. */
static inline uint64_t word_of(const char *data, size_t len)
{
    uint64_t word = 0;
    if (len == 8) {
        memcpy(&word, data, 8);
        return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(word) : word;
    }
    for (size_t i = 0; i < len; i++)
        word |= (uint64_t)(unsigned char)data[i] << (8 * i);
    return word;
}

static inline uint32_t text_id(const char *data, size_t len)
{
    uint64_t hash = len;
    while (len > 8) {
        hash = stir(hash, word_of(data, 8));
        data += 8;
        len -= 8;
    }
    hash = stir(hash, word_of(data, len));
    /* Positive in 32 signed bits, and clear of markup. */
    uint32_t id = (uint32_t)(hash >> 33);
    return id < TEXT_IDS ? id + TEXT_IDS : id;
}

size_t kvr_tokens_cut(const struct kvr_tokens *tokens, uint32_t index)
{
    return (size_t)((index * tokens->step) >> 16);
}

uint32_t kvr_tokens_of_bytes(const struct kvr_tokens *tokens, size_t bytes)
{
    KVR_CHECK(bytes < UINT32_MAX / 2);
    /* The least k with floor(k * step / 2^16) >= bytes. */
    return (uint32_t)((((uint64_t)bytes << 16) + tokens->step - 1) / tokens->step);
}

void kvr_tokens_text(struct kvr_tokens *tokens, struct kvr_slice text)
{
    uint32_t count = kvr_tokens_of_bytes(tokens, text.len);
    reserve(tokens, count);
    size_t from = 0;
    for (uint32_t i = 1; i <= count; i++) {
        size_t to = kvr_tokens_cut(tokens, i);
        if (to > text.len)
            to = text.len;
        append(tokens, text_id(text.data + from, to - from));
        from = to;
    }
}

void kvr_tokens_markup(struct kvr_tokens *tokens, enum kvr_markup kind, uint32_t len)
{
    KVR_CHECK(len <= MARKUP_IDS_A_KIND && kind >= KVR_MARKUP_HEAD && kind <= KVR_MARKUP_END);
    reserve(tokens, len);
    for (uint32_t i = 0; i < len; i++)
        append(tokens, (uint32_t)kind * MARKUP_IDS_A_KIND + i);
}

void kvr_tokens_id(struct kvr_tokens *tokens, uint32_t id)
{
    reserve(tokens, 1);
    append(tokens, id);
}

void kvr_tokens_segment(struct kvr_tokens *tokens, uint64_t id, uint32_t len)
{
    KVR_CHECK(!tokens->keep_ids);
    reserve(tokens, len);
    uint64_t key = kvr_mix64(id + 0x9e3779b97f4a7c15u);
    uint32_t offset = 0;
    while (offset < len) {
        uint32_t room = KVR_BLOCK_TOKENS - tokens->count % KVR_BLOCK_TOKENS;
        uint32_t piece = len - offset < room ? len - offset : room;
        tokens->chain = stir(tokens->chain, key ^ ((uint64_t)offset << 8 | piece));
        tokens->count += piece;
        offset += piece;
        if (piece == room)
            end_block(tokens);
    }
}

uint64_t kvr_tokens_digest(const struct kvr_tokens *tokens)
{
    return kvr_mix64(tokens->chain ^ tokens->count);
}
