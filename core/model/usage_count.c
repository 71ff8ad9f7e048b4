#include "usage_count.h"

#include <string.h>

static const struct kvr_token_usage unknown = {-1, -1, -1};

void kvr_usage_merge(struct kvr_token_usage *usage, const struct kvr_token_usage *from)
{
    if (from->prompt_tokens >= 0)
        usage->prompt_tokens = from->prompt_tokens;
    if (from->completion_tokens >= 0)
        usage->completion_tokens = from->completion_tokens;
    if (from->cached_tokens >= 0)
        usage->cached_tokens = from->cached_tokens;
}

/* A count of tokens; `otherwise` for null and everything else that is none. */
static int64_t take_count(struct kvr_json_reader *json, int64_t otherwise)
{
    struct kvr_slice number;
    int64_t value = 0;
    if (kvr_json_read_count(json, &value))
        return value;
    if (!kvr_json_read_number(json, &number)) {
        kvr_json_skip(json, NULL);
        return otherwise;
    }
    if (number.len > 15)
        return otherwise;
    for (size_t i = 0; i < number.len; i++) {
        if (number.data[i] < '0' || number.data[i] > '9')
            return otherwise;
        value = value * 10 + (number.data[i] - '0');
    }
    return value;
}

/* prompt_tokens_details and its like: how many came from the cache. */
static void take_details(struct kvr_json_reader *json, struct kvr_token_usage *usage)
{
    struct kvr_json_span key;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        if (kvr_slice_is(key.raw, "cached_tokens"))
            usage->cached_tokens = take_count(json, usage->cached_tokens);
        else
            kvr_json_skip(json, NULL);
    }
}

bool kvr_usage_take_abort(struct kvr_json_reader *json)
{
    struct kvr_json_span key, word = {.escaped = false};
    if (kvr_json_enter_object(json)) { /* {"type": "abort", ...} */
        while (kvr_json_next_key(json, &key))
            if (!kvr_slice_is(key.raw, "type") || !kvr_json_read_string(json, &word))
                kvr_json_skip(json, NULL);
    } else if (!kvr_json_read_string(json, &word)) {
        kvr_json_skip(json, NULL);
    }
    return kvr_slice_is(word.raw, "abort");
}

/* A usage object, or SGLang's meta_info, which holds the same counts. Anthropic counts a prompt in
 * three disjoint parts: read from the cache, written to it, and the rest. */
void kvr_usage_take(struct kvr_json_reader *json, struct kvr_token_usage *into, bool *aborted)
{
    struct kvr_token_usage usage = unknown;
    struct kvr_json_span key;
    int64_t apart = 0; /* prompt tokens that input_tokens leaves out */
    bool input = false;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        struct kvr_slice name = key.raw;
        if (kvr_slice_is(name, "prompt_tokens")) {
            usage.prompt_tokens = take_count(json, -1);
        } else if (kvr_slice_is(name, "input_tokens")) {
            usage.prompt_tokens = take_count(json, -1);
            input = true;
        } else if (kvr_slice_is(name, "completion_tokens") || kvr_slice_is(name, "output_tokens")) {
            usage.completion_tokens = take_count(json, -1);
        } else if (kvr_slice_is(name, "prompt_tokens_details") ||
                   kvr_slice_is(name, "input_tokens_details")) {
            take_details(json, &usage);
        } else if (kvr_slice_is(name, "cached_tokens") ||
                   kvr_slice_is(name, "prompt_cache_hit_tokens")) {
            usage.cached_tokens = take_count(json, usage.cached_tokens);
        } else if (kvr_slice_is(name, "cache_read_input_tokens")) {
            usage.cached_tokens = take_count(json, usage.cached_tokens);
            apart += usage.cached_tokens > 0 ? usage.cached_tokens : 0;
        } else if (kvr_slice_is(name, "cache_creation_input_tokens")) {
            apart += take_count(json, 0);
        } else if (aborted && kvr_slice_is(name, "finish_reason")) {
            *aborted |= kvr_usage_take_abort(json);
        } else {
            kvr_json_skip(json, NULL);
        }
    }
    if (input && usage.prompt_tokens >= 0)
        usage.prompt_tokens += apart;
    kvr_usage_merge(into, &usage);
}

/* llama.cpp: the prompt is what was reused and what was computed. */
void kvr_usage_take_timings(struct kvr_json_reader *json, struct kvr_token_usage *into)
{
    struct kvr_token_usage usage = unknown;
    struct kvr_json_span key;
    int64_t computed = -1;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        if (kvr_slice_is(key.raw, "cache_n"))
            usage.cached_tokens = take_count(json, -1);
        else if (kvr_slice_is(key.raw, "prompt_n"))
            computed = take_count(json, -1);
        else if (kvr_slice_is(key.raw, "predicted_n"))
            usage.completion_tokens = take_count(json, -1);
        else
            kvr_json_skip(json, NULL);
    }
    if (computed >= 0 && usage.cached_tokens >= 0)
        usage.prompt_tokens = usage.cached_tokens + computed;
    kvr_usage_merge(into, &usage);
}

/* The object behind `"name":` at `at`, if that is what stands there. */
static bool take_named(struct kvr_slice tail, const char *at, const char *name,
                       struct kvr_token_usage *usage)
{
    const char *end = tail.data + tail.len;
    size_t len = strlen(name);
    if ((size_t)(end - at) < len + 3 || memcmp(at + 1, name, len) != 0 || at[len + 1] != '"')
        return false;
    for (at += len + 2; at < end && (*at == ' ' || *at == ':'); at++)
        ;
    struct kvr_token_usage found = unknown;
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, kvr_slice_make(at, (size_t)(end - at)));
    if (strcmp(name, "timings") == 0)
        kvr_usage_take_timings(&json, &found);
    else
        kvr_usage_take(&json, &found, NULL);
    if (json.code == KVR_OK)
        kvr_usage_merge(usage, &found);
    return true;
}

void kvr_usage_read_tail(struct kvr_token_usage *usage, struct kvr_slice tail)
{
    static const char *const names[] = {"usage", "timings", "meta_info"};
    if (tail.len < 2)
        return;
    const char *end = tail.data + tail.len;
    /* Inside strings quotes are escaped, so a bare one before a name is the start of a key. */
    for (const char *at = tail.data + 1; (at = memchr(at, '"', (size_t)(end - at))); at++)
        for (size_t i = 0; at[-1] != '\\' && i < sizeof names / sizeof *names; i++)
            if (take_named(tail, at, names[i], usage))
                break;
}
