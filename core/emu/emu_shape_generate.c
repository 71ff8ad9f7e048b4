/* SGLang's own /generate: every event holds all of the text so far, and the tokens cached are
 * always told. */
#include "emu_shape.h"

static void put_finish(struct kvr_json_writer *json, const struct kvr_emu_choice *choice)
{
    if (!choice->finished) {
        kvr_json_null(json, "finish_reason");
        return;
    }
    kvr_json_object_begin(json, "finish_reason");
    kvr_json_text(json, "type", kvr_emu_finish_name(choice->reason));
    if (choice->reason == KVR_FINISH_LENGTH)
        kvr_json_uint(json, "length", choice->output_tokens);
    kvr_json_object_end(json);
}

static void put_choice(struct kvr_json_writer *json, const struct kvr_emu_answer *answer,
                       const struct kvr_emu_choice *choice)
{
    struct kvr_buffer text = {0};
    kvr_emu_choice_text(answer, choice, &text);
    kvr_json_object_begin(json, NULL);
    kvr_json_string(json, "text", kvr_buffer_slice(&text));
    kvr_json_array_begin(json, "output_ids");
    kvr_json_array_end(json);
    kvr_json_object_begin(json, "meta_info");
    kvr_json_text(json, "id", answer->id);
    put_finish(json, choice);
    kvr_json_uint(json, "prompt_tokens", choice->prompt_tokens);
    kvr_json_uint(json, "completion_tokens", choice->tokens);
    kvr_json_uint(json, "cached_tokens", choice->cached_tokens);
    if (choice->finished)
        kvr_json_double(json, "e2e_latency",
                        (double)(choice->last_token_ns - choice->arrived_ns) / 1e9);
    kvr_json_object_end(json);
    if (answer->choices_len > 1)
        kvr_json_uint(json, "index", choice->index);
    kvr_json_object_end(json);
    kvr_buffer_deinit(&text);
}

static void event(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                  uint32_t tokens, struct kvr_emu_sink *sink)
{
    struct kvr_json_writer json = {.out = &sink->text};
    kvr_buffer_append_text(&sink->text, "data: ");
    put_choice(&json, answer, choice);
    kvr_buffer_append_text(&sink->text, "\n\n");
    sink->tokens = tokens;
    kvr_emu_emit(sink);
}

static void opened(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    (void)answer;
    (void)sink;
}

static void token(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                  struct kvr_slice text, struct kvr_emu_sink *sink)
{
    (void)text;
    event(answer, choice, 1, sink);
}

static void finished(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                     struct kvr_emu_sink *sink)
{
    event(answer, choice, 0, sink);
}

static void closed(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink)
{
    (void)answer;
    kvr_emu_done(sink);
}

static void whole(struct kvr_emu_answer *answer, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    if (answer->choices_len > 1)
        kvr_json_array_begin(&json, NULL);
    for (uint32_t i = 0; i < answer->choices_len; i++)
        put_choice(&json, answer, &answer->choices[i]);
    if (answer->choices_len > 1)
        kvr_json_array_end(&json);
}

const struct kvr_emu_shape kvr_emu_shape_generate = {opened, token, finished, closed, whole};
