#include "load_row.h"

#include <math.h>

#include "json_writer.h"

static const char *outcome_of(enum kvr_load_failure failure)
{
    switch (failure) {
    case KVR_LOAD_OK:
        return "success";
    case KVR_LOAD_DROPPED:
        return "dropped";
    case KVR_LOAD_CANCELLED:
        return "cancelled";
    default:
        return "failed";
    }
}

/* Microseconds are enough, and short. */
static void put_ms(struct kvr_json_writer *json, const char *key, double ms)
{
    kvr_json_double(json, key, round(ms * 1e3) / 1e3);
}

static void put_count(struct kvr_json_writer *json, const char *key, int64_t count)
{
    if (count < 0)
        kvr_json_null(json, key);
    else
        kvr_json_int(json, key, count);
}

static void put_label(struct kvr_json_writer *json, const char *key, const char *label)
{
    if (*label)
        kvr_json_text(json, key, label);
}

static void put_identity(struct kvr_json_writer *json, const struct kvr_load_request *request)
{
    const struct kvr_load_labels *labels = &request->call.labels;
    put_label(json, "request_id", labels->request_id);
    kvr_json_uint(json, "user", request->user);
    kvr_json_uint(json, "user_turn", request->turn);
    kvr_json_uint(json, "session", request->session);
    kvr_json_uint(json, "turn", request->session_turn);
    kvr_json_hex64(json, "tag", request->tag);
    kvr_json_hex64(json, "body_hash", request->body_hash);
    kvr_json_uint(json, "prompt_bytes", request->prompt_bytes);
    kvr_json_uint(json, "max_tokens", request->max_tokens);
    put_label(json, "replica", labels->replica);
    put_label(json, "reason", labels->reason);
    if (labels->match_bytes >= 0)
        kvr_json_int(json, "match_bytes", labels->match_bytes);
}

static void put_times(struct kvr_json_writer *json, const struct kvr_load_clock *clock, bool open,
                      const struct kvr_load_request *request)
{
    const struct kvr_load_call *call = &request->call;
    if (open)
        put_ms(json, "due_at_ms", kvr_load_at_ms(clock, request->due_ns));
    else if (request->before_ns)
        put_ms(json, "gap_ms", kvr_load_ms(clock, request->before_ns, call->started_ns));
    else
        kvr_json_null(json, "gap_ms");
    put_ms(json, "started_at_ms", kvr_load_at_ms(clock, call->started_ns));
    put_ms(json, "late_ms", kvr_load_late_ms(clock, request));
}

static void put_answer(struct kvr_json_writer *json, const struct kvr_load_request *request,
                       const struct kvr_load_measure *measure)
{
    const struct kvr_load_call *call = &request->call;
    const struct kvr_token_usage *usage = &call->usage.usage;
    bool content = call->usage.first_content_ns || !call->streamed;
    put_ms(json, "first_byte_ms", measure->first_byte_ms);
    put_ms(json, "ttft_ms", content && call->first_byte_ns ? measure->ms[KVR_LOAD_TTFT] : NAN);
    put_ms(json, "e2el_ms", measure->ms[KVR_LOAD_E2EL]);
    put_ms(json, "tpot_ms", measure->output_tokens > 1 ? measure->ms[KVR_LOAD_TPOT] : NAN);
    put_ms(json, "itl_mean_ms", call->gaps_len ? measure->ms[KVR_LOAD_ITL_MEAN] : NAN);
    put_ms(json, "itl_p50_ms", call->gaps_len ? measure->ms[KVR_LOAD_ITL_P50] : NAN);
    put_ms(json, "itl_max_ms", call->gaps_len ? measure->ms[KVR_LOAD_ITL_MAX] : NAN);
    put_count(json, "prompt_tokens", usage->prompt_tokens);
    put_count(json, "cached_tokens", usage->cached_tokens);
    kvr_json_uint(json, "output_tokens", measure->output_tokens);
    kvr_json_uint(json, "content_events", call->usage.content_events);
    kvr_json_uint(json, "response_bytes", call->body_bytes);
}

void kvr_load_row(struct kvr_buffer *out, const struct kvr_load_clock *clock, bool open,
                  const struct kvr_load_request *request, const struct kvr_load_measure *measure,
                  bool good)
{
    const struct kvr_load_call *call = &request->call;
    struct kvr_json_writer json = {.out = out};
    kvr_json_object_begin(&json, NULL);
    put_identity(&json, request);
    kvr_json_bool(&json, "warmup", request->warmup);
    put_times(&json, clock, open, request);
    kvr_json_text(&json, "outcome", outcome_of(call->failure));
    if (call->failure == KVR_LOAD_OK)
        kvr_json_null(&json, "error");
    else
        kvr_json_text(&json, "error", kvr_load_failure_name(call->failure));
    put_count(&json, "status", call->status ? call->status : -1);
    put_answer(&json, request, measure);
    kvr_json_bool(&json, "good", good);
    kvr_json_bool(&json, "resent", call->resent);
    kvr_json_object_end(&json);
    kvr_buffer_append_text(out, "\n");
}
