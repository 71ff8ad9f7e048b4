/* The commands of admin.h about the gate in force. */
#include "admin_call.h"

static void write_counts(struct kvr_json_writer *json, const char *key,
                         const struct kvr_envelope_counts *counts)
{
    kvr_json_object_begin(json, key);
    kvr_json_uint(json, "requests", counts->requests);
    kvr_json_uint(json, "active", counts->active);
    kvr_json_uint(json, "answers", counts->answers);
    kvr_json_uint(json, "late", counts->late);
    kvr_json_object_end(json);
}

static double seconds_since(uint64_t now_ns, uint64_t since_ns)
{
    uint64_t age_ms = now_ns > since_ns ? (now_ns - since_ns) / 1000000 : 0;
    return (double)age_ms / 1e3;
}

static void write_left(struct kvr_json_writer *json, const struct kvr_envelope *envelope,
                       uint64_t now_ns)
{
    if (envelope->left == KVR_ENVELOPE_KEPT) {
        kvr_json_null(json, "left");
        return;
    }
    kvr_json_object_begin(json, "left");
    kvr_json_text(json, "reason", kvr_envelope_left_name(envelope->left));
    kvr_json_double(json, "age_s", seconds_since(now_ns, envelope->left_ns));
    write_counts(json, "window", &envelope->saw);
    kvr_json_object_end(json);
}

static void write_bounds(struct kvr_json_writer *json, const struct kvr_envelope *envelope)
{
    kvr_json_object_begin(json, "bounds");
    kvr_json_double(json, "active_share", envelope->active_share);
    kvr_json_double(json, "ttft_p99_ms", (double)envelope->ttft_ns / 1e6);
    kvr_json_object_end(json);
    kvr_json_double(json, "window_s", (double)envelope->options.window_ns / 1e9);
    kvr_json_uint(json, "requests_min", envelope->options.requests_min);
}

void kvr_admin_write_gate(const struct kvr_ingress *ingress, struct kvr_json_writer *json,
                          const char *key)
{
    const struct kvr_router *router = &ingress->router;
    const struct kvr_envelope *envelope = router->envelope;
    const struct kvr_script_record *baseline = router->records[KVR_ROLE_BASELINE];
    enum kvr_script_role covers = kvr_gate_covers(ingress);
    uint64_t now_ns = kvr_loop_now();
    if (!envelope) {
        kvr_json_null(json, key);
        return;
    }
    struct kvr_envelope_counts window = kvr_envelope_window(envelope, now_ns);
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "file", ingress->gate.path);
    kvr_json_double(json, "age_s", seconds_since(now_ns, ingress->gate.since_ns));
    kvr_json_text(json, "candidate", envelope->candidate);
    kvr_json_hex64(json, "candidate_hash", envelope->candidate_hash);
    kvr_json_text(json, "against", envelope->against);
    kvr_json_text(json, "baseline", baseline ? baseline->info.name : "");
    if (covers == KVR_ROLES)
        kvr_json_null(json, "covers");
    else
        kvr_json_text(json, "covers", kvr_role_name(covers));
    kvr_json_uint(json, "keys", envelope->keys_len);
    write_bounds(json, envelope);
    write_counts(json, "window", &window);
    write_left(json, envelope, now_ns);
    kvr_json_object_end(json);
}

void kvr_admin_gate(struct kvr_admin_call *call)
{
    const struct kvr_metrics *metrics = &call->ingress->router.metrics;
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_admin_write_gate(call->ingress, &json, "gate");
    kvr_json_uint(&json, "left_total", metrics->envelopes_left);
    kvr_json_uint(&json, "baseline_requests", metrics->baseline);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

void kvr_admin_load_gate(struct kvr_admin_call *call)
{
    struct kvr_error error = {0};
    if (kvr_gate_load(call->ingress, call->body->file, &error))
        kvr_admin_refuse_error(call, "file", &error);
    else
        kvr_admin_gate(call);
}

void kvr_admin_gate_off(struct kvr_admin_call *call)
{
    kvr_gate_drop(call->ingress);
    kvr_admin_gate(call);
}
