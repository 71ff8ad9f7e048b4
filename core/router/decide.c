#include "decide.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "opinion.h"

void kvr_decide_hold(struct kvr_router *router, uint32_t replica)
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

enum kvr_rejection kvr_decide_why_none(const struct kvr_router *router,
                                       const struct kvr_request_record *record)
{
    const struct kvr_model *model = record->model;
    bool draining = false;
    if (model->members_count == 0)
        return router->replicas.count && model->hash ? KVR_REJECT_MODEL_NOT_FOUND
                                                     : KVR_REJECT_NO_REPLICAS;
    for (uint32_t i = 0; i < model->members_count; i++) {
        const struct kvr_replica *replica = &router->replicas.slots[model->members[i]];
        if (kvr_decide_is_excluded(record, model->members[i]))
            continue;
        if (kvr_replica_in_rotation(replica))
            return KVR_REJECT_AT_CAPACITY;
        draining |= replica->operational != KVR_DOWN && replica->administrative == KVR_DRAINING;
    }
    if (record->excluded_count)
        return KVR_REJECT_ALL_FAILED;
    return draining ? KVR_REJECT_DRAINING : KVR_REJECT_NO_REPLICAS;
}

/* What the replica that holds most of the prompt would still have to prefill. */
static uint32_t least_uncached(const struct kvr_router *router,
                               const struct kvr_request_record *record)
{
    const struct kvr_view *view = &router->picture.view;
    double matched = 0;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->rows[i].match_tokens > matched)
            matched = view->rows[i].match_tokens;
    double uncached = (double)record->prompt_tokens - matched;
    return uncached > 0 ? (uint32_t)(uncached + 0.5) : 0;
}

/* Waits for a replica, or is refused. */
static void wait_or_reject(struct kvr_router *router, uint64_t now_ns,
                           struct kvr_request_ref request, const uint64_t *chain,
                           enum kvr_rejection otherwise)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    record->uncached_tokens = least_uncached(router, record);
    if (kvr_queue_add(&router->queue, &router->requests, request, chain, now_ns))
        return;
    bool full = router->queue.options.max != 0;
    kvr_decide_reject(router, now_ns, request, full ? KVR_REJECT_QUEUE_FULL : otherwise);
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

enum kvr_script_role kvr_decide_role(const struct kvr_router *router,
                                     const struct kvr_request_record *record)
{
    if (router->envelope && router->envelope->left)
        return KVR_ROLE_BASELINE;
    return record->canary ? KVR_ROLE_CANARY : KVR_ROLE_POLICY;
}

/* The baseline may be what is in force anyway: then nothing is on trial. */
static bool is_guarded(const struct kvr_router *router, enum kvr_script_role role)
{
    const struct kvr_script_record *baseline = router->records[KVR_ROLE_BASELINE];
    const struct kvr_script_record *acting = router->records[role];
    return router->envelope && role != KVR_ROLE_BASELINE && acting &&
           !(baseline && baseline->info.hash == acting->info.hash &&
             baseline->info.params_hash == acting->info.params_hash);
}

/* Asks the scripts in force, and writes down which they were and what the spill rule declined. */
static void ask(struct kvr_router *router, struct kvr_request_record *record,
                struct kvr_opinion *opinion)
{
    enum kvr_script_role role = kvr_decide_role(router, record);
    record->baseline = role == KVR_ROLE_BASELINE ? (uint8_t)router->envelope->left : 0;
    record->guarded = is_guarded(router, role);
    router->metrics.baseline += record->baseline != 0;
    record->policy = kvr_script_record_share(router->records[role]);
    kvr_opinion_form(router, role, opinion);
    record->fallback = opinion->fallback;
    router->metrics.fallbacks += opinion->fallback;
    if (opinion->spill_asked)
        record->spill = kvr_script_record_share(router->records[KVR_ROLE_SPILL]);
    if (opinion->preferred == KVR_NO_ROW)
        return;
    const struct kvr_replica_view *declined = &router->picture.rows[opinion->preferred];
    record->preferred = declined->id;
    kvr_decide_hold(router, declined->id);
    record->preferred_reason = opinion->preferred_reason;
    record->declined_match_blocks = declined->match_blocks;
    record->declined_in_flight = (float)declined->in_flight;
    router->metrics.spills++;
}

static void forget_decision(struct kvr_router *router, struct kvr_request_record *record)
{
    /* A second decision is by what is in force now. */
    kvr_script_record_release(record->policy);
    kvr_script_record_release(record->spill);
    record->policy = record->spill = NULL;
    kvr_decide_release(router, record->preferred);
    if (record->shadows)
        kvr_shadow_answers_release(router, record->shadows);
    record->shadows = NULL;
    record->preferred = KVR_NO_REPLICA;
    record->preferred_reason = 0;
    record->declined_match_blocks = 0;
    record->fallback = false;
}

