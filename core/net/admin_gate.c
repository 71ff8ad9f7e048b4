/* The commands of admin.h about the gate in force. */
#include "admin_call.h"
#include "gate.h"

static void write_answers(struct kvr_json_writer *json, const char *key,
                          const struct kvr_envelope_answers *answers)
{
    kvr_json_object_begin(json, key);
    kvr_json_uint(json, "count", answers->count);
    kvr_json_uint(json, "late", answers->late);
    kvr_json_object_end(json);
}

static void write_counts(struct kvr_json_writer *json, const char *key,
                         const struct kvr_envelope_counts *counts)
{
    kvr_json_object_begin(json, key);
    kvr_json_uint(json, "requests", counts->requests);
    kvr_json_uint(json, "active", counts->active);
    write_answers(json, "streams", &counts->answers[KVR_ENVELOPE_STREAMS]);
    write_answers(json, "wholes", &counts->answers[KVR_ENVELOPE_WHOLES]);
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
    kvr_json_double(json, "token_ms", (double)envelope->token_ns / 1e6);
    kvr_json_object_end(json);
    kvr_json_double(json, "window_s", (double)envelope->options.window_ns / 1e9);
    kvr_json_uint(json, "requests_min", envelope->options.requests_min);
}

/* The role that is what was gated, or in what what acts differs from it. */
static void write_cover(struct kvr_json_writer *json, const struct kvr_router *router)
{
    struct kvr_gate_cover cover = kvr_gate_cover(router);
    char words[KVR_GATE_WORDS_MAX];
    if (cover.covers) {
        kvr_json_text(json, "covers", kvr_role_name(cover.role));
        kvr_json_null(json, "differs");
        return;
    }
    kvr_gate_cover_words(router, &cover, words);
    kvr_json_null(json, "covers");
    kvr_json_text(json, "differs", words);
}

/* The baseline that would decide, with the spill rule beside it, and whether the gate was against
 * just that. */
static void write_baseline(struct kvr_json_writer *json, const struct kvr_router *router)
{
    const struct kvr_script_record *baseline = router->records[KVR_ROLE_BASELINE];
    kvr_json_text(json, "baseline", baseline ? baseline->info.name : "");
    const struct kvr_script_record *spill = router->records[KVR_ROLE_SPILL];
    const struct kvr_envelope *envelope = router->envelope;
    bool judged = !kvr_envelope_compare(&envelope->against, baseline ? &baseline->info : NULL) &&
                  !kvr_envelope_compare(&envelope->against_spill, spill ? &spill->info : NULL);
    kvr_json_bool(json, "baseline_judged", judged);
}

void kvr_admin_write_gate(const struct kvr_ingress *ingress, struct kvr_json_writer *json,
                          const char *key)
{
    const struct kvr_router *router = &ingress->router;
    const struct kvr_envelope *envelope = router->envelope;
    uint64_t now_ns = kvr_loop_now();
    if (!envelope) {
        kvr_json_null(json, key);
        return;
    }
    struct kvr_envelope_counts window = kvr_envelope_window(envelope, now_ns);
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "file", ingress->gate.path);
    kvr_json_double(json, "age_s", seconds_since(now_ns, ingress->gate.since_ns));
    kvr_json_text(json, "candidate", envelope->candidate.name);
    kvr_json_hex64(json, "candidate_hash", envelope->candidate.hash);
    kvr_json_hex64(json, "candidate_params_hash", envelope->candidate.params_hash);
    kvr_json_text(json, "spill", envelope->spill.name);
    kvr_json_text(json, "against", envelope->against.name);
    write_baseline(json, router);
    write_cover(json, router);
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

static void on_done(void *context, const struct kvr_error *error)
{
    struct kvr_admin_call call = kvr_admin_resume(context);
    if (error)
        kvr_admin_refuse_error(&call, "file", error);
    else
        kvr_admin_gate(&call);
}

void kvr_admin_load_gate(struct kvr_admin_call *call)
{
    struct kvr_error error = {0};
    struct kvr_gate_wish wish = {
        .path = call->body->file, .context = kvr_admin_wait(call), .on_done = on_done};
    if (kvr_gate_ask(call->ingress, &wish, &error) == 0)
        return;
    *call = kvr_admin_resume(wish.context);
    kvr_admin_refuse_error(call, "file", &error);
}

void kvr_admin_gate_off(struct kvr_admin_call *call)
{
    kvr_gate_drop(call->ingress);
    kvr_admin_gate(call);
}
