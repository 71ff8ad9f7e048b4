#include "decide.h"

#include <math.h>
#include <string.h>

#include "check.h"

/* Indices of router->records, and of the slots they describe. */
enum { POLICY, SPILL, CANARY };

static double milliseconds(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double age_ms(uint64_t now_ns, uint64_t since_ns)
{
    return since_ns == 0 ? (double)NAN : milliseconds(now_ns > since_ns ? now_ns - since_ns : 0);
}

static bool is_excluded(const struct kvr_request_record *record, uint32_t replica)
{
    for (uint16_t i = 0; i < record->excluded_count; i++)
        if (record->excluded[i] == replica)
            return true;
    return false;
}

static void fill_request(struct kvr_router *router, uint64_t now_ns,
                         const struct kvr_request_record *record,
                         const struct kvr_submission *submission)
{
    struct kvr_request_view *view = &router->picture.request;
    view->now_ms = milliseconds(now_ns);
    view->prompt_bytes = (double)record->prompt_bytes;
    view->prompt_tokens = (double)record->prompt_tokens;
    view->max_tokens = submission->max_tokens;
    view->priority = submission->priority;
    view->slo_ttft_ms = submission->slo_ttft_ms;
    view->chain = (const struct kvr_block_key *)(const void *)submission->chain;
    view->chain_len = submission->chain_len;
    view->block_bytes = router->options.block_bytes;
    view->serial = record->model->serial;
    view->model = kvr_hash32(record->model->hash);
    view->session = kvr_hash32(record->session);
    view->tenant = kvr_hash32(record->tenant);
    view->routing_key = kvr_hash32(record->routing_key);
    view->turn = record->turn;
    view->attempt = record->excluded_count;
    view->stream = record->stream;
}

/* When this request's key last went to each replica, as ages in the rows. */
static void fill_key_ages(struct kvr_router *router, uint64_t now_ns,
                          const struct kvr_request_record *record)
{
    const struct kvr_model *model = record->model;
    struct kvr_replica_view *rows = router->picture.rows;
    uint32_t count = kvr_window_pairs(&router->keys, now_ns, kvr_hash32(record->routing_key),
                                      router->pairs, router->options.replicas_max);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t row = 0; row < model->members_count; row++)
            if (rows[row].id == router->pairs[i].replica)
                rows[row].key_age_ms = age_ms(now_ns, router->pairs[i].last_ns);
}

static void fill_row(struct kvr_router *router, uint64_t now_ns, uint32_t slot,
                     double tokens_a_block, struct kvr_replica_view *row)
{
    const struct kvr_replica *replica = &router->replicas.slots[slot];
    const struct kvr_load *load = &router->loads[slot];
    uint32_t match = router->match[slot];
    row->id = slot;
    row->name = (uint32_t)(replica->id >> 32) | 1;
    row->weight = replica->weight;
    row->ramp = kvr_replica_ramp(replica, now_ns);
    row->in_flight = load->in_flight;
    row->load = row->in_flight / (row->weight * row->ramp);
    row->capacity = replica->capacity == UINT32_MAX ? (double)INFINITY : replica->capacity;
    row->uncached_tokens = (double)load->uncached_tokens;
    row->remote_in_flight = (double)NAN;
    row->remote_age_ms = (double)NAN;
    row->age_ms = age_ms(now_ns, replica->available_since_ns);
    row->running = load->signals.running;
    row->waiting = load->signals.waiting;
    row->kv_usage = load->signals.kv_usage;
    row->engine_hit_rate = load->hit_rate;
    row->signals_age_ms = age_ms(now_ns, load->signals_ns);
    row->match_blocks = match;
    row->match_tokens = match * tokens_a_block;
    row->resident_blocks = 0;
    row->resident_tokens = (double)NAN;
    row->ttft_ms = load->ttft_ms.value;
    row->error_rate = load->error_rate.value;
    row->prefill_tokens_per_s = load->prefill_tokens_per_s.value;
    row->key_age_ms = (double)NAN;
    row->assigned = 0;
    row->operational = replica->operational;
    row->administrative = replica->administrative;
}

