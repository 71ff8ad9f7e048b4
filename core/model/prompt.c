#include "prompt.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SHORT_TEXT 240 /* bytes up to which XXH3 needs no secret of its own */

#include "memory.h"
#include "rng.h"

#define GOLDEN 0x9e3779b97f4a7c15u

void kvr_prompt_init(struct kvr_prompt *prompt, const struct kvr_prompt_options *options)
{
    *prompt = (struct kvr_prompt){0};
    if (options)
        prompt->options = *options;
    if (prompt->options.block_bytes == 0)
        prompt->options.block_bytes = KVR_PROMPT_BLOCK_BYTES;
    if (prompt->options.max_blocks == 0)
        prompt->options.max_blocks = KVR_PROMPT_BLOCKS_MAX;
    KVR_CHECK(prompt->options.block_bytes >= KVR_PROMPT_BLOCK_BYTES_MIN);
    KVR_CHECK(prompt->options.block_bytes <= KVR_PROMPT_WIDE_BYTES);
}

void kvr_prompt_deinit(struct kvr_prompt *prompt)
{
    kvr_free(prompt->chain);
    kvr_buffer_deinit(&prompt->text);
    kvr_buffer_deinit(&prompt->spare);
    *prompt = (struct kvr_prompt){0};
}

void kvr_prompt_slim(struct kvr_prompt *prompt)
{
    if (prompt->text.capacity > KVR_PROMPT_KEEP_BYTES)
        kvr_buffer_deinit(&prompt->text);
    if (prompt->spare.capacity > KVR_PROMPT_KEEP_BYTES)
        kvr_buffer_deinit(&prompt->spare);
}

uint64_t kvr_prompt_hash(struct kvr_slice data, uint64_t seed)
{
    const char *bytes = data.len ? data.data : "";
    if (data.len <= SHORT_TEXT)
        return XXH3_64bits_withSeed(bytes, data.len, seed);
    /* A seed makes XXH3 derive a secret for each long text, which costs as much as 1 KB of it. */
    return kvr_mix64(XXH3_64bits(bytes, data.len) ^ kvr_mix64(seed));
}

void kvr_prompt_identity(struct kvr_slice data, unsigned char identity[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.len ? data.data : "", data.len));
    memcpy(identity, canonical.digest, sizeof canonical.digest);
}

uint64_t kvr_prompt_scope(struct kvr_slice model, struct kvr_slice lora,
                          struct kvr_slice cache_salt)
{
    char small[512];
    const struct kvr_slice parts[] = {model, lora, cache_salt};
    size_t need = model.len + lora.len + cache_salt.len + 3;
    char *text = need <= sizeof small ? small : kvr_alloc(need);
    char *out = text;
    for (size_t i = 0; i < 3; i++) {
        if (parts[i].len)
            memcpy(out, parts[i].data, parts[i].len);
        out += parts[i].len;
        *out++ = '\0';
    }
    uint64_t hash = XXH3_64bits(text, need);
    if (text != small)
        kvr_free(text);
    return hash;
}

void kvr_prompt_begin(struct kvr_prompt *prompt, uint64_t seed)
{
    prompt->chain_len = 0;
    prompt->first_block = 0;
    prompt->bytes = 0;
    prompt->cut = false;
    prompt->tail.hash = seed;
    prompt->tail.block_at = 0;
    prompt->tail.blocks = 0;
    prompt->tail.rest_bytes = 0;
}

uint64_t kvr_prompt_so_far(const struct kvr_prompt *prompt)
{
    const struct kvr_prompt_tail *tail = &prompt->tail;
    uint64_t hash = XXH3_64bits_withSeed(tail->rest, tail->rest_bytes, tail->hash);
    return hash ? hash : 1;
}

void kvr_prompt_resume(struct kvr_prompt *prompt, const struct kvr_prompt_tail *tail)
{
    KVR_CHECK(tail->rest_bytes < KVR_PROMPT_WIDE_BYTES);
    prompt->chain_len = 0;
    prompt->first_block = tail->blocks;
    prompt->cut = false;
    prompt->bytes = tail->block_at + tail->rest_bytes;
    prompt->tail = *tail;
}

/* Length of the open block. */
static inline uint32_t block_size(const struct kvr_prompt *prompt)
{
    uint64_t wide_after = prompt->options.wide_after;
    if (wide_after && prompt->tail.block_at >= wide_after)
        return KVR_PROMPT_WIDE_BYTES;
    return prompt->options.block_bytes;
}

