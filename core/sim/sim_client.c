/* The client's side of a simulation: requests are sent, and when one is over its user goes on.
 *
 *   send -> decide -> enter -> (engine) -> first -> end        each an event at its time
 *             ^         | refused, full, failed
 *             +---------+ the router decides again, or the request ends
 *
 * sim_route.c has what the router does, sim_serve.c the engine and the way back. */
#include <math.h>

#include "memory.h"
#include "real.h"
#include "rng.h"
#include "sim_parts.h"

#define NO_SLOT UINT32_MAX

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

static uint64_t record_time(uint64_t ns)
{
    return ns - KVR_SIM_ORIGIN_NS;
}

struct kvr_workload_request kvr_sim_asked(struct kvr_sim *sim,
                                          const struct kvr_sim_request *request)
{
    struct kvr_workload_request ask;
    bool there = kvr_workload_turn(sim->workload, request->user, request->turn, &ask);
    KVR_CHECK(there);
    return ask;
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
    if (sim->timeout_ns)
        kvr_sim_later(sim, sim->timeout_ns + sim->network_ns, KVR_SIM_GIVE_UP, slot,
                      kvr_sim_name_for_life(request));
    uint64_t delay_ns = sim->network_ns + decision_ns(sim, &ask);
    if (delay_ns)
        kvr_sim_later(sim, delay_ns, KVR_SIM_DECIDE, slot, kvr_sim_name(request));
    else
        kvr_sim_decide(sim, request);
}

/* ---- the end ---- */

/* The client has its answer, or knows that there will be none. */
void kvr_sim_leave(struct kvr_sim *sim, struct kvr_sim_request *request, enum kvr_outcome outcome)
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

static void cancel(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_ending ending = kvr_ending_make(KVR_OUTCOME_CANCELLED, "client_gone", 0);
    if (request->routed)
        kvr_sim_finish(sim, request, &ending);
    else
        kvr_sim_leave(sim, request, KVR_OUTCOME_CANCELLED);
}

void kvr_sim_give_up(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    request->given_up = true;
    if (request->entered) {
        struct kvr_engine *engine = &sim->nodes[request->replica].engine;
        int code = kvr_engine_abort(engine, sim->now_ns, request->handle);
        KVR_CHECK(code == KVR_OK || code == KVR_E_NOT_FOUND); /* its last word is on its way */
        kvr_sim_collect(sim, request->replica);
    }
    cancel(sim, request);
}

void kvr_sim_cancel_all(struct kvr_sim *sim)
{
    sim->stopped = true;
    for (uint32_t slot = 0; slot < sim->requests_len && sim->open; slot++)
        if (sim->requests[slot].generation % 2)
            cancel(sim, &sim->requests[slot]);
}
