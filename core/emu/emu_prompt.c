/* The prompt of an ask, in the emulated tokenizer's tokens (tokens.h): a head, the tools, the
 * messages each between its markup, and what opens the answer. Text that is given in parts is
 * joined first, so that a string and a list of one text part are alike. */
#include "emu_ask.h"

#include <string.h>

#include "json_number.h"
#include "json_reader.h"
#include "prompt.h"

/* An image, a video or a piece of audio: so many tokens, which its identity decides. */
#define MEDIA_IDS    8u
#define MEDIA_FILLER 248u

struct writing {
    const struct kvr_emu_ask *ask;
    const struct kvr_profile *profile;
    struct kvr_tokens *tokens;
    struct kvr_buffer *text; /* of the piece under way */
    bool opened;             /* the head is written */
};

/* ---- pieces ---- */

static void flush_text(struct writing *writing)
{
    if (writing->text->len)
        kvr_tokens_text(writing->tokens, kvr_buffer_slice(writing->text));
    writing->text->len = 0;
}

/* Appends the string that comes next, decoded, or any other value in canonical JSON. */
static void take_text(struct writing *writing, struct kvr_json_reader *json)
{
    size_t most = (size_t)(json->end - json->at) + KVR_JSON_SLACK;
    char *out = kvr_buffer_reserve(writing->text, most);
    char *start = out;
    if (kvr_json_peek(json) == KVR_JSON_STRING)
        kvr_json_read_decoded(json, &out);
    else
        kvr_json_compact(json, &out);
    writing->text->len += (size_t)(out - start);
}

static void add_raw(struct writing *writing, struct kvr_slice raw)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, raw);
    take_text(writing, &json);
}

static void add_media(struct writing *writing, struct kvr_slice raw)
{
    flush_text(writing);
    kvr_tokens_markup(writing->tokens, KVR_MARKUP_IMAGE, 1);
    uint64_t identity = kvr_prompt_hash(raw, 0);
    for (uint32_t i = 0; i < MEDIA_IDS; i++)
        kvr_tokens_id(writing->tokens, 4096 + (uint32_t)(identity >> (8 * i) & 0xff));
    kvr_tokens_markup(writing->tokens, KVR_MARKUP_IMAGE, MEDIA_FILLER);
}

static bool is_media(struct kvr_slice type)
{
    static const char *const kinds[] = {"\"image",       "\"input_image", "\"audio",
                                        "\"input_audio", "\"audio_url\"", "\"video",
                                        "\"input_video"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t len = strlen(kinds[i]);
        if (type.len >= len && memcmp(type.data, kinds[i], len) == 0)
            return true;
    }
    return false;
}

static void add_content(struct writing *writing, struct kvr_slice raw);

static void add_part(struct writing *writing, struct kvr_slice raw)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, raw);
    if (!kvr_json_enter_object(&json)) {
        add_raw(writing, raw);
        return;
    }
    struct kvr_slice type = {0};
    struct kvr_slice text = {0};
    struct kvr_slice content = {0};
    struct kvr_json_span key;
    while (kvr_json_next_key(&json, &key)) {
        struct kvr_slice value = {0};
        kvr_json_skip(&json, &value);
        if (kvr_slice_is(key.raw, "type"))
            type = value;
        else if (kvr_slice_is(key.raw, "text"))
            text = value;
        else if (kvr_slice_is(key.raw, "content"))
            content = value;
    }
    if (is_media(type))
        add_media(writing, raw);
    else if (text.len)
        add_raw(writing, text);
    else if (content.len)
        add_content(writing, content);
    else
        add_raw(writing, raw);
}

/* Content is a string, a list of parts, or null. The depth is bounded by that of the JSON. */
static void add_content(struct writing *writing, struct kvr_slice raw)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, raw);
    if (kvr_json_peek(&json) == KVR_JSON_NULL)
        return;
    if (!kvr_json_enter_array(&json)) {
        take_text(writing, &json);
        return;
    }
    while (kvr_json_next_item(&json)) {
        struct kvr_slice part = {0};
        kvr_json_skip(&json, &part);
        add_part(writing, part);
    }
}

/* ---- messages ---- */

static enum kvr_markup markup_of(struct kvr_slice role)
{
    if (kvr_slice_is(role, "\"system\"") || kvr_slice_is(role, "\"developer\""))
        return KVR_MARKUP_SYSTEM;
    if (kvr_slice_is(role, "\"assistant\""))
        return KVR_MARKUP_ASSISTANT;
    if (kvr_slice_is(role, "\"tool\"") || kvr_slice_is(role, "\"function\""))
        return KVR_MARKUP_TOOL;
    return KVR_MARKUP_USER;
}

