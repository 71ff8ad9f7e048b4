/* /v1/messages: Anthropic's shape, which vLLM serves too. Named events, no [DONE]. */
#include "emu_shape.h"

static const char *stop_reason(const struct kvr_emu_choice *choice)
{
    return choice->reason == KVR_FINISH_LENGTH ? "max_tokens" : "end_turn";
}

static void put_usage(struct kvr_json_writer *json, const struct kvr_emu_answer *answer,
                      uint64_t output_tokens)
{
    struct kvr_emu_usage usage = kvr_emu_answer_usage(answer);
    kvr_json_object_begin(json, "usage");
    kvr_json_uint(json, "input_tokens", usage.prompt_tokens);
    kvr_json_uint(json, "output_tokens", output_tokens);
    if (kvr_emu_tells_cached(answer, usage.cached_tokens))
        kvr_json_uint(json, "cache_read_input_tokens", usage.cached_tokens);
    kvr_json_object_end(json);
}

static void put_message(struct kvr_json_writer *json, const char *key,
                        const struct kvr_emu_answer *answer, bool complete)
{
    const struct kvr_emu_choice *choice = &answer->choices[0];
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "id", answer->id);
    kvr_json_text(json, "type", "message");
    kvr_json_text(json, "role", "assistant");
    kvr_json_array_begin(json, "content");
    if (complete) {
        struct kvr_buffer text = {0};
        kvr_emu_choice_text(answer, choice, &text);
        kvr_json_object_begin(json, NULL);
        kvr_json_text(json, "type", "text");
        kvr_json_string(json, "text", kvr_buffer_slice(&text));
        kvr_json_object_end(json);
        kvr_buffer_deinit(&text);
    }
    kvr_json_array_end(json);
    kvr_json_text(json, "model", answer->model);
    if (complete)
        kvr_json_text(json, "stop_reason", stop_reason(choice));
    else
        kvr_json_null(json, "stop_reason");
    kvr_json_null(json, "stop_sequence");
    put_usage(json, answer, complete ? choice->tokens : 0);
    kvr_json_object_end(json);
}

static struct kvr_json_writer begin(const char *type, struct kvr_emu_sink *sink)
{
    kvr_buffer_printf(&sink->text, "event: %s\ndata: ", type);
    struct kvr_json_writer json = {.out = &sink->text};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "type", type);
    return json;
}

static void end(struct kvr_json_writer *json, struct kvr_emu_sink *sink)
{
    kvr_json_object_end(json);
    kvr_buffer_append_text(&sink->text, "\n\n");
    kvr_emu_emit(sink);
}

static void opened(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    struct kvr_json_writer json = begin("message_start", sink);
    put_message(&json, "message", answer, false);
    end(&json, sink);
    json = begin("content_block_start", sink);
    kvr_json_uint(&json, "index", 0);
    kvr_json_raw(&json, "content_block", kvr_slice_of("{\"type\":\"text\",\"text\":\"\"}"));
    end(&json, sink);
}

static void token(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                  struct kvr_slice text, struct kvr_emu_sink *sink)
{
    (void)answer;
    (void)choice;
    struct kvr_json_writer json = begin("content_block_delta", sink);
    kvr_json_uint(&json, "index", 0);
    kvr_json_object_begin(&json, "delta");
    kvr_json_text(&json, "type", "text_delta");
    kvr_json_string(&json, "text", text);
    kvr_json_object_end(&json);
    sink->tokens = 1;
    end(&json, sink);
}

static void finished(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                     struct kvr_emu_sink *sink)
{
    struct kvr_json_writer json = begin("content_block_stop", sink);
    kvr_json_uint(&json, "index", 0);
    end(&json, sink);
    json = begin("message_delta", sink);
    kvr_json_object_begin(&json, "delta");
    kvr_json_text(&json, "stop_reason", stop_reason(choice));
    kvr_json_null(&json, "stop_sequence");
    kvr_json_object_end(&json);
    put_usage(&json, answer, choice->tokens);
    end(&json, sink);
}

static void closed(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    (void)answer;
    struct kvr_json_writer json = begin("message_stop", sink);
    end(&json, sink);
}

static void whole(struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    put_message(&json, NULL, answer, true);
}

const struct kvr_emu_shape kvr_emu_shape_messages = {opened, token, finished, closed, whole};