void kvr_decide_view(struct kvr_router *router, uint64_t now_ns,
                     const struct kvr_request_record *record,
                     const struct kvr_submission *submission, uint32_t needs)
{
    struct kvr_picture *picture = &router->picture;
    struct kvr_model *model = record->model;
    kvr_model_refresh(&router->models, model, &router->replicas);
    double tokens_a_block =
        router->options.block_bytes / kvr_model_bytes_per_token(&router->models, model);
    memset(router->match, 0, router->options.replicas_max * sizeof *router->match);
    if ((needs & KVR_NEEDS_MATCH) && submission->chain_len)
        kvr_prefix_index_match(&router->index, now_ns, submission->chain, submission->chain_len,
                               router->match);
    fill_request(router, now_ns, record, submission);
    picture->ring = &model->ring;
    picture->keys = needs & KVR_NEEDS_KEYS ? &router->keys : NULL;
    picture->now_ns = now_ns;
    for (uint32_t i = 0; i < model->members_count; i++) {
        uint32_t slot = model->members[i];
        const struct kvr_replica *replica = &router->replicas.slots[slot];
        struct kvr_replica_view *row = &picture->rows[i];
        fill_row(router, now_ns, slot, tokens_a_block, row);
        row->available = kvr_replica_in_rotation(replica) && !is_excluded(record, slot) &&
                         router->loads[slot].in_flight < replica->capacity;
        picture->ids[i] = replica->id;
        picture->weights[i] = replica->weight;
    }
    if ((needs & KVR_NEEDS_KEYS) && record->routing_key)
        fill_key_ages(router, now_ns, record);
    kvr_picture_summarise(picture, model->members_count);
}

/* A record names this replica: its slot is not given away meanwhile. */
static void hold(struct kvr_router *router, uint32_t replica)
{
    router->replicas.slots[replica].holds++;
}

void kvr_decide_release(struct kvr_router *router, uint32_t replica)
{
    if (replica == KVR_NO_REPLICA)
        return;
    KVR_CHECK(router->replicas.slots[replica].holds > 0);
    router->replicas.slots[replica].holds--;
}

static void push_action(struct kvr_router *router, const struct kvr_action *action)
{
    uint32_t room = sizeof router->actions / sizeof router->actions[0];
    KVR_CHECK(router->actions_count < room);
    router->actions[(router->actions_first + router->actions_count++) % room] = *action;
}

void kvr_decide_reject(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                       enum kvr_rejection rejection)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    record->replica = KVR_NO_REPLICA;
    record->decided_ns = now_ns;
    router->metrics.rejections[rejection]++;
    push_action(router, &(struct kvr_action){.kind = KVR_ACTION_REJECT,
                                             .request = request,
                                             .user = record->user,
                                             .rejection = rejection});
}

/* Nothing may be picked: why, in the order in which an operator would look. */
static enum kvr_rejection why_none(const struct kvr_router *router,
                                   const struct kvr_request_record *record)
{
    const struct kvr_model *model = record->model;
    bool draining = false;
    if (record->excluded_count)
        return KVR_REJECT_ALL_FAILED;
    if (model->members_count == 0)
        return router->replicas.count && model->hash ? KVR_REJECT_MODEL_NOT_FOUND
                                                     : KVR_REJECT_NO_REPLICAS;
    for (uint32_t i = 0; i < model->members_count; i++) {
        const struct kvr_replica *replica = &router->replicas.slots[model->members[i]];
        if (kvr_replica_in_rotation(replica))
            return KVR_REJECT_AT_CAPACITY;
        draining |= replica->operational != KVR_DOWN && replica->administrative == KVR_DRAINING;
    }
    return draining ? KVR_REJECT_DRAINING : KVR_REJECT_NO_REPLICAS;
}

static void note_candidates(struct kvr_request_record *record, const struct kvr_view *view)
{
    record->candidates = (uint16_t)view->count;
    record->available = (uint16_t)view->available;
    uint32_t shown = view->count < KVR_CANDIDATES_MAX ? view->count : KVR_CANDIDATES_MAX;
    for (uint32_t i = 0; i < shown; i++) {
        double in_flight = view->rows[i].in_flight;
        record->candidate_loads[i] = (uint16_t)(in_flight < 65535 ? in_flight : 65535);
    }
    record->min_in_flight = (float)view->min_in_flight;
    record->mean_in_flight = (float)view->mean_in_flight;
}

/* Asks the scripts. Returns a row, KVR_NO_REPLICA when the policy refuses the request. */
static uint32_t ask_policy(struct kvr_router *router, struct kvr_request_record *record,
                           struct kvr_decision *decision)
{
    struct kvr_slot *slot = record->canary ? router->canary : router->policy;
    const struct kvr_view *view = &router->picture.view;
    int rc = kvr_slot_pick(slot, decision);
    if (rc == 0 && decision->verdict == KVR_VERDICT_PICK)
        return decision->index;
    if (rc == 0 && decision->verdict == KVR_VERDICT_REJECT)
        return KVR_NO_REPLICA;
    record->fallback = true;
    router->metrics.fallbacks++;
    decision->affine = false;
    decision->reason = router->reason_fallback;
    return kvr_fallback_pick(view, record->model->serial);
}

