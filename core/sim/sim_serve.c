/* The engine's side of a simulation: requests enter its queue, and what it says goes back. */
#include "sim_parts.h"

/* NULL: that dispatch is over. */
static struct kvr_sim_request *find(struct kvr_sim *sim, uint32_t slot, uint64_t name)
{
    struct kvr_sim_request *request = &sim->requests[slot];
    return kvr_sim_name(request) == name ? request : NULL;
}

static void enter(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_workload_request ask = kvr_sim_asked(sim, request);
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
    request->entered = code == 0;
    if (code) {
        enum kvr_sim_event_kind kind = code == KVR_E_LIMIT   ? KVR_SIM_FULL
                                       : code == KVR_E_STATE ? KVR_SIM_FAIL
                                                             : KVR_SIM_REFUSED;
        kvr_sim_later(sim, sim->network_ns, kind, slot, kvr_sim_name(request));
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
        kvr_event_queue_add(&sim->queue, at, false, KVR_SIM_FIRST, slot, kvr_sim_name(request));
        return;
    }
    bool lost = report->reason == KVR_FINISH_ERROR; /* a dead process delays nothing */
    request->finished = *report;
    kvr_event_queue_add(&sim->queue, lost ? report->time_ns + sim->network_ns : at, false,
                        lost ? KVR_SIM_FAIL : KVR_SIM_END, slot, kvr_sim_name(request));
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
    struct kvr_workload_request ask = kvr_sim_asked(sim, request);
    kvr_router_settle(&sim->router);
    kvr_sim_prompt_reply(&sim->prompt, &ask, request->finished.token);
    kvr_router_believe(&sim->router, sim->now_ns, request->ref, sim->prompt.chain,
                       sim->prompt.chain_len);
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
    struct kvr_ending ending = kvr_ending_make(KVR_OUTCOME_SUCCESS, NULL, 200);
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
    kvr_sim_finish(sim, request, &ending);
}

/* The replica has let the request down. */
static void fail(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    if (!request->first_seen) {
        kvr_sim_move(sim, request, true);
        return;
    }
    struct kvr_ending ending = kvr_ending_make(KVR_OUTCOME_DROPPED, "lost_mid_stream", 200);
    ending.upstream_status = 200;
    ending.replica_fault = true;
    kvr_sim_finish(sim, request, &ending);
}

/* The engine has answered with an error. Once, a full one makes the router ask another. */
static void refuse(struct kvr_sim *sim, struct kvr_sim_request *request, bool full)
{
    if (full && !request->told_full && kvr_router_can_move(&sim->router, request->ref)) {
        request->told_full = true;
        kvr_sim_move(sim, request, false);
        return;
    }
    uint16_t status = full ? 503 : 400;
    kvr_router_first_byte(&sim->router, sim->now_ns, request->ref, status);
    struct kvr_ending ending = kvr_ending_make(KVR_OUTCOME_FAILED, NULL, status);
    ending.upstream_status = status;
    kvr_sim_finish(sim, request, &ending);
}

void kvr_sim_on_request_event(struct kvr_sim *sim, const struct kvr_sim_event *event)
{
    struct kvr_sim_request *request = find(sim, event->a, event->b);
    if (event->kind == KVR_SIM_GIVE_UP) {
        request = &sim->requests[event->a];
        if (kvr_sim_name_for_life(request) == event->b)
            kvr_sim_give_up(sim, request);
        return;
    }
    if (!request)
        return; /* that dispatch has failed meanwhile */
    switch ((enum kvr_sim_event_kind)event->kind) {
    case KVR_SIM_DECIDE:
        kvr_sim_decide(sim, request);
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
        KVR_CHECK(false);
    }
}
