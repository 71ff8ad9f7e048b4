#include "load_body.h"

#include "digits.h"
#include "json_reader.h"
#include "json_writer.h"

const char *kvr_load_api_path(enum kvr_load_api api)
{
    return api == KVR_LOAD_CHAT ? "/v1/chat/completions" : "/v1/completions";
}

/* The members of an object, without its braces. */
static int take_members(struct kvr_slice object, struct kvr_slice *members, struct kvr_error *error)
{
    struct kvr_json_reader json;
    struct kvr_slice raw = {0};
    kvr_json_reader_init(&json, object);
    bool ok = kvr_json_peek(&json) == KVR_JSON_OBJECT && kvr_json_skip(&json, &raw) &&
              kvr_json_finish(&json);
    if (!ok)
        return kvr_error_set(error, KVR_E_INVALID, "\"%.*s\" is no JSON object", (int)object.len,
                             object.data);
    *members = kvr_slice_trim(kvr_slice_make(raw.data + 1, raw.len - 2));
    return 0;
}

int kvr_load_body_init(struct kvr_load_body *body, enum kvr_load_api api, const char *model,
                       bool stream, struct kvr_slice extra, struct kvr_error *error)
{
    struct kvr_slice members = {NULL, 0};
    *body = (struct kvr_load_body){.api = api};
    int rc = extra.len ? take_members(extra, &members, error) : 0;
    if (rc)
        return rc;
    struct kvr_json_writer json = {.out = &body->start};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "model", model);
    kvr_buffer_append_text(&body->start,
                           api == KVR_LOAD_CHAT ? ",\"messages\":[" : ",\"prompt\":\"");
    if (stream)
        kvr_buffer_append_text(&body->end,
                               ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    if (members.len)
        kvr_buffer_append_text(&body->end, ",");
    kvr_buffer_append_slice(&body->end, members);
    kvr_buffer_append_text(&body->end, "}");
    return 0;
}

void kvr_load_body_deinit(struct kvr_load_body *body)
{
    kvr_buffer_deinit(&body->start);
    kvr_buffer_deinit(&body->end);
}

static void add_text(const struct kvr_piece *piece, struct kvr_buffer *out)
{
    kvr_workload_text(piece->id, 0, piece->bytes, kvr_buffer_reserve(out, piece->bytes));
    out->len += piece->bytes;
}

static void add_messages(const struct kvr_workload_request *request, struct kvr_buffer *out)
{
    for (uint32_t i = 0; i < request->pieces_len; i++) {
        const struct kvr_piece *piece = &request->pieces[i];
        if (i == 0 || !piece->continues) {
            kvr_buffer_append_text(out, i ? "\"},{\"role\":\"" : "{\"role\":\"");
            kvr_buffer_append_text(out, kvr_speaker_name(piece->speaker));
            kvr_buffer_append_text(out, "\",\"content\":\"");
        }
        add_text(piece, out);
    }
    kvr_buffer_append_text(out, "\"}]");
}

void kvr_load_body_write(const struct kvr_load_body *body,
                         const struct kvr_workload_request *request, struct kvr_buffer *out)
{
    kvr_buffer_reserve(out, request->prompt_bytes + 4096);
    kvr_buffer_append_slice(out, kvr_buffer_slice(&body->start));
    if (body->api == KVR_LOAD_CHAT) {
        add_messages(request, out);
    } else {
        for (uint32_t i = 0; i < request->pieces_len; i++)
            add_text(&request->pieces[i], out);
        kvr_buffer_append_text(out, "\"");
    }
    if (request->max_tokens) {
        kvr_buffer_append_text(out, ",\"max_tokens\":");
        char *at = kvr_buffer_reserve(out, KVR_DIGITS_MAX);
        out->len += (size_t)(kvr_put_uint(at, request->max_tokens) - at);
    }
    kvr_buffer_append_slice(out, kvr_buffer_slice(&body->end));
}
