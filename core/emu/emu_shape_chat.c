/* /v1/chat/completions and /v1/completions, as vLLM, SGLang and llama.cpp word them. */
#include <string.h>

#include "digits.h"
#include "emu_shape.h"

#define FINGERPRINT "b0-emulated"

static bool is_chat(const struct kvr_emu_answer *answer)
{
    return answer->api == KVR_API_CHAT;
}

static void append(struct kvr_buffer *out, const char *text)
{
    kvr_buffer_append_text(out, text);
}

static void put_string(struct kvr_buffer *out, struct kvr_slice value)
{
    struct kvr_json_writer json = {.out = out};
    kvr_json_string(&json, NULL, value);
}

static void put_index(struct kvr_buffer *out, uint32_t index)
{
    append(out, "\"index\":");
    char *at = kvr_buffer_reserve(out, KVR_DIGITS_MAX);
    out->len += (size_t)(kvr_put_uint(at, index) - at);
    append(out, ",");
}

/* ---- a chunk: head, choices, tail, usage ---- */

/* All but the choices of a chunk is the same each time; it is written once. */
static void write_envelope(struct kvr_emu_answer *answer)
{
    const char *object = is_chat(answer) ? "chat.completion.chunk" : "text_completion";
    bool llamacpp = answer->flavour == KVR_EMU_LLAMACPP;
    struct kvr_buffer *fields = llamacpp ? &answer->tail : &answer->head;
    if (llamacpp)
        append(fields, "],");
    else
        append(fields, "{");
    struct kvr_json_writer json = {.out = fields};
    kvr_json_text(&json, "id", answer->id);
    kvr_json_text(&json, "object", object);
    kvr_json_uint(&json, "created", answer->created_s);
    kvr_json_text(&json, "model", answer->model);
    if (llamacpp) {
        append(fields, ",\"system_fingerprint\":\"" FINGERPRINT "\"");
        append(&answer->head, "{\"choices\":[");
    } else {
        append(fields, ",\"choices\":[");
        append(&answer->tail, "]");
    }
}

static void begin_chunk(struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    if (answer->head.len == 0)
        write_envelope(answer);
    append(out, "data: ");
    kvr_buffer_append_slice(out, kvr_buffer_slice(&answer->head));
}

static void put_chunk_usage(const struct kvr_emu_answer *answer,
                            const struct kvr_emu_choice *choice, struct kvr_buffer *out)
{
    if (answer->continuous_usage) {
        struct kvr_emu_usage usage = {choice->prompt_tokens, choice->cached_tokens, choice->tokens};
        struct kvr_json_writer json = {.out = out, .comma = true};
        kvr_emu_put_usage(&json, answer, "usage", &usage, false);
    } else if (answer->flavour == KVR_EMU_SGLANG ||
               (answer->flavour == KVR_EMU_VLLM && !is_chat(answer))) {
        append(out, ",\"usage\":null");
    }
}

/* ---- one choice of a chunk ---- */

enum moment { ROLE, TOKEN, FINISH };

static void begin_delta(const struct kvr_emu_answer *answer, enum moment moment,
                        struct kvr_buffer *out)
{
    append(out, "\"delta\":{");
    if (answer->flavour == KVR_EMU_SGLANG)
        append(out, moment == ROLE ? "\"role\":\"assistant\",\"content\":"
                                   : "\"role\":null,\"content\":");
    else if (moment == ROLE)
        append(out, "\"role\":\"assistant\",\"content\":");
    else if (moment == TOKEN || answer->flavour == KVR_EMU_VLLM)
        append(out, "\"content\":");
}

static void put_text(const struct kvr_emu_answer *answer, enum moment moment, struct kvr_slice text,
                     struct kvr_buffer *out)
{
    if (moment == TOKEN || !is_chat(answer))
        put_string(out, text);
    else if (answer->flavour == KVR_EMU_VLLM ||
             (answer->flavour == KVR_EMU_SGLANG && moment == ROLE))
        append(out, "\"\"");
    else if (answer->flavour == KVR_EMU_SGLANG || moment == ROLE)
        append(out, "null");
}

