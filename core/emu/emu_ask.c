#include "emu_ask.h"

#include <stdio.h>
#include <string.h>

#include "json_number.h"
#include "json_reader.h"
#include "prompt.h"

static const char *const names[KVR_EMU_FIELDS] = {
    [KVR_EMU_MODEL] = "model",
    [KVR_EMU_STREAM] = "stream",
    [KVR_EMU_STREAM_OPTIONS] = "stream_options",
    [KVR_EMU_N] = "n",
    [KVR_EMU_MAX_TOKENS] = "max_tokens",
    [KVR_EMU_MAX_COMPLETION_TOKENS] = "max_completion_tokens",
    [KVR_EMU_MAX_OUTPUT_TOKENS] = "max_output_tokens",
    [KVR_EMU_MIN_TOKENS] = "min_tokens",
    [KVR_EMU_IGNORE_EOS] = "ignore_eos",
    [KVR_EMU_SEED] = "seed",
    [KVR_EMU_CACHE_SALT] = "cache_salt",
    [KVR_EMU_SUFFIX] = "suffix",
    [KVR_EMU_SAMPLING_PARAMS] = "sampling_params",
    [KVR_EMU_ENCODING_FORMAT] = "encoding_format",
    [KVR_EMU_PREVIOUS_RESPONSE_ID] = "previous_response_id",
    [KVR_EMU_ADD_GENERATION_PROMPT] = "add_generation_prompt",
    [KVR_EMU_MESSAGES] = "messages",
    [KVR_EMU_PROMPT] = "prompt",
    [KVR_EMU_INPUT] = "input",
    [KVR_EMU_SYSTEM] = "system",
    [KVR_EMU_INSTRUCTIONS] = "instructions",
    [KVR_EMU_TOOLS] = "tools",
    [KVR_EMU_TEXT] = "text",
    [KVR_EMU_INPUT_IDS] = "input_ids",
    [KVR_EMU_CONTENT] = "content",
};

#define KEY_MAX 64

/* The name behind a key, escapes decoded; what is too long is no name of ours. */
static struct kvr_slice plain_key(struct kvr_json_span key, char room[KEY_MAX + KVR_JSON_SLACK])
{
    if (!key.escaped)
        return key.raw;
    if (key.raw.len > KEY_MAX)
        return (struct kvr_slice){0};
    return kvr_slice_make(room, kvr_json_string_unescape(key.raw, room));
}

static void collect(struct kvr_json_reader *json, struct kvr_slice raw[KVR_EMU_FIELDS])
{
    struct kvr_json_span key;
    char room[KEY_MAX + KVR_JSON_SLACK];
    while (kvr_json_next_key(json, &key)) {
        struct kvr_slice name = plain_key(key, room);
        struct kvr_slice value;
        if (!kvr_json_skip(json, &value))
            return;
        for (int i = 0; i < KVR_EMU_FIELDS; i++)
            if (kvr_slice_is(name, names[i]))
                raw[i] = value;
    }
}

/* ---- one value ---- */

static bool given(const struct kvr_emu_ask *ask, enum kvr_emu_field field)
{
    return ask->raw[field].len && !kvr_slice_is(ask->raw[field], "null");
}

static bool wrong_type(struct kvr_emu_problem *problem, enum kvr_emu_field field,
                       const char *expected)
{
    char param[64];
    snprintf(param, sizeof param, "body.%s", names[field]);
    return kvr_emu_refuse(problem, KVR_EMU_BAD_FIELD, param,
                          "1 validation error:\n  {'type': '%s', 'loc': ('body', '%s'), "
                          "'msg': 'Input should be a valid %s'}",
                          expected, names[field], expected);
}

static bool missing(struct kvr_emu_problem *problem, enum kvr_emu_field field)
{
    char param[64];
    snprintf(param, sizeof param, "body.%s", names[field]);
    return kvr_emu_refuse(problem, KVR_EMU_BAD_FIELD, param,
                          "1 validation error:\n  {'type': 'missing', 'loc': ('body', '%s'), "
                          "'msg': 'Field required'}",
                          names[field]);
}

static bool read_bool(const struct kvr_emu_ask *ask, enum kvr_emu_field field, bool *value,
                      struct kvr_emu_problem *problem)
{
    if (!given(ask, field))
        return true;
    *value = kvr_slice_is(ask->raw[field], "true");
    return *value || kvr_slice_is(ask->raw[field], "false") || wrong_type(problem, field, "bool");
}

