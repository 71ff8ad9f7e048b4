#include "explain.h"

#include "decide.h"
#include "memory.h"
#include "metrics_text.h"
#include "opinion.h"
#include "view_json.h"

/* ---- what scripts see ---- */

static const char *name_of(const struct kvr_router *router, uint32_t row)
{
    return router->replicas.slots[router->picture.rows[row].id].name;
}

static void write_picture(struct kvr_json_writer *json, const struct kvr_router *router)
{
    const struct kvr_picture *picture = &router->picture;
    kvr_json_object_begin(json, "request");
    kvr_view_write_request(json, &picture->request);
    kvr_json_object_end(json);
    kvr_json_object_begin(json, "view");
    kvr_view_write_totals(json, &picture->view);
    kvr_json_object_end(json);
    kvr_json_array_begin(json, "candidates");
    for (uint32_t i = 0; i < picture->view.count; i++) {
        kvr_json_object_begin(json, NULL);
        kvr_json_text(json, "replica", name_of(router, i));
        kvr_view_write_row(json, &picture->rows[i]);
        kvr_json_object_end(json);
    }
    kvr_json_array_end(json);
}

static void write_hash(struct kvr_json_writer *json, const char *key, uint64_t hash)
{
    if (hash)
        kvr_json_hex64(json, key, hash);
    else
        kvr_json_null(json, key);
}

static void write_request(struct kvr_json_writer *json, const struct kvr_router *router,
                          const struct kvr_request_record *record, struct kvr_slice model)
{
    kvr_json_text(json, "endpoint", record->endpoint);
    kvr_json_bool(json, "routed", record->routed);
    kvr_json_string(json, "model", model);
    write_hash(json, "session", record->session);
    if (record->session_source)
        kvr_json_text(json, "session_source", record->session_source);
    else
        kvr_json_null(json, "session_source");
    write_hash(json, "tenant", record->tenant);
    write_hash(json, "routing_key", record->routing_key);
    kvr_json_bool(json, "canary", record->canary);
    write_picture(json, router);
}

/* ---- what scripts say ---- */

/* Opens an object that names the script. */
static void begin_script(struct kvr_json_writer *json, const char *key,
                         const struct kvr_router *router, enum kvr_script_role role)
{
    const struct kvr_script_info *info = &router->records[role]->info;
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "role", kvr_role_name(role));
    kvr_json_text(json, "name", info->name);
    kvr_json_hex64(json, "hash", info->hash);
    kvr_json_uint(json, "generation", info->generation);
    kvr_json_text(json, "params", info->params);
}

static void write_failure(struct kvr_json_writer *json, const struct kvr_router *router,
                          enum kvr_script_role role, int code)
{
    const char *error = kvr_slot_last_error(router->slots[role]);
    if (code == 0)
        kvr_json_null(json, "error");
    else
        kvr_json_text(json, "error", *error ? error : kvr_error_name(code));
}

static void write_row(struct kvr_json_writer *json, const struct kvr_router *router, uint32_t row,
                      uint16_t reason)
{
    if (row == KVR_NO_ROW) {
        kvr_json_null(json, "replica");
        kvr_json_null(json, "reason");
        kvr_json_uint(json, "match_blocks", 0);
        return;
    }
    kvr_json_text(json, "replica", name_of(router, row));
    kvr_json_text(json, "reason", kvr_reason_text(reason));
    kvr_json_uint(json, "match_blocks", router->picture.rows[row].match_blocks);
}

/* The policy's own pick: what the spill rule declined, or what stands. */
static void write_policy(struct kvr_json_writer *json, const struct kvr_router *router,
                         enum kvr_script_role role, const struct kvr_opinion *opinion)
{
    if (!router->records[role]) {
        kvr_json_null(json, "policy");
        return;
    }
    bool declined = opinion->preferred != KVR_NO_ROW;
    uint32_t row = opinion->said != KVR_VERDICT_PICK ? KVR_NO_ROW
                   : declined                        ? opinion->preferred
                                                     : opinion->index;
    begin_script(json, "policy", router, role);
    kvr_json_text(json, "verdict", kvr_verdict_name(opinion->said));
    write_row(json, router, row, declined ? opinion->preferred_reason : opinion->reason);
    kvr_json_bool(json, "affine", opinion->affine);
    write_failure(json, router, role, opinion->policy_code);
    kvr_json_object_end(json);
}

static void write_spill(struct kvr_json_writer *json, const struct kvr_router *router,
                        enum kvr_script_role role, const struct kvr_opinion *opinion)
{
    if (!router->records[role]) {
        kvr_json_null(json, "spill");
        return;
    }
    bool declined = opinion->preferred != KVR_NO_ROW;
    begin_script(json, "spill", router, role);
    kvr_json_bool(json, "asked", opinion->spill_asked);
    if (opinion->spill_asked)
        kvr_json_text(json, "verdict", declined ? "move" : "stay");
    else
        kvr_json_null(json, "verdict");
    write_row(json, router, declined ? opinion->index : KVR_NO_ROW, opinion->reason);
    write_failure(json, router, role, opinion->spill_code);
    kvr_json_object_end(json);
}

