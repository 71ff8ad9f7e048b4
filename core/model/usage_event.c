#include "usage_event.h"

static void note_output(struct kvr_usage_event *event, enum kvr_output output,
                        struct kvr_json_span key, struct kvr_json_span text)
{
    event->replies += output == KVR_OUTPUT_REPLY;
    event->reasoned |= output == KVR_OUTPUT_REASONING;
    event->called |= output == KVR_OUTPUT_CALL;
    if (event->output != KVR_OUTPUT_NONE)
        return;
    event->output = output;
    event->key = key;
    event->text = text;
}

/* A value that is content unless it is empty: a string, or a list of parts. */
static void take_output(struct kvr_json_reader *json, struct kvr_usage_event *event,
                        enum kvr_output output, struct kvr_json_span key)
{
    struct kvr_json_span text = {.escaped = false};
    struct kvr_slice raw;
    switch (kvr_json_peek(json)) {
    case KVR_JSON_STRING:
        if (kvr_json_read_string(json, &text) && text.raw.len)
            note_output(event, output, key, text);
        break;
    case KVR_JSON_ARRAY:
    case KVR_JSON_OBJECT:
        if (kvr_json_skip(json, &raw) && raw.len > 2)
            note_output(event, KVR_OUTPUT_CALL, key, text);
        break;
    default:
        kvr_json_skip(json, NULL);
    }
}

/* The tool calls of a delta: those whose arguments grow are told by that string. */
static void take_calls(struct kvr_json_reader *json, struct kvr_usage_event *event,
                       struct kvr_json_span calls)
{
    struct kvr_json_span key;
    bool any = false;
    if (!kvr_json_enter_array(json)) {
        take_output(json, event, KVR_OUTPUT_CALL, calls);
        return;
    }
    while (kvr_json_next_item(json)) {
        any = true;
        if (!kvr_json_enter_object(json)) {
            kvr_json_skip(json, NULL);
            continue;
        }
        while (kvr_json_next_key(json, &key)) {
            struct kvr_json_span inner;
            if (!kvr_slice_is(key.raw, "function") || !kvr_json_enter_object(json)) {
                kvr_json_skip(json, NULL);
                continue;
            }
            while (kvr_json_next_key(json, &inner)) {
                if (kvr_slice_is(inner.raw, "arguments"))
                    take_output(json, event, KVR_OUTPUT_CALL, inner);
                else
                    kvr_json_skip(json, NULL);
            }
        }
    }
    if (any && !event->called)
        note_output(event, KVR_OUTPUT_CALL, calls, (struct kvr_json_span){.escaped = false});
}

static enum kvr_output output_of(struct kvr_slice key)
{
    if (kvr_slice_is(key, "content") || kvr_slice_is(key, "text"))
        return KVR_OUTPUT_REPLY;
    if (kvr_slice_is(key, "reasoning_content") || kvr_slice_is(key, "reasoning") ||
        kvr_slice_is(key, "thinking"))
        return KVR_OUTPUT_REASONING;
    if (kvr_slice_is(key, "partial_json") || kvr_slice_is(key, "function_call") ||
        kvr_slice_is(key, "refusal") || kvr_slice_is(key, "audio") || kvr_slice_is(key, "name"))
        return KVR_OUTPUT_CALL;
    return KVR_OUTPUT_NONE;
}

/* The object that carries new output: a delta, a message, a content block, a token. */
static void take_delta(struct kvr_json_reader *json, struct kvr_usage_event *event)
{
    struct kvr_json_span key;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        enum kvr_output output = output_of(key.raw);
        if (output != KVR_OUTPUT_NONE)
            take_output(json, event, output, key);
        else if (kvr_slice_is(key.raw, "tool_calls"))
            take_calls(json, event, key);
        else if (kvr_slice_is(key.raw, "usage")) /* of a message that starts */
            kvr_usage_take(json, &event->usage, NULL);
        else
            kvr_json_skip(json, NULL);
    }
}

