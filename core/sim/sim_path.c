/* What becomes of one request: from the client through the router and an engine back to the client.
 *
 *   send -> decide -> enter -> (engine) -> first -> end        each an event at its time
 *             ^         │ refused, full, failed
 *             └---------┴ the router decides again, or the request ends
 *
 * A request that ends lets its user think about the next. Nothing here decides anything. */
#include <math.h>
#include <string.h>

#include "api_reply.h"
#include "memory.h"
#include "real.h"
#include "rng.h"
#include "session.h"
#include "sim_parts.h"

#define NO_SLOT UINT32_MAX

/* ---- requests under way ---- */

static uint32_t open_request(struct kvr_sim *sim)
{
    if (sim->first_free == NO_SLOT) {
        uint32_t len = sim->requests_len ? sim->requests_len * 2 : 64;
        sim->requests = kvr_realloc(sim->requests, len * sizeof *sim->requests);
        for (uint32_t i = len; i-- > sim->requests_len;) {
            sim->requests[i] = (struct kvr_sim_request){.next_free = sim->first_free};
            sim->first_free = i;
        }
        sim->requests_len = len;
    }
    uint32_t slot = sim->first_free;
    struct kvr_sim_request *request = &sim->requests[slot];
    sim->first_free = request->next_free;
    uint32_t generation = request->generation + 1;
    *request = (struct kvr_sim_request){.generation = generation, .replica = KVR_NO_REPLICA};
    sim->open++;
    return slot;
}

/* What events and the engine call this dispatch of the request. */
static uint64_t name_of(const struct kvr_sim_request *request)
{
    return (uint64_t)request->generation << 32 | request->attempt;
}

/* NULL: that dispatch is over. */
static struct kvr_sim_request *find(struct kvr_sim *sim, uint32_t slot, uint64_t name)
{
    struct kvr_sim_request *request = &sim->requests[slot];
    return name_of(request) == name ? request : NULL;
}

static struct kvr_workload_request asked(struct kvr_sim *sim, const struct kvr_sim_request *request)
{
    struct kvr_workload_request ask;
    bool there = kvr_workload_turn(sim->workload, request->user, request->turn, &ask);
    KVR_CHECK(there);
    return ask;
}

static uint64_t record_time(uint64_t ns)
{
    return ns - KVR_SIM_ORIGIN_NS;
}

/* ---- the client sends ---- */

static void begin_record(struct kvr_sim_request *request, const struct kvr_workload_request *ask)
{
    request->record = (struct kvr_sim_record){
        .tag = ask->tag,
        .sent_ns = record_time(request->sent_ns),
        .ttft_ms = (double)NAN,
        .e2el_ms = (double)NAN,
        .user = (uint32_t)request->user,
        .turn = (uint32_t)request->turn,
        .session = (uint32_t)ask->session,
        .session_turn = ask->session_turn,
        .key = (uint32_t)ask->key,
        .replica = UINT16_MAX,
        .declined = UINT16_MAX,
        .measured = request->measured,
    };
}

/* How long the router takes to make up its mind. */
static uint64_t decision_ns(const struct kvr_sim *sim, const struct kvr_workload_request *ask)
{
    const struct kvr_sim_options *o = &sim->options;
    double ms = o->decision_ms;
    if (ms > 0 && o->decision_sigma > 0)
        ms *= kvr_real_exp(o->decision_sigma *
                           kvr_real_normal(kvr_mix64(ask->tag ^ 0x6465636973696f6eu)));
    return (uint64_t)(ms * 1e6 + 0.5);
}

static void decide(struct kvr_sim *sim, struct kvr_sim_request *request);

void kvr_sim_send(struct kvr_sim *sim, uint64_t user, uint64_t turn)
{
    struct kvr_workload_request ask;
    if (!kvr_workload_turn(sim->workload, user, turn, &ask))
        return;
    uint32_t slot = open_request(sim);
    struct kvr_sim_request *request = &sim->requests[slot];
    request->user = user;
    request->turn = turn;
    request->sent_ns = sim->now_ns;
    request->received_ns = sim->now_ns + sim->network_ns;
    request->measured = sim->now_ns >= sim->warmup_ns && sim->sent >= sim->warmup_requests;
    begin_record(request, &ask);
    sim->sent++;
    sim->last_sent_ns = sim->now_ns;
    if (request->measured && sim->counts.requests++ == 0)
        sim->first_measured_ns = sim->now_ns;
    uint64_t delay_ns = sim->network_ns + decision_ns(sim, &ask);
    if (delay_ns)
        kvr_sim_later(sim, delay_ns, KVR_SIM_DECIDE, slot, name_of(request));
    else
        decide(sim, request);
}