/* A whole number in [least, most]; absent leaves it alone. */
static bool read_number(const struct kvr_emu_ask *ask, enum kvr_emu_field field, double least,
                        double most, int64_t *value, struct kvr_emu_problem *problem)
{
    if (!given(ask, field))
        return true;
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, ask->raw[field]);
    struct kvr_slice raw;
    if (!kvr_json_read_number(&json, &raw))
        return wrong_type(problem, field, "integer");
    double number = kvr_json_number_value(raw);
    if (!(number > -1e15 && number < 1e15) || number != (double)(int64_t)number)
        return wrong_type(problem, field, "integer");
    if (number < least || number > most)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, names[field],
                              "%s must be between %.0f and %.0f, got %.0f.", names[field], least,
                              most, number);
    *value = (int64_t)number;
    return true;
}

static bool read_text(const struct kvr_emu_ask *ask, enum kvr_emu_field field,
                      char out[KVR_EMU_NAME_MAX], struct kvr_emu_problem *problem)
{
    out[0] = '\0';
    if (!given(ask, field))
        return true;
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, ask->raw[field]);
    struct kvr_json_span span;
    if (!kvr_json_read_string(&json, &span))
        return wrong_type(problem, field, "string");
    char room[6 * KVR_EMU_NAME_MAX + KVR_JSON_SLACK];
    if (span.raw.len > sizeof room - KVR_JSON_SLACK)
        span.raw.len = 0; /* no name of ours is so long */
    size_t len = kvr_json_string_unescape(span.raw, room);
    if (len >= KVR_EMU_NAME_MAX)
        len = KVR_EMU_NAME_MAX - 1;
    memcpy(out, room, len);
    out[len] = '\0';
    return true;
}

static bool is_true(struct kvr_json_reader *json)
{
    struct kvr_slice raw;
    return kvr_json_skip(json, &raw) && kvr_slice_is(raw, "true");
}

static bool read_stream_options(struct kvr_emu_ask *ask, struct kvr_emu_problem *problem)
{
    if (!given(ask, KVR_EMU_STREAM_OPTIONS))
        return true;
    if (!ask->stream)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "stream_options",
                              "Stream options can only be defined when `stream=True`.");
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, ask->raw[KVR_EMU_STREAM_OPTIONS]);
    if (!kvr_json_enter_object(&json))
        return wrong_type(problem, KVR_EMU_STREAM_OPTIONS, "dict");
    ask->include_usage = true; /* vLLM's default, once the options are there at all */
    struct kvr_json_span key;
    while (kvr_json_next_key(&json, &key)) {
        if (kvr_slice_is(key.raw, "include_usage"))
            ask->include_usage = is_true(&json);
        else if (kvr_slice_is(key.raw, "continuous_usage_stats"))
            ask->continuous_usage = is_true(&json);
        else
            kvr_json_skip(&json, NULL);
    }
    ask->continuous_usage = ask->continuous_usage && ask->include_usage;
    return true;
}

/* ---- limits on what comes out ---- */

/* SGLang's own API keeps them in an object of their own, under other names. */
static bool read_sampling_params(struct kvr_emu_ask *ask, struct kvr_emu_problem *problem)
{
    if (!given(ask, KVR_EMU_SAMPLING_PARAMS))
        return true;
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, ask->raw[KVR_EMU_SAMPLING_PARAMS]);
    if (!kvr_json_enter_object(&json))
        return wrong_type(problem, KVR_EMU_SAMPLING_PARAMS, "dict");
    struct kvr_json_span key;
    while (kvr_json_next_key(&json, &key)) {
        struct kvr_slice value;
        if (!kvr_json_skip(&json, &value))
            break;
        if (kvr_slice_is(key.raw, "max_new_tokens"))
            ask->raw[KVR_EMU_MAX_TOKENS] = value;
        else if (kvr_slice_is(key.raw, "min_new_tokens"))
            ask->raw[KVR_EMU_MIN_TOKENS] = value;
        else if (kvr_slice_is(key.raw, "ignore_eos"))
            ask->raw[KVR_EMU_IGNORE_EOS] = value;
        else if (kvr_slice_is(key.raw, "n"))
            ask->raw[KVR_EMU_N] = value;
    }
    return true;
}