static void take_choices(struct kvr_json_reader *json, struct kvr_usage_event *event)
{
    struct kvr_json_span key;
    if (!kvr_json_enter_array(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_item(json)) {
        if (!kvr_json_enter_object(json)) {
            kvr_json_skip(json, NULL);
            continue;
        }
        while (kvr_json_next_key(json, &key)) {
            if (kvr_slice_is(key.raw, "delta") || kvr_slice_is(key.raw, "message"))
                take_delta(json, event);
            else if (kvr_slice_is(key.raw, "text"))
                take_output(json, event, KVR_OUTPUT_REPLY, key);
            else if (kvr_slice_is(key.raw, "finish_reason"))
                event->aborted |= kvr_usage_take_abort(json);
            else
                kvr_json_skip(json, NULL);
        }
    }
}

/* x_groq, or the response that a /v1/responses event carries. */
static void take_wrapper(struct kvr_json_reader *json, struct kvr_usage_event *event)
{
    struct kvr_json_span key;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        if (kvr_slice_is(key.raw, "usage")) {
            kvr_usage_take(json, &event->usage, NULL);
        } else if (kvr_slice_is(key.raw, "error")) {
            event->error |= kvr_json_peek(json) != KVR_JSON_NULL;
            kvr_json_skip(json, NULL);
        } else {
            kvr_json_skip(json, NULL);
        }
    }
}

/* The `type` of an event, in the APIs that have it: some end the stream. */
static void note_type(struct kvr_usage_event *event, struct kvr_slice type)
{
    bool failed = kvr_slice_is(type, "response.failed");
    event->error |= failed || kvr_slice_is(type, "error");
    event->done |= failed || kvr_slice_is(type, "message_stop") ||
                   kvr_slice_is(type, "response.completed") ||
                   kvr_slice_is(type, "response.incomplete");
}

/* Which output a /v1/responses delta is, by its type; of other APIs a bare delta is a reply. */
static enum kvr_output output_of_type(struct kvr_slice type)
{
    if (type.len == 0 || kvr_slice_is(type, "response.output_text.delta"))
        return KVR_OUTPUT_REPLY;
    if (kvr_slice_is(type, "response.reasoning_text.delta") ||
        kvr_slice_is(type, "response.reasoning_summary_text.delta"))
        return KVR_OUTPUT_REASONING;
    return KVR_OUTPUT_CALL;
}

/* The top level of an event, entered. */
static void take_event(struct kvr_json_reader *json, struct kvr_usage_event *event)
{
    struct kvr_json_span key, type = {.escaped = false}, delta = type, text = type;
    struct kvr_json_span delta_key = type, text_key = type;
    while (kvr_json_next_key(json, &key)) {
        struct kvr_slice name = key.raw;
        if (kvr_slice_is(name, "choices")) {
            take_choices(json, event);
        } else if (kvr_slice_is(name, "usage")) {
            kvr_usage_take(json, &event->usage, NULL);
        } else if (kvr_slice_is(name, "meta_info")) {
            kvr_usage_take(json, &event->usage, &event->aborted);
        } else if (kvr_slice_is(name, "timings")) {
            kvr_usage_take_timings(json, &event->usage);
        } else if (kvr_slice_is(name, "x_groq") || kvr_slice_is(name, "response")) {
            take_wrapper(json, event);
        } else if (kvr_slice_is(name, "error")) {
            event->error |= kvr_json_peek(json) != KVR_JSON_NULL;
            kvr_json_skip(json, NULL);
        } else if (kvr_slice_is(name, "done")) {
            event->done |= kvr_json_peek(json) == KVR_JSON_TRUE;
            kvr_json_skip(json, NULL);
        } else if (kvr_slice_is(name, "type") && kvr_json_read_string(json, &type)) {
            note_type(event, type.raw);
        } else if (kvr_slice_is(name, "delta") && kvr_json_read_string(json, &delta)) {
            delta_key = key;
        } else if ((kvr_slice_is(name, "text") || kvr_slice_is(name, "content")) &&
                   kvr_json_read_string(json, &text)) {
            text_key = key;
        } else if (kvr_slice_is(name, "delta") || kvr_slice_is(name, "message") ||
                   kvr_slice_is(name, "content_block") || kvr_slice_is(name, "token")) {
            take_delta(json, event);
        } else {
            kvr_json_skip(json, NULL);
        }
    }
    if (delta.raw.len)
        note_output(event, output_of_type(type.raw), delta_key, delta);
    if (text.raw.len && type.raw.len == 0) /* with a type it repeats what deltas have said */
        note_output(event, KVR_OUTPUT_REPLY, text_key, text);
}

bool kvr_usage_event_read(struct kvr_usage_event *event, struct kvr_slice text)
{
    struct kvr_json_reader json;
    *event = (struct kvr_usage_event){.usage = {-1, -1, -1}};
    kvr_json_reader_init(&json, text);
    if (!kvr_json_enter_object(&json))
        return false;
    take_event(&json, event);
    return kvr_json_finish(&json);
}