/* ---- the router ---- */

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

/* Makes the prompt's chain, which stays until the next submission. */
static void describe(struct kvr_sim *sim, struct kvr_sim_request *request,
                     struct kvr_submission *submission)
{
    struct kvr_workload_request ask = asked(sim, request);
    uint32_t turns = kvr_sim_prompt_chain(&sim->prompt, &ask);
    request->record.prompt_bytes = (uint32_t)sim->prompt.prompt.bytes;
    *submission = (struct kvr_submission){
        .user = (void *)(uintptr_t)(request - sim->requests),
        .model = kvr_slice_of(sim->options.profile.name),
        .endpoint = "chat",
        .session_source = ask.session ? "x-session-id" : "none",
        .session = session_key(sim, &ask),
        .tenant = key_of(ask.tenant),
        .routing_key = key_of(ask.key),
        .chain = sim->prompt.prompt.chain,
        .chain_len = sim->prompt.prompt.chain_len,
        .turn = turns,
        .choices = 1,
        .routed = true,
        .stream = true,
        .prompt_bytes = (double)sim->prompt.prompt.bytes,
        .prompt_tokens = (double)NAN,
        .max_tokens = ask.max_tokens ? ask.max_tokens : (double)NAN,
        .slo_ttft_ms = (double)NAN,
        .received_ns = request->received_ns,
    };
}

static struct kvr_ending ending_of(enum kvr_outcome outcome, const char *error, uint16_t status)
{
    return (struct kvr_ending){
        .outcome = outcome,
        .error = error,
        .status = status,
        .prompt_tokens = -1,
        .output_tokens = -1,
        .cached_tokens = -1,
        .gap_mean_ms = (double)NAN,
        .gap_p50_ms = (double)NAN,
        .gap_max_ms = (double)NAN,
    };
}

/* The client has its answer, or knows that there will be none. */
static void leave(struct kvr_sim *sim, struct kvr_sim_request *request, enum kvr_outcome outcome)
{
    uint64_t user = request->user, turn = request->turn + 1;
    request->record.outcome = (uint8_t)outcome;
    request->record.e2el_ms = (double)(sim->now_ns + sim->network_ns - request->sent_ns) / 1e6;
    kvr_sim_note(sim, request->record.tag,
                 (uint64_t)request->record.cached_tokens << 32 ^
                     (uint64_t)request->record.replica << 8 ^ (uint64_t)outcome);
    sim->ended++;
    kvr_sim_count(sim, request);
    request->generation++;
    request->next_free = sim->first_free;
    sim->first_free = (uint32_t)(request - sim->requests);
    sim->open--;
    struct kvr_workload_request next;
    if (!sim->closed || sim->stopped || !kvr_workload_turn(sim->workload, user, turn, &next))
        return;
    sim->sends_due++;
    kvr_sim_later(sim, sim->network_ns + kvr_workload_think_ns(sim->workload, user, turn),
                  KVR_SIM_SEND, (uint32_t)user, turn);
}

/* What the router remembers of the request goes into its record, then the router forgets it. */
static void finish(struct kvr_sim *sim, struct kvr_sim_request *request,
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
    kvr_router_finish(&sim->router, sim->now_ns, request->ref, ending);
    request->routed = false;
    leave(sim, request, ending->outcome);
    kvr_sim_act(sim); /* somebody may have waited for this */
}

static void dispatch(struct kvr_sim *sim, struct kvr_sim_request *request, uint32_t replica)
{
    request->attempt++;
    request->replica = replica;
    sim->nodes[replica].on_it++;
    kvr_sim_note(sim, request->record.tag, replica);
    kvr_router_sent(&sim->router, sim->now_ns + sim->router_ns, request->ref);
    kvr_sim_later(sim, sim->router_ns + sim->network_ns + sim->before_ns, KVR_SIM_ENTER,
                  (uint32_t)(request - sim->requests), name_of(request));
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
            ending_of(KVR_OUTCOME_DROPPED, "rejected", status_of(action.rejection));
        finish(sim, request, &ending);
    }
}

