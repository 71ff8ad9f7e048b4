#include "sim_prompt.h"

#include <string.h>

#include "api_reply.h"
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
    kvr_chain_memo_init(&maker->memo);
    kvr_tokens_init(&maker->tokens, profile->bytes_per_token);
    maker->scope =
        kvr_prompt_scope(kvr_slice_of(profile->name), (struct kvr_slice){0}, (struct kvr_slice){0});
}

void kvr_sim_prompt_deinit(struct kvr_sim_prompt *maker)
{
    kvr_prompt_deinit(&maker->prompt);
    kvr_chain_memo_deinit(&maker->memo);
    kvr_free(maker->chain);
    kvr_tokens_deinit(&maker->tokens);
    kvr_free(maker->text);
}

/* ---- the router's view: canonical text (api_request.h) ---- */

static const char end_of_message[] = {KVR_TAG_END};

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

/* Adds a piece with what stands before it. Its message, if it goes on, ends later. */
static void add_piece(struct kvr_sim_prompt *maker, const struct kvr_piece *piece, bool first)
{
    if (!piece->continues) {
        char opening[16];
        struct kvr_slice name = kvr_slice_of(kvr_speaker_name(piece->speaker));
        size_t at = 0;
        if (!first)
            opening[at++] = KVR_TAG_END;
        opening[at++] = KVR_TAG_ROLE;
        memcpy(opening + at, name.data, name.len);
        opening[at + name.len] = KVR_TAG_CONTENT;
        kvr_prompt_add(&maker->prompt, opening, at + name.len + 1);
    }
    add_text(maker, piece);
}

/* As many bytes as add_piece adds. */
static uint64_t bytes_of(const struct kvr_piece *piece, bool first)
{
    uint64_t opening = piece->continues ? 0 : strlen(kvr_speaker_name(piece->speaker)) + 2 + !first;
    return opening + piece->bytes;
}

static void append(struct kvr_sim_prompt *maker, const uint64_t *blocks, uint32_t count)
{
    if (maker->chain_len + count > maker->chain_capacity) {
        maker->chain_capacity = 2 * (maker->chain_len + count);
        maker->chain = kvr_realloc(maker->chain, maker->chain_capacity * sizeof *maker->chain);
    }
    if (count)
        memcpy(maker->chain + maker->chain_len, blocks, count * sizeof *blocks);
    maker->chain_len += count;
}

/* The place after this piece, from the place before it. */
static uint64_t key_after(uint64_t key, const struct kvr_piece *piece)
{
    uint64_t kind = (uint64_t)piece->speaker << 1 | piece->continues;
    key = kvr_mix64(key ^ piece->id) + ((uint64_t)piece->bytes << 8 | kind);
    key = kvr_mix64(key);
    return key ? key : 1;
}

/* Brings maker->prompt to where the pieces so far end, with an empty chain: it is `there` already,
 * or at a place of the memo, or at the start. */
static void stand(struct kvr_sim_prompt *maker, bool there, const struct kvr_chain_place *place)
{
    struct kvr_prompt *prompt = &maker->prompt;
    if (there) {
        kvr_prompt_resume(prompt, &prompt->tail);
    } else if (place) {
        struct kvr_prompt_tail tail;
        kvr_chain_memo_tail(&maker->memo, place, &tail);
        kvr_prompt_resume(prompt, &tail);
    } else {
        kvr_prompt_begin(prompt, maker->scope);
    }
}

uint32_t kvr_sim_prompt_chain(struct kvr_sim_prompt *maker,
                              const struct kvr_workload_request *request)
{
    struct kvr_prompt *prompt = &maker->prompt;
    const struct kvr_chain_place *place = NULL;
    uint64_t key = maker->scope;
    uint32_t turns = 0;
    bool there = false;
    maker->chain_len = 0;
    maker->bytes = sizeof end_of_message;
    for (uint32_t i = 0; i < request->pieces_len; i++) {
        const struct kvr_piece *piece = &request->pieces[i];
        turns += piece->speaker == KVR_USER && !piece->continues;
        maker->bytes += bytes_of(piece, i == 0);
        key = key_after(key, piece);
        const struct kvr_chain_place *known = kvr_chain_memo_find(&maker->memo, key);
        if (known) {
            append(maker, kvr_chain_memo_blocks(&maker->memo, known), known->blocks);
        } else {
            stand(maker, there, place);
            add_piece(maker, piece, i == 0);
            append(maker, prompt->chain, prompt->chain_len);
            kvr_chain_memo_keep(&maker->memo, key, prompt);
        }
        place = known;
        there = !known;
    }
    KVR_CHECK(there || place); /* a prompt has pieces */
    uint32_t rest = there ? prompt->tail.rest_bytes : place->rest_bytes;
    if (rest + sizeof end_of_message >= prompt->options.block_bytes) {
        stand(maker, there, place);
        kvr_prompt_add(prompt, end_of_message, sizeof end_of_message);
        append(maker, prompt->chain, prompt->chain_len);
    }
    return turns;
}

void kvr_sim_prompt_reply(struct kvr_sim_prompt *maker, const struct kvr_workload_request *request,
                          uint32_t output_tokens)
{
    struct kvr_prompt *prompt = &maker->prompt;
    kvr_prompt_begin(prompt, maker->scope);
    for (uint32_t i = 0; i < request->pieces_len; i++)
        add_piece(maker, &request->pieces[i], i == 0);
    kvr_prompt_add(prompt, end_of_message, sizeof end_of_message);
    /* Equal prompts are answered alike. */
    uint64_t id = kvr_mix64(kvr_prompt_so_far(prompt));
    kvr_prompt_resume(prompt, &prompt->tail);
    size_t len = kvr_tokens_cut(&maker->tokens, output_tokens);
    char *text = kvr_alloc(len + 1);
    kvr_workload_text(id, 0, len, text);
    kvr_api_add_reply(prompt, kvr_slice_make(text, len));
    kvr_free(text);
    maker->chain_len = 0;
    append(maker, prompt->chain, prompt->chain_len);
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
