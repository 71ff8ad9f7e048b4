/* The router's side of a simulation: it is told what a request is, and what it decides is done. */
#include <math.h>

#include "digits.h"
#include "rng.h"
#include "session.h"
#include "sim_parts.h"

/* The session as the router derives it from the header of a request on the wire. */
static uint64_t session_key(const struct kvr_sim *sim, const struct kvr_workload_request *ask)
{
    char name[32];
    if (ask->session == 0)
        return 0;
    size_t len = kvr_workload_session_name(sim->workload, ask->session, name);
    const struct kvr_header header = {kvr_slice_of("x-session-id"), kvr_slice_make(name, len)};
    const struct kvr_api_request request = {.scope = sim->prompt.scope};
    return kvr_session_derive(NULL, &header, 1, &request).key;
}

/* A number as a key that routers and policies see: spread over 64 bits, 0 none. */
static uint64_t key_of(uint64_t number)
{
    return number ? kvr_mix64(number * 2 + 1) : 0;
}

uint64_t kvr_sim_routing_key(const struct kvr_sim *sim, const struct kvr_workload_request *ask)
{
    return ask->key ? key_of(ask->key) : session_key(sim, ask);
}

uint64_t kvr_sim_model_key(const struct kvr_sim *sim, uint32_t routing_key)
{
    return kvr_model_key(kvr_hash32(kvr_name_hash(kvr_slice_of(sim->options.profile.name))),
                         routing_key);
}

/* Makes the prompt's chain, which stays until the next submission; `id` is room for a name. */
static void describe(struct kvr_sim *sim, struct kvr_sim_request *request,
                     struct kvr_submission *submission, char id[16])
{
    struct kvr_workload_request ask = kvr_sim_asked(sim, request);
    uint32_t turns = kvr_sim_prompt_chain(&sim->prompt, &ask);
    request->record.prompt_bytes = (uint32_t)sim->prompt.bytes;
    kvr_put_hex64(id, ask.tag);
    *submission = (struct kvr_submission){
        .user = (void *)(uintptr_t)(request - sim->requests),
        .request_id = kvr_slice_make(id, 16),
        .model = kvr_slice_of(sim->options.profile.name),
        .endpoint = "chat",
        .session_source = ask.session ? "x-session-id" : "none",
        .session = session_key(sim, &ask),
        .tenant = key_of(ask.tenant),
        .routing_key = kvr_sim_routing_key(sim, &ask),
        .chain = sim->prompt.chain,
        .chain_len = sim->prompt.chain_len,
        .turn = turns,
        .choices = 1,
        .routed = true,
        .stream = true,
        .prompt_bytes = (double)sim->prompt.bytes,
        .prompt_tokens = (double)NAN,
        .max_tokens = ask.max_tokens ? ask.max_tokens : (double)NAN,
        .slo_ttft_ms = (double)NAN,
        .received_ns = request->received_ns,
    };
}

/* For its row: the chain is made anew, over the one that the last decision may still need. */
static void tell_chain(struct kvr_sim *sim, const struct kvr_sim_request *request,
                       struct kvr_ending *ending)
{
    struct kvr_workload_request ask = kvr_sim_asked(sim, request);
    kvr_router_settle(&sim->router);
    kvr_sim_prompt_chain(&sim->prompt, &ask);
    ending->chain = sim->prompt.chain;
    ending->chain_len = sim->prompt.chain_len;
}

/* What the router remembers of the request goes into its record, then the router forgets it. */
void kvr_sim_finish(struct kvr_sim *sim, struct kvr_sim_request *request,
                    const struct kvr_ending *ending)
{
    const struct kvr_request_record *known = kvr_router_request(&sim->router, request->ref);
    struct kvr_sim_record *record = &request->record;
    if (known->replica != KVR_NO_REPLICA)
        record->replica = (uint16_t)known->replica;
    if (known->preferred != KVR_NO_REPLICA)
        record->declined = (uint16_t)known->preferred;
    record->reason = known->reason;
    record->preferred_reason = known->preferred_reason;
    record->match_blocks = known->match_blocks;
    record->declined_match_blocks = known->declined_match_blocks;
    record->in_flight = (uint16_t)fminf(known->chosen_in_flight, UINT16_MAX);
    record->min_in_flight = (uint16_t)fminf(known->min_in_flight, UINT16_MAX);
    record->moves = (uint8_t)known->moves;
    record->fallback = known->fallback;
    if (known->ticket.generation)
        sim->nodes[request->replica].on_it--;
    struct kvr_ending told = *ending;
    if (sim->options.rows && sim->options.row_blocks)
        tell_chain(sim, request, &told);
    kvr_router_finish(&sim->router, sim->now_ns, request->ref, &told);
    request->routed = false;
    kvr_sim_leave(sim, request, ending->outcome);
    kvr_sim_act(sim); /* somebody may have waited for this */
}

static void dispatch(struct kvr_sim *sim, struct kvr_sim_request *request, uint32_t replica)
{
    request->attempt++;
    request->entered = false;
    request->replica = replica;
    sim->nodes[replica].on_it++;
    kvr_sim_note(sim, request->record.tag, replica);
    kvr_router_sent(&sim->router, sim->now_ns + sim->router_ns, request->ref);
    kvr_sim_later(sim, sim->router_ns + sim->network_ns + sim->before_ns, KVR_SIM_ENTER,
                  (uint32_t)(request - sim->requests), kvr_sim_name(request));
}

static uint16_t status_of(enum kvr_rejection rejection)
{
    switch (rejection) {
    case KVR_REJECT_MODEL_NOT_FOUND:
        return 404;
    case KVR_REJECT_ALL_FAILED:
        return 502;
    case KVR_REJECT_QUEUE_FULL:
        return 429;
    default:
        return 503;
    }
}

void kvr_sim_act(struct kvr_sim *sim)
{
    struct kvr_action action;
    while (kvr_router_next_action(&sim->router, &action)) {
        struct kvr_sim_request *request = &sim->requests[(uintptr_t)action.user];
        request->ref = action.request;
        request->routed = true;
        if (action.kind == KVR_ACTION_DISPATCH) {
            dispatch(sim, request, action.replica);
            kvr_router_settle(&sim->router);
            continue;
        }
        kvr_router_settle(&sim->router);
        struct kvr_ending ending =
            kvr_ending_make(KVR_OUTCOME_DROPPED, "rejected", status_of(action.rejection));
        kvr_sim_finish(sim, request, &ending);
    }
}

void kvr_sim_decide(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    char id[16];
    struct kvr_submission submission;
    describe(sim, request, &submission, id);
    struct kvr_request_ref ref = kvr_router_submit(&sim->router, sim->now_ns, &submission);
    if (ref.generation == 0) {
        struct kvr_ending ending = kvr_ending_make(KVR_OUTCOME_DROPPED, "too_many_requests", 503);
        kvr_router_refused(&sim->router, sim->now_ns, &submission, &ending);
        kvr_sim_leave(sim, request, KVR_OUTCOME_DROPPED);
        return;
    }
    request->ref = ref;
    request->routed = true;
    kvr_sim_act(sim);
}

/* This dispatch has failed before its first byte: the router decides what comes next. */
void kvr_sim_move(struct kvr_sim *sim, struct kvr_sim_request *request, bool replica_fault)
{
    char id[16];
    struct kvr_submission again;
    request->attempt++;
    sim->nodes[request->replica].on_it--;
    describe(sim, request, &again, id);
    kvr_router_failed(&sim->router, sim->now_ns, request->ref, replica_fault, &again);
    kvr_sim_act(sim);
}