static void decide(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_submission submission;
    describe(sim, request, &submission);
    struct kvr_request_ref ref = kvr_router_submit(&sim->router, sim->now_ns, &submission);
    if (ref.generation == 0) {
        struct kvr_ending ending = ending_of(KVR_OUTCOME_DROPPED, "too_many_requests", 503);
        kvr_router_refused(&sim->router, sim->now_ns, &submission, &ending);
        leave(sim, request, KVR_OUTCOME_DROPPED);
        return;
    }
    request->ref = ref;
    request->routed = true;
    kvr_sim_act(sim);
}

/* This dispatch has failed before its first byte: the router decides what comes next. */
static void move(struct kvr_sim *sim, struct kvr_sim_request *request, bool replica_fault)
{
    struct kvr_submission again;
    request->attempt++;
    sim->nodes[request->replica].on_it--;
    describe(sim, request, &again);
    kvr_router_failed(&sim->router, sim->now_ns, request->ref, replica_fault, &again);
    kvr_sim_act(sim);
}

/* ---- the engine ---- */

static void enter(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_workload_request ask = asked(sim, request);
    uint32_t slot = (uint32_t)(request - sim->requests);
    uint32_t prompt_tokens = kvr_sim_prompt_tokens(&sim->prompt, &ask);
    struct kvr_engine_request submitted = {
        .id = (uint64_t)slot << 32 | request->attempt,
        .blocks = sim->prompt.tokens.blocks,
        .blocks_len = sim->prompt.tokens.blocks_len,
        .prompt_tokens = prompt_tokens,
        .output_tokens = ask.output_tokens,
        .reason = ask.stops ? KVR_FINISH_STOP : KVR_FINISH_LENGTH,
    };
    request->record.prompt_tokens = prompt_tokens;
    int code = kvr_engine_submit(&sim->nodes[request->replica].engine, sim->now_ns, &submitted,
                                 &request->handle);
    if (code) {
        enum kvr_sim_event_kind kind = code == KVR_E_LIMIT   ? KVR_SIM_FULL
                                       : code == KVR_E_STATE ? KVR_SIM_FAIL
                                                             : KVR_SIM_REFUSED;
        kvr_sim_later(sim, sim->network_ns, kind, slot, name_of(request));
    }
    kvr_sim_collect(sim, request->replica);
}

static void on_report(struct kvr_sim *sim, const struct kvr_engine_event *report)
{
    uint32_t slot = (uint32_t)(report->request >> 32);
    struct kvr_sim_request *request = &sim->requests[slot];
    KVR_CHECK(request->generation % 2 && request->attempt == (uint32_t)report->request);
    uint64_t at = report->time_ns + sim->after_ns + sim->network_ns;
    if (report->kind == KVR_ENGINE_TOKEN) {
        request->record.cached_tokens = report->cached_tokens;
        kvr_event_queue_add(&sim->queue, at, false, KVR_SIM_FIRST, slot, name_of(request));
        return;
    }
    bool lost = report->reason == KVR_FINISH_ERROR; /* a dead process delays nothing */
    request->finished = *report;
    kvr_event_queue_add(&sim->queue, lost ? report->time_ns + sim->network_ns : at, false,
                        lost ? KVR_SIM_FAIL : KVR_SIM_END, slot, name_of(request));
}

void kvr_sim_collect(struct kvr_sim *sim, uint32_t node)
{
    struct kvr_sim_node *at = &sim->nodes[node];
    struct kvr_engine_event report;
    while (kvr_engine_next_event(&at->engine, &report)) {
        if (report.kind == KVR_ENGINE_TOKEN || report.kind == KVR_ENGINE_FINISHED)
            on_report(sim, &report);
        else
            kvr_sim_note(sim, report.block, report.kind);
    }
    uint64_t next = kvr_engine_next_time(&at->engine);
    if (next < at->wake_ns) {
        at->wake_ns = next;
        kvr_event_queue_add(&sim->queue, next, true, KVR_SIM_WAKE, node, next);
    }
}

/* ---- the way back ---- */

static void first_token(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    request->first_seen = true;
    kvr_router_first_byte(&sim->router, sim->now_ns, request->ref, 200);
    kvr_router_bytes(&sim->router, sim->now_ns, request->ref);
    kvr_router_first_token(&sim->router, sim->now_ns, request->ref);
    request->record.ttft_ms = (double)(sim->now_ns + sim->network_ns - request->sent_ns) / 1e6;
}