/* The spill rule looks at what the policy chose for its cache, and may send it elsewhere. */
static uint32_t ask_spill(struct kvr_router *router, struct kvr_request_record *record,
                          uint32_t preferred, struct kvr_decision *decision)
{
    struct kvr_decision answer;
    if (!kvr_slot_info(router->spill))
        return preferred;
    record->spill = router->records[SPILL];
    if (record->spill)
        record->spill->references++;
    int rc = kvr_slot_spill(router->spill, preferred, &answer);
    if (rc || answer.verdict != KVR_VERDICT_PICK || answer.index == preferred)
        return preferred;
    const struct kvr_replica_view *declined = &router->picture.rows[preferred];
    record->preferred = declined->id;
    hold(router, declined->id);
    record->preferred_reason = decision->reason;
    record->declined_match_blocks = declined->match_blocks;
    record->declined_in_flight = (float)declined->in_flight;
    router->metrics.spills++;
    decision->reason = answer.reason;
    return answer.index;
}

static void forget_decision(struct kvr_router *router, struct kvr_request_record *record)
{
    /* A second decision is by what is in force now. */
    kvr_script_record_release(record->policy);
    kvr_script_record_release(record->spill);
    record->policy = record->spill = NULL;
    kvr_decide_release(router, record->preferred);
    record->preferred = KVR_NO_REPLICA;
    record->preferred_reason = 0;
    record->declined_match_blocks = 0;
    record->fallback = false;
}

static void dispatch(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                     const struct kvr_submission *submission, uint32_t index, uint16_t reason)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    const struct kvr_replica_view *row = &router->picture.rows[index];
    struct kvr_replica *replica = &router->replicas.slots[row->id];
    double uncached = (double)record->prompt_tokens - row->match_tokens;
    record->replica = row->id;
    record->replica_generation = replica->generation;
    record->reason = reason;
    record->match_blocks = row->match_blocks;
    record->chosen_in_flight = (float)row->in_flight;
    record->uncached_tokens = uncached > 0 ? (uint32_t)(uncached + 0.5) : 0;
    record->decided_ns = now_ns;
    hold(router, row->id);
    record->ticket = kvr_ledger_open(&router->ledger, row->id, record->uncached_tokens);
    KVR_CHECK(record->ticket.generation);
    router->metrics.decisions[reason]++;
    if ((router->needs & KVR_NEEDS_KEYS) && record->routed && record->routing_key)
        kvr_window_add(&router->keys, now_ns, kvr_hash32(record->routing_key), row->id, 1);
    if ((router->needs & KVR_NEEDS_MATCH) && record->routed && submission->chain_len) {
        router->pending.request = request;
        router->pending.chain = submission->chain;
        router->pending.len = submission->chain_len;
        router->pending.replica = row->id;
        router->pending.now_ns = now_ns;
    }
    push_action(router, &(struct kvr_action){.kind = KVR_ACTION_DISPATCH,
                                             .request = request,
                                             .user = record->user,
                                             .replica = row->id});
}

/* Paths that are no generation go to any healthy replica: by load, asking no script. */
static void decide_opaque(struct kvr_router *router, uint64_t now_ns,
                          struct kvr_request_ref request, const struct kvr_submission *submission)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    uint32_t index = kvr_fallback_pick(&router->picture.view, record->model->serial);
    dispatch(router, now_ns, request, submission, index, router->reason_opaque);
}

void kvr_decide(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                const struct kvr_submission *submission)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    forget_decision(router, record);
    uint32_t needs = record->routed ? router->needs : 0;
    kvr_decide_view(router, now_ns, record, submission, needs);
    note_candidates(record, &router->picture.view);
    if (router->picture.view.available == 0) {
        kvr_decide_reject(router, now_ns, request, why_none(router, record));
        return;
    }
    if (!record->routed) {
        decide_opaque(router, now_ns, request, submission);
        return;
    }
    record->policy = router->records[record->canary ? CANARY : POLICY];
    if (record->policy)
        record->policy->references++;
    struct kvr_decision decision = {.verdict = KVR_VERDICT_NONE};
    uint32_t index = ask_policy(router, record, &decision);
    if (index == KVR_NO_REPLICA) {
        kvr_decide_reject(router, now_ns, request, KVR_REJECT_BY_POLICY);
        return;
    }
    if (decision.affine)
        index = ask_spill(router, record, index, &decision);
    dispatch(router, now_ns, request, submission, index, decision.reason);
}
