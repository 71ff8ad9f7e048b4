/* The commands of admin.h about shadows. */
#include "admin_call.h"
#include "shadow.h"

static void write_script(struct kvr_json_writer *json, const char *key,
                         const struct kvr_router *router, enum kvr_script_role role)
{
    const struct kvr_script_record *record = router->records[role];
    if (!record) {
        kvr_json_null(json, key);
        return;
    }
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "name", record->info.name);
    kvr_json_hex64(json, "hash", record->info.hash);
    kvr_json_uint(json, "generation", record->info.generation);
    kvr_json_text(json, "params", record->info.params);
    kvr_json_object_end(json);
}

static void write_counts(struct kvr_json_writer *json, const struct kvr_shadow_counters *counters)
{
    kvr_json_uint(json, "evaluated", counters->evaluated);
    kvr_json_uint(json, "agreed", counters->agreed);
    kvr_json_uint(json, "disagreed", counters->evaluated - counters->agreed);
    kvr_json_uint(json, "failed", counters->failed);
    kvr_json_uint(json, "fallbacks", counters->fallbacks);
    kvr_json_uint(json, "spilled", counters->spilled);
    kvr_json_uint(json, "prompt_tokens", counters->prompt_tokens);
    kvr_json_uint(json, "match_tokens", counters->match_tokens);
    kvr_json_uint(json, "acting_match_tokens", counters->acting_match_tokens);
}

/* Members of the fleet, and those that left and are in the counts. */
static void write_replicas(struct kvr_json_writer *json, const struct kvr_router *router,
                           const struct kvr_shadow *shadow)
{
    kvr_json_array_begin(json, "replicas");
    for (uint32_t i = 0; shadow->replicas && i < router->replicas.end; i++) {
        const struct kvr_shadow_replica *counts = &shadow->replicas[i];
        if (!router->replicas.slots[i].member && counts->acting + counts->shadow == 0)
            continue;
        kvr_json_object_begin(json, NULL);
        kvr_json_text(json, "name", router->replicas.slots[i].name);
        kvr_json_uint(json, "acting", counts->acting);
        kvr_json_uint(json, "shadow", counts->shadow);
        kvr_json_uint(json, "agreed", counts->agreed);
        kvr_json_object_end(json);
    }
    kvr_json_array_end(json);
}

/* The most frequent first. */
static void write_pairs(struct kvr_json_writer *json, const struct kvr_shadow *shadow)
{
    bool told[KVR_SHADOW_PAIRS_MAX] = {false};
    kvr_json_array_begin(json, "disagreements");
    for (uint32_t n = 0; n < shadow->pairs_count; n++) {
        uint32_t most = KVR_SHADOW_PAIRS_MAX;
        for (uint32_t i = 0; i < shadow->pairs_count; i++)
            if (!told[i] && (most == KVR_SHADOW_PAIRS_MAX ||
                             shadow->pairs[i].count > shadow->pairs[most].count))
                most = i;
        const struct kvr_shadow_pair *pair = &shadow->pairs[most];
        told[most] = true;
        kvr_json_object_begin(json, NULL);
        kvr_json_text(json, "acting_reason", kvr_reason_text(pair->acting_reason));
        kvr_json_text(json, "reason", kvr_reason_text(pair->reason));
        kvr_json_uint(json, "count", pair->count);
        kvr_json_uint(json, "match_tokens", pair->match_tokens);
        kvr_json_uint(json, "acting_match_tokens", pair->acting_match_tokens);
        kvr_json_object_end(json);
    }
    kvr_json_array_end(json);
    kvr_json_uint(json, "disagreements_other", shadow->pairs_other);
}

static void write_since(struct kvr_json_writer *json, uint64_t first_ns)
{
    uint64_t now_ns = kvr_loop_now();
    uint64_t age_ms = now_ns > first_ns ? (now_ns - first_ns) / 1000000 : 0;
    if (first_ns)
        kvr_json_double(json, "since_s", (double)age_ms / 1e3);
    else
        kvr_json_null(json, "since_s");
}

static void write_shadow(struct kvr_json_writer *json, const struct kvr_admin_call *call,
                         uint32_t i)
{
    const struct kvr_router *router = &call->ingress->router;
    const struct kvr_shadow *shadow = &router->shadows[i];
    const struct kvr_slot *slot = router->slots[kvr_role_shadow(i)];
    const char *error = kvr_slot_last_error(slot);
    kvr_json_object_begin(json, NULL);
    kvr_json_text(json, "role", kvr_role_name(kvr_role_shadow(i)));
    write_script(json, "policy", router, kvr_role_shadow(i));
    write_script(json, "spill", router, kvr_role_shadow_spill(i));
    kvr_json_bool(json, "quarantined", kvr_slot_quarantined(slot));
    if (*error)
        kvr_json_text(json, "error", error);
    else
        kvr_json_null(json, "error");
    write_since(json, shadow->first_ns);
    write_counts(json, &shadow->now);
    write_replicas(json, router, shadow);
    write_pairs(json, shadow);
    kvr_json_object_begin(json, "totals");
    write_counts(json, &shadow->totals);
    kvr_json_object_end(json);
    kvr_json_object_end(json);
}

void kvr_admin_shadow(struct kvr_admin_call *call)
{
    const struct kvr_router *router = &call->ingress->router;
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_object_begin(&json, "acting");
    write_script(&json, "policy", router, KVR_ROLE_POLICY);
    write_script(&json, "spill", router, KVR_ROLE_SPILL);
    write_script(&json, "canary", router, KVR_ROLE_CANARY);
    kvr_json_double(&json, "canary_share", router->options.canary_share);
    kvr_json_object_end(&json);
    /* Without, every match below is 0 for not having been looked up. */
    kvr_json_bool(&json, "matching", (router->needs & KVR_NEEDS_MATCH) != 0);
    kvr_json_uint(&json, "shadows_max", KVR_SHADOWS_MAX);
    kvr_json_array_begin(&json, "shadows");
    for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++)
        if (router->records[kvr_role_shadow(i)])
            write_shadow(&json, call, i);
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

void kvr_admin_set_shadow(struct kvr_admin_call *call)
{
    const struct kvr_admin_body *body = call->body;
    struct kvr_error error = {0};
    if (kvr_script_store_set_shadows(&call->ingress->scripts, body->shadows, body->shadows_count,
                                     &error))
        kvr_admin_refuse_error(call, "shadows", &error);
    else
        kvr_admin_shadow(call);
}