static bool read_limits(struct kvr_emu_ask *ask, struct kvr_emu_problem *problem)
{
    int64_t n = 1;
    int64_t least = 0;
    int64_t seed = 0;
    ask->max_tokens = -1;
    /* The newer names win, whatever the order. */
    bool ok = read_number(ask, KVR_EMU_MAX_TOKENS, 1, 1e9, &ask->max_tokens, problem) &&
              read_number(ask, KVR_EMU_MAX_COMPLETION_TOKENS, 1, 1e9, &ask->max_tokens, problem) &&
              read_number(ask, KVR_EMU_MAX_OUTPUT_TOKENS, 1, 1e9, &ask->max_tokens, problem) &&
              read_number(ask, KVR_EMU_MIN_TOKENS, 0, 1e9, &least, problem) &&
              read_number(ask, KVR_EMU_N, 1, KVR_EMU_CHOICES_MAX, &n, problem) &&
              read_number(ask, KVR_EMU_SEED, -1e15, 1e15, &seed, problem) &&
              read_bool(ask, KVR_EMU_IGNORE_EOS, &ask->ignore_eos, problem);
    if (!ok)
        return false;
    ask->n = (uint32_t)n;
    ask->min_tokens = (uint32_t)least;
    ask->seed = (uint64_t)seed;
    if (ask->max_tokens >= 0 && least > ask->max_tokens)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "min_tokens",
                              "min_tokens must be less than or equal to max_tokens=%lld, got %lld.",
                              (long long)ask->max_tokens, (long long)least);
    return true;
}

/* ---- the whole ---- */

static bool has_prompt(struct kvr_emu_ask *ask, struct kvr_emu_problem *problem)
{
    enum kvr_emu_field needed = KVR_EMU_PROMPT;
    switch (ask->api) {
    case KVR_API_CHAT:
    case KVR_API_MESSAGES:
        needed = KVR_EMU_MESSAGES;
        break;
    case KVR_API_RESPONSES:
    case KVR_API_EMBEDDINGS:
        needed = KVR_EMU_INPUT;
        break;
    case KVR_API_GENERATE:
        needed = given(ask, KVR_EMU_INPUT_IDS) ? KVR_EMU_INPUT_IDS : KVR_EMU_TEXT;
        break;
    case KVR_API_OPAQUE: /* tokenize */
        needed = given(ask, KVR_EMU_MESSAGES)  ? KVR_EMU_MESSAGES
                 : given(ask, KVR_EMU_CONTENT) ? KVR_EMU_CONTENT
                                               : KVR_EMU_PROMPT;
        break;
    case KVR_API_COMPLETIONS:
        break;
    }
    if (!given(ask, needed))
        return missing(problem, needed);
    if (needed == KVR_EMU_MESSAGES && ask->raw[needed].data[0] != '[')
        return wrong_type(problem, needed, "list");
    return true;
}

bool kvr_emu_ask_read(struct kvr_emu_ask *ask, enum kvr_api api, struct kvr_slice body,
                      struct kvr_emu_problem *problem)
{
    *ask = (struct kvr_emu_ask){.api = api, .answer_opens = true};
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, body);
    bool object = kvr_json_enter_object(&json);
    if (object)
        collect(&json, ask->raw);
    else
        kvr_json_skip(&json, NULL);
    if (!kvr_json_finish(&json))
        return kvr_emu_refuse(problem, KVR_EMU_BAD_JSON, "body",
                              "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', "
                              "%zu), 'msg': 'JSON decode error', 'ctx': {'error': '%s'}}",
                              kvr_json_offset(&json), json.reason);
    if (!object)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_FIELD, "body",
                              "1 validation error:\n  {'type': 'model_attributes_type', 'loc': "
                              "('body',), 'msg': 'Input should be a valid dictionary'}");
    char text[KVR_EMU_NAME_MAX];
    bool ok = read_text(ask, KVR_EMU_MODEL, ask->model, problem) &&
              read_bool(ask, KVR_EMU_STREAM, &ask->stream, problem) &&
              read_stream_options(ask, problem) && read_sampling_params(ask, problem) &&
              read_limits(ask, problem) &&
              read_bool(ask, KVR_EMU_ADD_GENERATION_PROMPT, &ask->answer_opens, problem) &&
              read_text(ask, KVR_EMU_PREVIOUS_RESPONSE_ID, ask->previous, problem) &&
              read_text(ask, KVR_EMU_ENCODING_FORMAT, text, problem);
    if (!ok)
        return false;
    ask->base64 = strcmp(text, "base64") == 0;
    if (given(ask, KVR_EMU_CACHE_SALT))
        ask->salt = kvr_prompt_hash(ask->raw[KVR_EMU_CACHE_SALT], 1);
    if (api == KVR_API_COMPLETIONS && given(ask, KVR_EMU_SUFFIX))
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "suffix",
                              "suffix is not currently supported");
    return has_prompt(ask, problem);
}
