/* The chain of a prompt: text and pieces, cut into blocks. Input: options, then commands.
 *
 * However a prompt is put together (in pieces of any length, stopped and resumed anywhere), its
 * chain is what a plain loop over all its bytes makes of it. */
#include "fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "prompt.h"
#include "rng.h"

#define BYTES_MAX 65536 /* of one prompt */

struct model {
    struct kvr_buffer bytes; /* the whole prompt */
    struct kvr_buffer chain; /* of uint64_t, blocks so far */
    uint64_t hash;
    size_t block_at;
    const struct kvr_prompt_options *options;
};

/* Makes the blocks that are full by now, the plain way. */
static void model_advance(struct model *model)
{
    for (;;) {
        const struct kvr_prompt_options *options = model->options;
        bool wide = options->wide_after && model->block_at >= options->wide_after;
        size_t size = wide ? KVR_PROMPT_WIDE_BYTES : options->block_bytes;
        size_t blocks = model->chain.len / sizeof model->hash;
        if (model->bytes.len - model->block_at < size || blocks == options->max_blocks)
            return;
        model->hash = XXH3_64bits_withSeed(model->bytes.data + model->block_at, size, model->hash);
        kvr_buffer_append(&model->chain, &model->hash, sizeof model->hash);
        model->block_at += size;
    }
}

static void model_add_piece(struct model *model, uint64_t id, uint64_t bytes)
{
    uint64_t word = kvr_mix64(id + 0x9e3779b97f4a7c15u);
    for (uint64_t left = bytes; left;) {
        /* Words go on from one stretch of 256 bytes to the next, the last of them cut. */
        uint64_t words[32];
        for (size_t i = 0; i < 32; i++, word += 0x9e3779b97f4a7c15u)
            words[i] = word;
        size_t take = left < sizeof words ? (size_t)left : sizeof words;
        kvr_buffer_append(&model->bytes, words, take);
        left -= take;
    }
}

/* `from`: the block that the prompt's chain starts with. */
static void compare(const struct kvr_prompt *prompt, struct model *model, uint32_t from)
{
    model_advance(model);
    const struct kvr_prompt_options *options = model->options;
    size_t blocks = model->chain.len / sizeof model->hash;
    FUZZ_CHECK(prompt->first_block == from && prompt->chain_len == blocks - from);
    FUZZ_CHECK(prompt->chain_len == 0 ||
               memcmp(prompt->chain, model->chain.data + from * sizeof model->hash,
                      prompt->chain_len * sizeof model->hash) == 0);
    FUZZ_CHECK(prompt->tail.blocks == blocks && prompt->tail.hash == model->hash);
    FUZZ_CHECK(prompt->tail.block_at == model->block_at);
    FUZZ_CHECK(prompt->bytes >= model->block_at + prompt->tail.rest_bytes);
    bool full = blocks == options->max_blocks;
    FUZZ_CHECK(full || prompt->bytes == model->bytes.len);
    FUZZ_CHECK(full || prompt->tail.rest_bytes == model->bytes.len - model->block_at);
    FUZZ_CHECK(full || prompt->tail.rest_bytes == 0 ||
               memcmp(prompt->tail.rest, model->bytes.data + model->block_at,
                      prompt->tail.rest_bytes) == 0);
    FUZZ_CHECK(kvr_prompt_so_far(prompt) != 0);
}

static uint32_t run_commands(struct fuzz_input *input, struct kvr_prompt *prompt,
                             struct model *model)
{
    uint32_t from = 0;
    while (input->left && model->bytes.len < BYTES_MAX) {
        uint8_t command = fuzz_byte(input);
        if (command < 0xc0) { /* so many bytes of the input as text */
            size_t len = command < input->left ? command : input->left;
            kvr_prompt_add(prompt, input->at, len);
            kvr_buffer_append(&model->bytes, input->at, len);
            input->at += len;
            input->left -= len;
        } else if (command < 0xf8) {
            uint64_t id = fuzz_byte(input), bytes = fuzz_number(input, 2) >> (command % 8);
            kvr_prompt_add_piece(prompt, id, bytes);
            model_add_piece(model, id, bytes);
        } else {
            struct kvr_prompt_tail tail = prompt->tail;
            if (prompt->cut)
                continue; /* past the bound a tail no longer says where the prompt stands */
            kvr_prompt_begin(prompt, 1);
            kvr_prompt_add(prompt, "something else in between", 25);
            kvr_prompt_resume(prompt, &tail);
            from = tail.blocks;
        }
        compare(prompt, model, from);
    }
    return from;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned block_bytes = KVR_PROMPT_BLOCK_BYTES_MIN + fuzz_byte(&input);
    unsigned wide = fuzz_byte(&input), most = fuzz_byte(&input);
    struct kvr_prompt_options options = {
        .block_bytes = block_bytes > KVR_PROMPT_WIDE_BYTES ? KVR_PROMPT_BLOCK_BYTES : block_bytes,
        .wide_after = wide < 128 ? 0 : (wide - 128) * 16,
        .max_blocks = most < 128 ? KVR_PROMPT_BLOCKS_MAX : most - 127,
    };
    struct kvr_prompt prompt;
    kvr_prompt_init(&prompt, &options);
    uint64_t seed = fuzz_byte(&input);
    struct model model = {.hash = seed, .options = &options};
    kvr_prompt_begin(&prompt, seed);
    run_commands(&input, &prompt, &model);
    /* One piece of any size at all: bounded by the number of blocks, however long it says it is. */
    if (most >= 128)
        kvr_prompt_add_piece(&prompt, seed, UINT64_MAX - seed);
    FUZZ_CHECK(prompt.chain_len <= options.max_blocks);

    /* The whole in one go. */
    if (model.bytes.len) {
        struct kvr_prompt whole;
        kvr_prompt_init(&whole, &options);
        kvr_prompt_begin(&whole, seed);
        kvr_prompt_add(&whole, model.bytes.data, model.bytes.len);
        FUZZ_CHECK(whole.chain_len * sizeof seed == model.chain.len);
        FUZZ_CHECK(whole.chain_len == 0 ||
                   memcmp(whole.chain, model.chain.data, model.chain.len) == 0);
        kvr_prompt_deinit(&whole);
    }
    kvr_prompt_deinit(&prompt);
    kvr_buffer_deinit(&model.bytes);
    kvr_buffer_deinit(&model.chain);
    return 0;
}
