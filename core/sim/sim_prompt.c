#include "sim_prompt.h"

#include <string.h>

#include "api_scan.h"
#include "memory.h"
#include "rng.h"

void kvr_sim_prompt_init(struct kvr_sim_prompt *maker, const struct kvr_profile *profile,
                         const struct kvr_prompt_options *options)
{
    *maker = (struct kvr_sim_prompt){
        .head_tokens = profile->chat_head_tokens,
        .system_head_tokens = profile->chat_system_head_tokens,
        .generated = profile->cache_generated,
    };
    kvr_prompt_init(&maker->prompt, options);
    kvr_tokens_init(&maker->tokens, profile->bytes_per_token);
    maker->scope =
        kvr_prompt_scope(kvr_slice_of(profile->name), (struct kvr_slice){0}, (struct kvr_slice){0});
}

void kvr_sim_prompt_deinit(struct kvr_sim_prompt *maker)
{
    kvr_prompt_deinit(&maker->prompt);
    kvr_tokens_deinit(&maker->tokens);
    kvr_free(maker->text);
}

/* ---- the router's view: canonical text (api_request.h) ---- */

static void add_text(struct kvr_sim_prompt *maker, const struct kvr_piece *piece)
{
    if (maker->text_bytes < piece->bytes) {
        kvr_free(maker->text);
        maker->text_bytes = 2 * (size_t)piece->bytes;
        maker->text = kvr_alloc(maker->text_bytes);
    }
    kvr_workload_text(piece->id, 0, piece->bytes, maker->text);
    kvr_prompt_add(&maker->prompt, maker->text, piece->bytes);
}

static void open_message(struct kvr_prompt *prompt, uint32_t speaker)
{
    const char *name = kvr_speaker_name(speaker);
    char opening[16] = {KVR_TAG_ROLE};
    size_t len = strlen(name);
    memcpy(opening + 1, name, len);
    opening[1 + len] = KVR_TAG_CONTENT;
    kvr_prompt_add(prompt, opening, len + 2);
}

uint32_t kvr_sim_prompt_chain(struct kvr_sim_prompt *maker,
                              const struct kvr_workload_request *request)
{
    static const char end[] = {KVR_TAG_END};
    uint32_t turns = 0;
    kvr_prompt_begin(&maker->prompt, maker->scope);
    for (uint32_t i = 0; i < request->pieces_len; i++) {
        const struct kvr_piece *piece = &request->pieces[i];
        if (!piece->continues) {
            if (i > 0)
                kvr_prompt_add(&maker->prompt, end, sizeof end);
            open_message(&maker->prompt, piece->speaker);
            turns += piece->speaker == KVR_USER;
        }
        add_text(maker, piece);
    }
    kvr_prompt_add(&maker->prompt, end, sizeof end);
    return turns;
}

/* ---- the engine's view: the chat template and the emulated tokenizer (tokens.h) ---- */

static enum kvr_markup markup_of(uint32_t speaker)
{
    static const enum kvr_markup kinds[] = {
        [KVR_SYSTEM] = KVR_MARKUP_SYSTEM,
        [KVR_USER] = KVR_MARKUP_USER,
        [KVR_ASSISTANT] = KVR_MARKUP_ASSISTANT,
        [KVR_TOOL] = KVR_MARKUP_TOOL,
    };
    return kinds[speaker];
}

/* Tokens of a text that end within its first `bytes` bytes. */
static uint32_t whole_tokens(const struct kvr_tokens *tokens, uint64_t bytes)
{
    return (uint32_t)((((bytes + 1) << 16) - 1) / tokens->step);
}

/* One message of `count` pieces. Its text is cut as one, so a token may reach over from one piece
 * into the next: it goes to the latter, whose tokens depend on what stands before them. */
static void add_message(struct kvr_tokens *tokens, const struct kvr_piece *pieces, uint32_t count)
{
    uint64_t bytes = 0, before = 0;
    uint32_t done = 0;
    kvr_tokens_markup(tokens, markup_of(pieces[0].speaker), KVR_MARKUP_OPEN_TOKENS);
    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
        uint32_t upto = i + 1 < count ? whole_tokens(tokens, bytes)
                                      : kvr_tokens_of_bytes(tokens, (size_t)bytes);
        if (upto > done)
            kvr_tokens_segment(tokens, pieces[i].id ^ before, upto - done);
        done = upto;
        before = kvr_mix64(before ^ pieces[i].id) + bytes;
    }
    kvr_tokens_markup(tokens, KVR_MARKUP_END, 1);
}

uint32_t kvr_sim_prompt_tokens(struct kvr_sim_prompt *maker,
                               const struct kvr_workload_request *request)
{
    struct kvr_tokens *tokens = &maker->tokens;
    const struct kvr_piece *pieces = request->pieces;
    bool system = pieces[0].speaker == KVR_SYSTEM;
    uint32_t head = system ? maker->system_head_tokens : maker->head_tokens;
    kvr_tokens_begin(tokens, 0, false);
    if (head)
        kvr_tokens_markup(tokens, system ? KVR_MARKUP_SYSTEM_HEAD : KVR_MARKUP_HEAD, head);
    for (uint32_t i = 0; i < request->pieces_len;) {
        uint32_t count = 1;
        while (i + count < request->pieces_len && pieces[i + count].continues)
            count++;
        add_message(tokens, pieces + i, count);
        i += count;
    }
    kvr_tokens_markup(tokens, KVR_MARKUP_ASSISTANT, KVR_MARKUP_OPEN_TOKENS);
    uint32_t prompt_tokens = tokens->count;
    /* Equal prompts are answered alike. */
    if (maker->generated)
        kvr_tokens_segment(tokens, kvr_tokens_digest(tokens), request->output_tokens);
    return prompt_tokens;
}