static void end_delta(const struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    if (answer->flavour == KVR_EMU_SGLANG)
        append(out, ",\"reasoning_content\":null,\"tool_calls\":null");
    append(out, "}");
}

static void put_finish(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                       enum moment moment, struct kvr_buffer *out)
{
    const char *reason = moment == FINISH ? kvr_emu_finish_name(choice->reason) : NULL;
    if (reason)
        kvr_buffer_printf(out, "\"finish_reason\":\"%s\"", reason);
    else
        append(out, "\"finish_reason\":null");
    if (answer->flavour == KVR_EMU_SGLANG)
        append(out, ",\"matched_stop\":null");
    else if (answer->flavour == KVR_EMU_VLLM && (reason || !is_chat(answer)))
        append(out, ",\"stop_reason\":null");
}

static void begin_choice(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                         enum moment moment, struct kvr_buffer *out)
{
    append(out, "{");
    if (answer->flavour == KVR_EMU_LLAMACPP) {
        put_finish(answer, choice, moment, out);
        append(out, ",");
        put_index(out, choice->index);
    } else {
        put_index(out, choice->index);
    }
    if (is_chat(answer))
        begin_delta(answer, moment, out);
    else
        append(out, "\"text\":");
}

static void end_choice(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                       enum moment moment, struct kvr_buffer *out)
{
    if (is_chat(answer))
        end_delta(answer, out);
    if (answer->flavour != KVR_EMU_LLAMACPP) {
        append(out, ",\"logprobs\":null,");
        put_finish(answer, choice, moment, out);
    }
    if (answer->flavour == KVR_EMU_VLLM)
        append(out, !is_chat(answer) ? ",\"prompt_token_ids\":null,\"token_ids\":null"
                    : moment != ROLE ? ",\"token_ids\":null"
                                     : "");
    append(out, "}");
}

static void put_choice(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                       enum moment moment, struct kvr_slice text, struct kvr_buffer *out)
{
    begin_choice(answer, choice, moment, out);
    put_text(answer, moment, text, out);
    end_choice(answer, choice, moment, out);
}

/* Writes a token's event without its text, and returns where in it the text goes. */
static size_t write_token(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                          struct kvr_buffer *out)
{
    begin_chunk(answer, out);
    begin_choice(answer, choice, TOKEN, out);
    size_t text_at = out->len;
    end_choice(answer, choice, TOKEN, out);
    kvr_buffer_append_slice(out, kvr_buffer_slice(&answer->tail));
    put_chunk_usage(answer, choice, out);
    append(out, "}\n\n");
    return text_at;
}

/* ---- the events ---- */

static void opened(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    if (!is_chat(answer))
        return;
    for (uint32_t i = 0; i < answer->choices_len; i++) {
        struct kvr_emu_choice before = answer->choices[i];
        before.tokens = 0; /* the role comes before the token that brought it */
        begin_chunk(answer, &sink->text);
        put_choice(answer, &before, ROLE, kvr_slice_of(""), &sink->text);
        kvr_buffer_append_slice(&sink->text, kvr_buffer_slice(&answer->tail));
        if (answer->flavour == KVR_EMU_VLLM)
            append(&sink->text, ",\"prompt_token_ids\":null");
        put_chunk_usage(answer, &before, &sink->text);
        append(&sink->text, "}\n\n");
        kvr_emu_emit(sink);
    }
}

static void token(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                  struct kvr_slice text, struct kvr_emu_sink *sink)
{
    /* With one output that is not told its usage each time, it is the same but for the text. */
    bool anew = answer->choices_len > 1 || answer->continuous_usage;
    struct kvr_buffer *event = &answer->token;
    if (anew || event->len == 0) {
        event->len = 0;
        answer->token_text_at = write_token(answer, choice, event);
    }
    size_t at = answer->token_text_at;
    kvr_buffer_append(&sink->text, event->data, at);
    put_string(&sink->text, text);
    kvr_buffer_append(&sink->text, event->data + at, event->len - at);
    sink->tokens = 1;
    kvr_emu_emit(sink);
}