/* What need not be done before the request leaves. */
static void leave_to_settle(struct kvr_router *router, uint64_t now_ns,
                            struct kvr_request_ref request, uint32_t index, uint16_t reason)
{
    router->pending.request = request;
    router->pending.now_ns = now_ns;
    router->pending.chain = NULL;
    router->pending.key = 0;
    router->pending.uncached = 0;
    router->pending.index = index;
    router->pending.reason = reason;
    router->pending.needs = router->needs;
    router->pending.shadows = router->shadowing;
}

static void dispatch(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                     const uint64_t *chain, uint32_t index, uint16_t reason)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    const struct kvr_replica_view *row = &router->picture.rows[index];
    struct kvr_replica *replica = &router->replicas.slots[row->id];
    double prompt = (double)record->prompt_tokens;
    double uncached = prompt - row->match_tokens;
    record->replica = row->id;
    record->replica_generation = replica->generation;
    record->reason = reason;
    record->match_blocks = row->match_blocks;
    record->chosen_in_flight = (float)row->in_flight;
    record->uncached_tokens = uncached > 0 ? (uint32_t)(uncached + 0.5) : 0;
    record->decided_ns = now_ns;
    kvr_decide_hold(router, row->id);
    record->ticket = kvr_ledger_open(&router->ledger, row->id, (uint32_t)(prompt + 0.5),
                                     record->uncached_tokens);
    KVR_CHECK(record->ticket.generation);
    router->metrics.decisions[reason]++;
    leave_to_settle(router, now_ns, request, index, reason);
    router->pending.replica = row->id;
    router->pending.shadows &= record->routed;
    if (router->needs & KVR_NEEDS_WORK)
        router->pending.uncached = record->uncached_tokens;
    if (record->routed &&
        (router->options.count_keys || (router->needs & (KVR_NEEDS_KEYS | KVR_NEEDS_PLAN))))
        router->pending.key = record->model_key;
    if (record->routed && router->plan && (router->needs & KVR_NEEDS_PLAN))
        router->metrics.planned[row->assigned                  ? KVR_PLANNED_THERE
                                : router->picture.view.planned ? KVR_PLANNED_AWAY
                                                               : KVR_UNPLANNED]++;
    if (record->routed &&
        (router->needs & (KVR_NEEDS_MATCH | KVR_NEEDS_OPENINGS | KVR_NEEDS_ACTIVE)) &&
        record->chain_len) {
        router->pending.chain = chain;
        router->pending.len = record->chain_len;
    }
    push_action(router, &(struct kvr_action){.kind = KVR_ACTION_DISPATCH,
                                             .request = request,
                                             .user = record->user,
                                             .replica = row->id});
}

/* By the policy. A shadow may think otherwise. */
static void refuse(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request)
{
    leave_to_settle(router, now_ns, request, KVR_NO_ROW, router->reason_refused);
    kvr_decide_reject(router, now_ns, request, KVR_REJECT_BY_POLICY);
}

/* Paths that are no generation go to any healthy replica: by load, asking no script. */
static void decide_opaque(struct kvr_router *router, uint64_t now_ns,
                          struct kvr_request_ref request, const uint64_t *chain)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    uint32_t index = kvr_fallback_pick(&router->picture.view, record->model->serial);
    dispatch(router, now_ns, request, chain, index, router->reason_opaque);
}

void kvr_decide(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                const uint64_t *chain)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    forget_decision(router, record);
    uint32_t needs = record->routed ? router->needs : 0;
    kvr_decide_view(router, now_ns, record, chain, needs);
    note_candidates(record, &router->picture.view);
    if (router->picture.view.available == 0) {
        enum kvr_rejection why = kvr_decide_why_none(router, record);
        if (why == KVR_REJECT_AT_CAPACITY)
            wait_or_reject(router, now_ns, request, chain, why);
        else
            kvr_decide_reject(router, now_ns, request, why);
        return;
    }
    if (!record->routed) {
        decide_opaque(router, now_ns, request, chain);
        return;
    }
    struct kvr_opinion opinion;
    ask(router, record, &opinion);
    if (opinion.verdict == KVR_VERDICT_HOLD)
        wait_or_reject(router, now_ns, request, chain, KVR_REJECT_AT_CAPACITY);
    else if (opinion.verdict == KVR_VERDICT_REJECT)
        refuse(router, now_ns, request);
    else
        dispatch(router, now_ns, request, chain, opinion.index, opinion.reason);
}