/* The reply, too, is in the cache now. */
static void believe_reply(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_workload_request ask = asked(sim, request);
    struct kvr_sim_prompt *maker = &sim->prompt;
    kvr_router_settle(&sim->router);
    kvr_sim_prompt_chain(maker, &ask);
    struct kvr_prompt_tail tail = maker->prompt.tail;
    uint64_t id = kvr_mix64(kvr_prompt_so_far(&maker->prompt));
    kvr_prompt_resume(&maker->prompt, &tail);
    size_t len = kvr_tokens_cut(&maker->tokens, request->finished.token);
    char *text = kvr_alloc(len + 1);
    kvr_workload_text(id, 0, len, text);
    kvr_api_add_reply(&maker->prompt, kvr_slice_make(text, len));
    kvr_free(text);
    kvr_router_believe(&sim->router, sim->now_ns, request->ref, maker->prompt.chain,
                       maker->prompt.chain_len);
}

static void end(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    const struct kvr_engine_event *said = &request->finished;
    struct kvr_sim_record *record = &request->record;
    uint32_t gaps = said->token > 1 ? said->token - 1 : 0;
    record->output_tokens = said->token;
    record->preemptions = said->preemptions;
    record->itl_p50_ms = (double)said->gap_p50_ns / 1e6;
    record->itl_max_ms = (double)said->gap_max_ns / 1e6;
    struct kvr_ending ending = ending_of(KVR_OUTCOME_SUCCESS, NULL, 200);
    ending.upstream_status = 200;
    ending.done_seen = true;
    ending.events = said->token;
    ending.prompt_tokens = said->prompt_tokens;
    ending.output_tokens = said->token;
    ending.cached_tokens = said->cached_tokens;
    if (gaps) {
        ending.gap_mean_ms = (double)(said->time_ns - said->first_token_ns) / gaps / 1e6;
        ending.gap_p50_ms = record->itl_p50_ms;
        ending.gap_max_ms = record->itl_max_ms;
    }
    if (sim->options.index_replies)
        believe_reply(sim, request);
    finish(sim, request, &ending);
}

/* The replica has let the request down. */
static void fail(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    if (!request->first_seen) {
        move(sim, request, true);
        return;
    }
    struct kvr_ending ending = ending_of(KVR_OUTCOME_DROPPED, "lost_mid_stream", 200);
    ending.upstream_status = 200;
    ending.replica_fault = true;
    finish(sim, request, &ending);
}

/* The engine has answered with an error. Once, a full one makes the router ask another. */
static void refuse(struct kvr_sim *sim, struct kvr_sim_request *request, bool full)
{
    if (full && !request->told_full && kvr_router_can_move(&sim->router, request->ref)) {
        request->told_full = true;
        move(sim, request, false);
        return;
    }
    uint16_t status = full ? 503 : 400;
    kvr_router_first_byte(&sim->router, sim->now_ns, request->ref, status);
    struct kvr_ending ending = ending_of(KVR_OUTCOME_FAILED, NULL, status);
    ending.upstream_status = status;
    finish(sim, request, &ending);
}

void kvr_sim_on_request_event(struct kvr_sim *sim, const struct kvr_sim_event *event)
{
    struct kvr_sim_request *request = find(sim, event->a, event->b);
    if (!request)
        return; /* that dispatch has failed meanwhile */
    switch ((enum kvr_sim_event_kind)event->kind) {
    case KVR_SIM_DECIDE:
        decide(sim, request);
        break;
    case KVR_SIM_ENTER:
        enter(sim, request);
        break;
    case KVR_SIM_FIRST:
        first_token(sim, request);
        break;
    case KVR_SIM_END:
        end(sim, request);
        break;
    case KVR_SIM_FAIL:
        fail(sim, request);
        break;
    case KVR_SIM_FULL:
    case KVR_SIM_REFUSED:
        refuse(sim, request, event->kind == KVR_SIM_FULL);
        break;
    default:
        KVR_CHECK(!"an event of a request");
    }
}

void kvr_sim_cancel_all(struct kvr_sim *sim)
{
    sim->stopped = true;
    for (uint32_t slot = 0; slot < sim->requests_len && sim->open; slot++) {
        struct kvr_sim_request *request = &sim->requests[slot];
        if (request->generation % 2 == 0)
            continue;
        struct kvr_ending ending = ending_of(KVR_OUTCOME_CANCELLED, "client_gone", 0);
        if (request->routed)
            finish(sim, request, &ending);
        else
            leave(sim, request, KVR_OUTCOME_CANCELLED);
    }
}