static void write_shadows(struct kvr_json_writer *json, struct kvr_router *router)
{
    kvr_json_array_begin(json, "shadow");
    for (uint32_t i = 0; i < KVR_SHADOWS_MAX; i++) {
        enum kvr_script_role role = kvr_role_shadow(i);
        if (!router->records[role])
            continue;
        struct kvr_opinion opinion;
        kvr_opinion_form(router, role, &opinion);
        bool picked = opinion.verdict == KVR_VERDICT_PICK && !opinion.policy_code;
        begin_script(json, NULL, router, role);
        kvr_json_text(json, "verdict",
                      opinion.policy_code ? "failed" : kvr_verdict_name(opinion.verdict));
        write_row(json, router, picked ? opinion.index : KVR_NO_ROW, opinion.reason);
        kvr_json_bool(json, "spilled", opinion.preferred != KVR_NO_ROW);
        kvr_json_bool(json, "fallback", opinion.fallback);
        write_failure(json, router, role, opinion.policy_code);
        kvr_json_object_end(json);
    }
    kvr_json_array_end(json);
}

/* ---- what would come of it ---- */

static void write_outcome(struct kvr_json_writer *json, const struct kvr_router *router,
                          const struct kvr_opinion *opinion)
{
    kvr_json_bool(json, "fallback", opinion->fallback);
    kvr_json_text(json, "outcome", "dispatch");
    kvr_json_null(json, "rejection");
    write_row(json, router, opinion->index, opinion->reason);
}

static void write_no_dispatch(struct kvr_json_writer *json, const struct kvr_router *router,
                              enum kvr_rejection why, bool may_wait)
{
    const struct kvr_queue *queue = &router->queue;
    bool waits = may_wait && queue->count < queue->options.max;
    if (may_wait && queue->options.max && !waits)
        why = KVR_REJECT_QUEUE_FULL;
    kvr_json_bool(json, "fallback", false);
    kvr_json_text(json, "outcome", waits ? "wait" : "reject");
    if (waits)
        kvr_json_null(json, "rejection");
    else
        kvr_json_text(json, "rejection", kvr_metrics_rejection_name(why));
    write_row(json, router, KVR_NO_ROW, 0);
}

static void write_decision(struct kvr_json_writer *json, struct kvr_router *router,
                           const struct kvr_request_record *record)
{
    enum kvr_script_role role = kvr_decide_role(router, record);
    struct kvr_opinion opinion;
    kvr_opinion_form(router, role, &opinion);
    write_policy(json, router, role, &opinion);
    write_spill(json, router, KVR_ROLE_SPILL, &opinion);
    if (opinion.verdict == KVR_VERDICT_HOLD)
        write_no_dispatch(json, router, KVR_REJECT_AT_CAPACITY, true);
    else if (opinion.verdict == KVR_VERDICT_REJECT)
        write_no_dispatch(json, router, KVR_REJECT_BY_POLICY, false);
    else
        write_outcome(json, router, &opinion);
    write_shadows(json, router);
}

/* No script is asked: there is nothing to choose from, or the path is no generation. */
static void write_unasked(struct kvr_json_writer *json, const struct kvr_router *router,
                          const struct kvr_request_record *record)
{
    const struct kvr_picture *picture = &router->picture;
    kvr_json_null(json, "policy");
    kvr_json_null(json, "spill");
    if (picture->view.available == 0) {
        enum kvr_rejection why = kvr_decide_why_none(router, record);
        write_no_dispatch(json, router, why, why == KVR_REJECT_AT_CAPACITY);
    } else {
        uint32_t row = kvr_fallback_pick(&picture->view, picture->request.serial);
        write_outcome(json, router,
                      &(struct kvr_opinion){.index = row, .reason = router->reason_opaque});
    }
    kvr_json_array_begin(json, "shadow");
    kvr_json_array_end(json);
}

void kvr_router_explain(struct kvr_router *router, uint64_t now_ns,
                        const struct kvr_submission *submission, struct kvr_json_writer *json)
{
    struct kvr_request_record record = {0};
    kvr_router_settle(router); /* the view is about to become another */
    kvr_decide_describe(router, &record, submission);
    record.canary = record.routed && kvr_decide_is_canary(router, &record, router->sequence + 1);
    kvr_decide_view(router, now_ns, &record, submission->chain, record.routed ? router->needs : 0);
    record.model->serial--; /* counted as the next request's, which this is not */
    write_request(json, router, &record, submission->model);
    if (record.routed && router->picture.view.available)
        write_decision(json, router, &record);
    else
        write_unasked(json, router, &record);
    kvr_free(record.tag);
    kvr_free(record.model_name);
}