static void finished(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                     struct kvr_emu_sink *sink)
{
    begin_chunk(answer, &sink->text);
    put_choice(answer, choice, FINISH, kvr_slice_of(""), &sink->text);
    kvr_buffer_append_slice(&sink->text, kvr_buffer_slice(&answer->tail));
    put_chunk_usage(answer, choice, &sink->text);
    if (answer->flavour == KVR_EMU_LLAMACPP && !answer->include_usage) {
        struct kvr_json_writer json = {.out = &sink->text, .comma = true};
        kvr_emu_put_timings(&json, answer);
    }
    append(&sink->text, "}\n\n");
    kvr_emu_emit(sink);
}

static void closed(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    if (answer->include_usage) {
        struct kvr_emu_usage usage = kvr_emu_answer_usage(answer);
        begin_chunk(answer, &sink->text);
        kvr_buffer_append_slice(&sink->text, kvr_buffer_slice(&answer->tail));
        struct kvr_json_writer json = {.out = &sink->text, .comma = true};
        kvr_emu_put_usage(&json, answer, "usage", &usage, false);
        if (answer->flavour == KVR_EMU_LLAMACPP)
            kvr_emu_put_timings(&json, answer);
        append(&sink->text, "}\n\n");
        kvr_emu_emit(sink);
    }
    kvr_emu_done(sink);
}

/* ---- not streamed ---- */

static void put_whole_choice(struct kvr_json_writer *json, const struct kvr_emu_answer *answer,
                             const struct kvr_emu_choice *choice)
{
    struct kvr_buffer text = {0};
    kvr_emu_choice_text(answer, choice, &text);
    kvr_json_object_begin(json, NULL);
    kvr_json_uint(json, "index", choice->index);
    if (is_chat(answer)) {
        kvr_json_object_begin(json, "message");
        kvr_json_text(json, "role", "assistant");
        kvr_json_string(json, "content", kvr_buffer_slice(&text));
        if (answer->flavour == KVR_EMU_VLLM) {
            kvr_json_null(json, "refusal");
            kvr_json_null(json, "reasoning");
            kvr_json_raw(json, "tool_calls", kvr_slice_of("[]"));
        }
        kvr_json_object_end(json);
    } else {
        kvr_json_string(json, "text", kvr_buffer_slice(&text));
    }
    if (answer->flavour != KVR_EMU_LLAMACPP)
        kvr_json_null(json, "logprobs");
    kvr_json_text(json, "finish_reason", kvr_emu_finish_name(choice->reason));
    if (answer->flavour == KVR_EMU_SGLANG)
        kvr_json_null(json, "matched_stop");
    else if (answer->flavour == KVR_EMU_VLLM)
        kvr_json_null(json, "stop_reason");
    kvr_json_object_end(json);
    kvr_buffer_deinit(&text);
}

static void whole(struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    struct kvr_emu_usage usage = kvr_emu_answer_usage(answer);
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "id", answer->id);
    kvr_json_text(&json, "object", is_chat(answer) ? "chat.completion" : "text_completion");
    kvr_json_uint(&json, "created", answer->created_s);
    kvr_json_text(&json, "model", answer->model);
    if (answer->flavour == KVR_EMU_LLAMACPP)
        kvr_json_text(&json, "system_fingerprint", FINGERPRINT);
    kvr_json_array_begin(&json, "choices");
    for (uint32_t i = 0; i < answer->choices_len; i++)
        put_whole_choice(&json, answer, &answer->choices[i]);
    kvr_json_array_end(&json);
    kvr_emu_put_usage(&json, answer, "usage", &usage, true);
    if (answer->flavour == KVR_EMU_LLAMACPP)
        kvr_emu_put_timings(&json, answer);
    kvr_json_object_end(&json);
}

const struct kvr_emu_shape kvr_emu_shape_chat = {opened, token, finished, closed, whole};