/* The bound on blocks, not to be hashed beyond. */
static inline bool full(const struct kvr_prompt *prompt)
{
    return prompt->tail.blocks >= prompt->options.max_blocks;
}

static void reserve(struct kvr_prompt *prompt, uint64_t more)
{
    uint64_t need = prompt->chain_len + more;
    if (need <= prompt->chain_capacity)
        return;
    uint64_t capacity = prompt->chain_capacity ? prompt->chain_capacity : 256;
    while (capacity < need)
        capacity *= 2;
    prompt->chain = kvr_realloc(prompt->chain, capacity * sizeof *prompt->chain);
    prompt->chain_capacity = (uint32_t)capacity;
}

static void push(struct kvr_prompt *prompt, const void *block, uint32_t size)
{
    struct kvr_prompt_tail *tail = &prompt->tail;
    reserve(prompt, 1);
    tail->hash = XXH3_64bits_withSeed(block, size, tail->hash);
    tail->block_at += size;
    tail->blocks++;
    prompt->chain[prompt->chain_len++] = tail->hash;
}

/* Up to `count` whole blocks of `size` bytes at `data`. Inlined for a constant size. */
static inline __attribute__((always_inline)) void
push_run(struct kvr_prompt *prompt, const unsigned char *data, size_t count, size_t size)
{
    struct kvr_prompt_tail *tail = &prompt->tail;
    uint64_t *to = prompt->chain + prompt->chain_len;
    uint64_t hash = tail->hash;
    for (size_t i = 0; i < count; i++, data += size)
        to[i] = hash = XXH3_64bits_withSeed(data, size, hash);
    tail->hash = hash;
    tail->block_at += count * size;
    tail->blocks += (uint32_t)count;
    prompt->chain_len += (uint32_t)count;
}

/* Hashes the whole blocks at `data` that are as long as the open one, and returns their bytes. */
static size_t push_blocks(struct kvr_prompt *prompt, const unsigned char *data, size_t len)
{
    size_t size = block_size(prompt);
    size_t count = len / size;
    size_t room = prompt->options.max_blocks - prompt->tail.blocks;
    uint64_t wide_after = prompt->options.wide_after;
    if (wide_after > prompt->tail.block_at) {
        uint64_t narrow = (wide_after - prompt->tail.block_at + size - 1) / size;
        count = count < narrow ? count : narrow;
    }
    count = count < room ? count : room;
    reserve(prompt, count);
    if (size == KVR_PROMPT_BLOCK_BYTES)
        push_run(prompt, data, count, KVR_PROMPT_BLOCK_BYTES);
    else
        push_run(prompt, data, count, size);
    return count * size;
}

void kvr_prompt_add(struct kvr_prompt *prompt, const void *data, size_t len)
{
    struct kvr_prompt_tail *tail = &prompt->tail;
    const unsigned char *at = data;
    if (len == 0)
        return;
    prompt->bytes += len;
    if (tail->rest_bytes && !full(prompt)) {
        uint32_t size = block_size(prompt);
        size_t missing = size - tail->rest_bytes;
        size_t taken = len < missing ? len : missing;
        memcpy(tail->rest + tail->rest_bytes, at, taken);
        tail->rest_bytes += (uint32_t)taken;
        at += taken;
        len -= taken;
        if (tail->rest_bytes < size)
            return;
        push(prompt, tail->rest, size);
        tail->rest_bytes = 0;
    }
    while (!full(prompt) && len >= block_size(prompt)) {
        size_t pushed = push_blocks(prompt, at, len);
        at += pushed;
        len -= pushed;
    }
    if (len && !full(prompt)) {
        memcpy(tail->rest, at, len);
        tail->rest_bytes = (uint32_t)len;
    } else if (len && !prompt->cut) {
        prompt->cut = true;
        prompt->prompts_cut++;
    }
}

void kvr_prompt_add_piece(struct kvr_prompt *prompt, uint64_t id, uint64_t bytes)
{
    uint64_t words[32]; /* as many bytes as the widest block */
    uint64_t word = kvr_mix64(id + GOLDEN);
    while (bytes && !prompt->cut) {
        size_t take = bytes < sizeof words ? (size_t)bytes : sizeof words;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++, word += GOLDEN)
            words[i] = word;
        kvr_prompt_add(prompt, words, take);
        bytes -= take;
    }
    prompt->bytes += bytes;
}
