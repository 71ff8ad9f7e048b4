#include "emu_shape.h"

const struct kvr_emu_shape *kvr_emu_shape_of(enum kvr_api api)
{
    switch (api) {
    case KVR_API_CHAT:
    case KVR_API_COMPLETIONS:
        return &kvr_emu_shape_chat;
    case KVR_API_RESPONSES:
        return &kvr_emu_shape_responses;
    case KVR_API_MESSAGES:
        return &kvr_emu_shape_messages;
    case KVR_API_GENERATE:
        return &kvr_emu_shape_generate;
    case KVR_API_EMBEDDINGS:
        return &kvr_emu_shape_embeddings;
    case KVR_API_OPAQUE:
        break;
    }
    return NULL;
}

void kvr_emu_emit(struct kvr_emu_sink *sink)
{
    sink->on_event(sink->context, kvr_buffer_slice(&sink->text), sink->tokens);
    sink->text.len = 0;
    sink->tokens = 0;
}

void kvr_emu_done(struct kvr_emu_sink *sink)
{
    kvr_buffer_append_text(&sink->text, "data: [DONE]\n\n");
    kvr_emu_emit(sink);
}

void kvr_emu_shape_failed(const struct kvr_emu_answer *answer,
                          const struct kvr_emu_problem *problem, struct kvr_emu_sink *sink)
{
    if (answer->api == KVR_API_MESSAGES)
        kvr_buffer_append_text(&sink->text, "event: error\n");
    kvr_buffer_append_text(&sink->text, "data: ");
    kvr_emu_error_body(answer->flavour, answer->api, problem, &sink->text);
    kvr_buffer_append_text(&sink->text, "\n\n");
    kvr_emu_emit(sink);
    if (answer->api != KVR_API_MESSAGES && answer->flavour != KVR_EMU_LLAMACPP)
        kvr_emu_done(sink);
}

bool kvr_emu_tells_cached(const struct kvr_emu_answer *answer, uint64_t cached_tokens)
{
    if (answer->flavour == KVR_EMU_LLAMACPP || answer->details == KVR_EMU_DETAILS_ZERO)
        return true;
    return answer->details == KVR_EMU_DETAILS_ON && cached_tokens > 0;
}

void kvr_emu_put_usage(struct kvr_json_writer *json, const struct kvr_emu_answer *answer,
                       const char *key, const struct kvr_emu_usage *usage, bool whole)
{
    kvr_json_object_begin(json, key);
    kvr_json_uint(json, "prompt_tokens", usage->prompt_tokens);
    kvr_json_uint(json, "total_tokens", usage->prompt_tokens + usage->completion_tokens);
    kvr_json_uint(json, "completion_tokens", usage->completion_tokens);
    if (kvr_emu_tells_cached(answer, usage->cached_tokens)) {
        kvr_json_object_begin(json, "prompt_tokens_details");
        kvr_json_uint(json, "cached_tokens", usage->cached_tokens);
        kvr_json_object_end(json);
    } else if (whole || answer->flavour == KVR_EMU_SGLANG) {
        kvr_json_null(json, "prompt_tokens_details");
    }
    if (answer->flavour == KVR_EMU_SGLANG)
        kvr_json_uint(json, "reasoning_tokens", 0);
    kvr_json_object_end(json);
}

static double per_second(uint64_t count, double ms)
{
    return ms > 0 ? (double)count * 1e3 / ms : 0;
}

void kvr_emu_put_timings(struct kvr_json_writer *json, const struct kvr_emu_answer *answer)
{
    struct kvr_emu_usage usage = kvr_emu_answer_usage(answer);
    const struct kvr_emu_choice *choice = &answer->choices[0];
    uint64_t prompt = usage.prompt_tokens - usage.cached_tokens;
    double prompt_ms = (double)(choice->first_token_ns - choice->admitted_ns) / 1e6;
    double predicted_ms = (double)(choice->last_token_ns - choice->first_token_ns) / 1e6;
    kvr_json_object_begin(json, "timings");
    kvr_json_uint(json, "cache_n", usage.cached_tokens);
    kvr_json_uint(json, "prompt_n", prompt);
    kvr_json_double(json, "prompt_ms", prompt_ms);
    kvr_json_double(json, "prompt_per_second", per_second(prompt, prompt_ms));
    kvr_json_uint(json, "predicted_n", usage.completion_tokens);
    kvr_json_double(json, "predicted_ms", predicted_ms);
    kvr_json_double(json, "predicted_per_second",
                    per_second(usage.completion_tokens, predicted_ms));
    kvr_json_object_end(json);
}