/* What stands before the first message depends on whether that is the system's. */
static void open_prompt(struct writing *writing, enum kvr_markup first)
{
    if (writing->opened)
        return;
    writing->opened = true;
    bool system = first == KVR_MARKUP_SYSTEM;
    uint32_t head =
        system ? writing->profile->chat_system_head_tokens : writing->profile->chat_head_tokens;
    if (head)
        kvr_tokens_markup(writing->tokens, system ? KVR_MARKUP_SYSTEM_HEAD : KVR_MARKUP_HEAD, head);
    struct kvr_slice tools = writing->ask->raw[KVR_EMU_TOOLS];
    if (tools.len < 3) /* null is four bytes, but is no list */
        return;
    if (tools.data[0] != '[')
        return;
    kvr_tokens_markup(writing->tokens, KVR_MARKUP_TOOLS, KVR_MARKUP_OPEN_TOKENS);
    add_raw(writing, tools);
    flush_text(writing);
    kvr_tokens_markup(writing->tokens, KVR_MARKUP_END, 1);
}

static void begin_message(struct writing *writing, enum kvr_markup role)
{
    open_prompt(writing, role);
    kvr_tokens_markup(writing->tokens, role, KVR_MARKUP_OPEN_TOKENS);
}

static void end_message(struct writing *writing)
{
    flush_text(writing);
    kvr_tokens_markup(writing->tokens, KVR_MARKUP_END, 1);
}

static void add_message(struct writing *writing, struct kvr_slice raw)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, raw);
    struct kvr_slice role = {0};
    struct kvr_slice content = {0};
    struct kvr_slice extras[3] = {0}; /* name, tool_calls, tool_call_id */
    struct kvr_json_span key;
    if (!kvr_json_enter_object(&json)) {
        begin_message(writing, KVR_MARKUP_USER);
        add_content(writing, raw);
        end_message(writing);
        return;
    }
    bool known = false;
    while (kvr_json_next_key(&json, &key)) {
        struct kvr_slice value = {0};
        kvr_json_skip(&json, &value);
        if (kvr_slice_is(key.raw, "role"))
            role = value;
        else if (kvr_slice_is(key.raw, "content"))
            content = value, known = true;
        else if (kvr_slice_is(key.raw, "name"))
            extras[0] = value;
        else if (kvr_slice_is(key.raw, "tool_calls"))
            extras[1] = value, known = true;
        else if (kvr_slice_is(key.raw, "tool_call_id"))
            extras[2] = value;
    }
    begin_message(writing, markup_of(role));
    if (!known) {
        add_raw(writing, raw); /* an item of another kind, such as a function's output */
    } else {
        if (extras[0].len)
            add_raw(writing, extras[0]);
        if (content.len)
            add_content(writing, content);
        for (int i = 1; i < 3; i++)
            if (extras[i].len)
                add_raw(writing, extras[i]);
    }
    end_message(writing);
}

static void add_messages(struct writing *writing, struct kvr_slice raw)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, raw);
    if (!kvr_json_enter_array(&json)) {
        begin_message(writing, KVR_MARKUP_USER);
        add_content(writing, raw);
        end_message(writing);
        return;
    }
    while (kvr_json_next_item(&json)) {
        struct kvr_slice message = {0};
        kvr_json_skip(&json, &message);
        add_message(writing, message);
    }
}

static void add_system(struct writing *writing, struct kvr_slice raw)
{
    if (raw.len < 2 || kvr_slice_is(raw, "null"))
        return;
    begin_message(writing, KVR_MARKUP_SYSTEM);
    add_content(writing, raw);
    end_message(writing);
}

static void add_conversation(struct writing *writing)
{
    const struct kvr_emu_ask *ask = writing->ask;
    bool responses = ask->api == KVR_API_RESPONSES;
    add_system(writing, ask->raw[responses ? KVR_EMU_INSTRUCTIONS : KVR_EMU_SYSTEM]);
    add_messages(writing, ask->raw[responses ? KVR_EMU_INPUT : KVR_EMU_MESSAGES]);
    open_prompt(writing, KVR_MARKUP_USER); /* of no messages at all */
    if (ask->answer_opens)
        kvr_tokens_markup(writing->tokens, KVR_MARKUP_ASSISTANT, KVR_MARKUP_OPEN_TOKENS);
}

