/* /v1/responses: events with names and sequence numbers, and no [DONE] at their end. */
#include <stdio.h>

#include "emu_shape.h"

static void put_usage(struct kvr_json_writer *json, const struct kvr_emu_answer *answer)
{
    struct kvr_emu_usage usage = kvr_emu_answer_usage(answer);
    kvr_json_object_begin(json, "usage");
    kvr_json_uint(json, "input_tokens", usage.prompt_tokens);
    kvr_json_object_begin(json, "input_tokens_details");
    kvr_json_uint(json, "cached_tokens",
                  kvr_emu_tells_cached(answer, usage.cached_tokens) ? usage.cached_tokens : 0);
    kvr_json_object_end(json);
    kvr_json_uint(json, "output_tokens", usage.completion_tokens);
    kvr_json_raw(json, "output_tokens_details", kvr_slice_of("{\"reasoning_tokens\":0}"));
    kvr_json_uint(json, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
    kvr_json_object_end(json);
}

static void put_part(struct kvr_json_writer *json, const char *key, struct kvr_slice text)
{
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "type", "output_text");
    kvr_json_string(json, "text", text);
    kvr_json_raw(json, "annotations", kvr_slice_of("[]"));
    kvr_json_object_end(json);
}

static void put_item_id(struct kvr_json_writer *json, const char *key,
                        const struct kvr_emu_answer *answer)
{
    char id[KVR_EMU_ID_MAX + 8];
    snprintf(id, sizeof id, "msg_%s", answer->id);
    kvr_json_text(json, key, id);
}

/* The one output item; without text it is the empty one that a stream starts with. */
static void put_item(struct kvr_json_writer *json, const char *key,
                     const struct kvr_emu_answer *answer, bool complete)
{
    kvr_json_object_begin(json, key);
    put_item_id(json, "id", answer);
    kvr_json_text(json, "type", "message");
    kvr_json_text(json, "role", "assistant");
    kvr_json_text(json, "status", complete ? "completed" : "in_progress");
    kvr_json_array_begin(json, "content");
    if (complete) {
        struct kvr_buffer text = {0};
        kvr_emu_choice_text(answer, &answer->choices[0], &text);
        put_part(json, NULL, kvr_buffer_slice(&text));
        kvr_buffer_deinit(&text);
    }
    kvr_json_array_end(json);
    kvr_json_object_end(json);
}

static void put_response(struct kvr_json_writer *json, const char *key,
                         const struct kvr_emu_answer *answer, bool complete)
{
    bool cut = complete && answer->choices[0].reason == KVR_FINISH_LENGTH;
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "id", answer->id);
    kvr_json_text(json, "object", "response");
    kvr_json_uint(json, "created_at", answer->created_s);
    kvr_json_text(json, "status", !complete ? "in_progress" : cut ? "incomplete" : "completed");
    kvr_json_null(json, "error");
    if (cut)
        kvr_json_raw(json, "incomplete_details",
                     kvr_slice_of("{\"reason\":\"max_output_tokens\"}"));
    else
        kvr_json_null(json, "incomplete_details");
    kvr_json_text(json, "model", answer->model);
    kvr_json_array_begin(json, "output");
    if (complete)
        put_item(json, NULL, answer, true);
    kvr_json_array_end(json);
    kvr_json_bool(json, "parallel_tool_calls", true);
    if (answer->previous[0])
        kvr_json_text(json, "previous_response_id", answer->previous);
    else
        kvr_json_null(json, "previous_response_id");
    if (complete)
        put_usage(json, answer);
    else
        kvr_json_null(json, "usage");
    kvr_json_object_end(json);
}

static struct kvr_json_writer begin(struct kvr_emu_answer *answer, const char *type,
                                    struct kvr_emu_sink *sink)
{
    kvr_buffer_printf(&sink->text, "event: %s\ndata: ", type);
    struct kvr_json_writer json = {.out = &sink->text};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "type", type);
    kvr_json_uint(&json, "sequence_number", answer->events++);
    return json;
}

static void end(struct kvr_json_writer *json, struct kvr_emu_sink *sink)
{
    kvr_json_object_end(json);
    kvr_buffer_append_text(&sink->text, "\n\n");
    kvr_emu_emit(sink);
}

/* What events about the text of the item have in common. */
static struct kvr_json_writer begin_text(struct kvr_emu_answer *answer, const char *type,
                                         struct kvr_emu_sink *sink)
{
    struct kvr_json_writer json = begin(answer, type, sink);
    put_item_id(&json, "item_id", answer);
    kvr_json_uint(&json, "output_index", 0);
    kvr_json_uint(&json, "content_index", 0);
    return json;
}

static void opened(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    static const char *const first[] = {"response.created", "response.in_progress"};
    struct kvr_json_writer json;
    for (int i = 0; i < 2; i++) {
        json = begin(answer, first[i], sink);
        put_response(&json, "response", answer, false);
        end(&json, sink);
    }
    json = begin(answer, "response.output_item.added", sink);
    kvr_json_uint(&json, "output_index", 0);
    put_item(&json, "item", answer, false);
    end(&json, sink);
    json = begin_text(answer, "response.content_part.added", sink);
    put_part(&json, "part", kvr_slice_of(""));
    end(&json, sink);
}

static void token(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                  struct kvr_slice text, struct kvr_emu_sink *sink)
{
    (void)choice;
    struct kvr_json_writer json = begin_text(answer, "response.output_text.delta", sink);
    kvr_json_string(&json, "delta", text);
    kvr_json_raw(&json, "logprobs", kvr_slice_of("[]"));
    sink->tokens = 1;
    end(&json, sink);
}

static void finished(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                     struct kvr_emu_sink *sink)
{
    struct kvr_buffer text = {0};
    kvr_emu_choice_text(answer, choice, &text);
    struct kvr_json_writer json = begin_text(answer, "response.output_text.done", sink);
    kvr_json_string(&json, "text", kvr_buffer_slice(&text));
    kvr_json_raw(&json, "logprobs", kvr_slice_of("[]"));
    end(&json, sink);
    json = begin_text(answer, "response.content_part.done", sink);
    put_part(&json, "part", kvr_buffer_slice(&text));
    end(&json, sink);
    kvr_buffer_deinit(&text);
    json = begin(answer, "response.output_item.done", sink);
    kvr_json_uint(&json, "output_index", 0);
    put_item(&json, "item", answer, true);
    end(&json, sink);
}

static void closed(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    struct kvr_json_writer json = begin(answer, "response.completed", sink);
    put_response(&json, "response", answer, true);
    end(&json, sink);
}

static void whole(struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    put_response(&json, NULL, answer, true);
}

const struct kvr_emu_shape kvr_emu_shape_responses = {opened, token, finished, closed, whole};