/* ---- plain prompts ---- */

static bool is_conversation(const struct kvr_emu_ask *ask)
{
    return ask->api == KVR_API_CHAT || ask->api == KVR_API_MESSAGES ||
           ask->api == KVR_API_RESPONSES ||
           (ask->api == KVR_API_OPAQUE && ask->raw[KVR_EMU_MESSAGES].len);
}

static struct kvr_slice plain_prompts(const struct kvr_emu_ask *ask)
{
    switch (ask->api) {
    case KVR_API_EMBEDDINGS:
        return ask->raw[KVR_EMU_INPUT];
    case KVR_API_GENERATE:
        return ask->raw[ask->raw[KVR_EMU_INPUT_IDS].len ? KVR_EMU_INPUT_IDS : KVR_EMU_TEXT];
    case KVR_API_OPAQUE:
        return ask->raw[ask->raw[KVR_EMU_CONTENT].len ? KVR_EMU_CONTENT : KVR_EMU_PROMPT];
    default:
        return ask->raw[KVR_EMU_PROMPT];
    }
}

uint32_t kvr_emu_prompt_count(const struct kvr_emu_ask *ask)
{
    if (is_conversation(ask))
        return 1;
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, plain_prompts(ask));
    if (!kvr_json_enter_array(&json))
        return 1;
    uint32_t count = 0;
    while (kvr_json_next_item(&json)) {
        if (kvr_json_peek(&json) == KVR_JSON_NUMBER)
            return 1; /* one prompt, in tokens */
        kvr_json_skip(&json, NULL);
        count++;
    }
    return count;
}

/* Token ids up to the end of the array that the reader is in. */
static bool add_ids(struct writing *writing, struct kvr_json_reader *json,
                    struct kvr_emu_problem *problem)
{
    struct kvr_slice raw;
    do {
        if (!kvr_json_read_number(json, &raw))
            return kvr_emu_refuse(problem, KVR_EMU_BAD_FIELD, "body.prompt",
                                  "1 validation error:\n  {'type': 'int_type', 'loc': ('body', "
                                  "'prompt'), 'msg': 'Input should be a valid integer'}");
        double id = kvr_json_number_value(raw);
        if (!(id >= 0 && id <= UINT32_MAX))
            return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "prompt",
                                  "Token id %.0f is out of vocabulary", id);
        kvr_tokens_id(writing->tokens, (uint32_t)id);
    } while (kvr_json_next_item(json));
    return true;
}

static bool add_prompt(struct writing *writing, struct kvr_slice raw, uint32_t index,
                       struct kvr_emu_problem *problem)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, raw);
    if (!kvr_json_enter_array(&json)) {
        take_text(writing, &json);
        flush_text(writing);
        return true;
    }
    if (!kvr_json_next_item(&json))
        return true; /* an empty prompt, refused by the caller */
    if (kvr_json_peek(&json) == KVR_JSON_NUMBER)
        return add_ids(writing, &json, problem);
    for (uint32_t i = 0; i < index; i++) {
        kvr_json_skip(&json, NULL);
        KVR_CHECK(kvr_json_next_item(&json));
    }
    struct kvr_slice one = {0};
    kvr_json_skip(&json, &one);
    struct kvr_json_reader inner;
    kvr_json_reader_init(&inner, one);
    if (kvr_json_enter_array(&inner))
        return !kvr_json_next_item(&inner) || add_ids(writing, &inner, problem);
    take_text(writing, &inner);
    flush_text(writing);
    return true;
}

bool kvr_emu_prompt_write(const struct kvr_emu_ask *ask, uint32_t index,
                          const struct kvr_profile *profile, uint64_t salt, bool keep_ids,
                          struct kvr_tokens *tokens, struct kvr_buffer *scratch,
                          struct kvr_emu_problem *problem)
{
    struct writing writing = {ask, profile, tokens, scratch, false};
    scratch->len = 0;
    kvr_tokens_begin(tokens, salt, keep_ids);
    if (is_conversation(ask))
        add_conversation(&writing);
    else if (!add_prompt(&writing, plain_prompts(ask), index, problem))
        return false;
    if (tokens->count == 0 && ask->api != KVR_API_OPAQUE)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "prompt",
                              "The decoder prompt cannot be empty");
    return true;
}
