#include "sim.h"

#include <string.h>

#include "memory.h"
#include "sim_parts.h"

#define DRAIN_MS_DEFAULT 600000.0
#define TICK_NS          100000000u /* between two looks at the router's queue */

/* ---- making one ---- */

static uint64_t ns_of(double ms)
{
    return ms > 0 ? (uint64_t)(ms * 1e6 + 0.5) : 0;
}

/* What the workload takes over from the rest. */
static struct kvr_workload *make_workload(struct kvr_sim *sim, struct kvr_error *error)
{
    struct kvr_workload_options *o = &sim->options.workload;
    if (o->seed == 0)
        o->seed = sim->options.seed;
    if (!(o->bytes_per_token > 0))
        o->bytes_per_token = sim->options.profile.bytes_per_token;
    if (!(o->capacity_tokens > 0))
        o->capacity_tokens =
            (double)sim->nodes_len * sim->options.profile.blocks * KVR_BLOCK_TOKENS;
    return kvr_workload_create(o, error);
}

static void make_router(struct kvr_sim *sim)
{
    const struct kvr_sim_options *o = &sim->options;
    uint32_t requests_max = o->requests_max;
    if (requests_max == 0 && sim->closed && o->workload.kind != KVR_WORKLOAD_LIST)
        requests_max = o->workload.users; /* no more are ever open */
    struct kvr_router_options options = {
        .seed = o->seed,
        .replicas_max = sim->nodes_len,
        .requests_max = requests_max,
        .moves = o->moves,
        .vnodes = o->ring_vnodes,
        .block_bytes = o->index_block_bytes,
        .canary_share = o->canary_share,
        .wall_offset_ns = -(int64_t)KVR_SIM_ORIGIN_NS,
        .rows = o->rows,
        .row_blocks = o->row_blocks,
        .wide_after = o->index_wide_after,
        .key_tokens = o->plan_tokens > 0,
        .queue =
            {
                .max = o->queue_max,
                .deadline_ns = ns_of(o->queue_deadline_ms),
                .order = o->queue_shortest ? KVR_QUEUE_SHORTEST : KVR_QUEUE_FIFO,
            },
        .health =
            {
                .interval_ns = ns_of(o->health_interval_ms),
                .ramp_ns = ns_of(o->health_ramp_ms),
            },
        .index =
            {
                .memory_bytes = (uint64_t)(o->index_memory_mb * 1048576),
                .blocks_max = o->index_nodes,
                .blocks_per_replica_max = o->index_nodes_per_replica,
                .ttl_ns = o->index_ttl_ms < 0 ? UINT64_MAX : ns_of(o->index_ttl_ms),
                .seed = o->seed,
            },
    };
    kvr_router_init(&sim->router, &options);
    sim->reason_cold = kvr_reason_intern(kvr_slice_of("cold"));
}

static void set_window(struct kvr_sim *sim)
{
    const struct kvr_sim_options *o = &sim->options;
    sim->warmup_ns = KVR_SIM_ORIGIN_NS + ns_of(o->warmup_ms);
    sim->stop_ns = o->duration_ms > 0 ? KVR_SIM_ORIGIN_NS + ns_of(o->duration_ms) : UINT64_MAX;
    sim->give_up_ns = UINT64_MAX;
    sim->warmup_requests = (uint64_t)o->warmup_requests;
    sim->last_request = o->requests > 0 ? sim->warmup_requests + (uint64_t)o->requests : UINT64_MAX;
}

struct kvr_sim *kvr_sim_create(const struct kvr_sim_options *options, struct kvr_error *error)
{
    if (kvr_sim_options_check(options, error) || kvr_sim_plan_check(options, error) ||
        kvr_profile_check(&options->profile, error))
        return NULL;
    struct kvr_sim *sim = kvr_alloc_zero(1, sizeof *sim);
    sim->options = *options;
    sim->nodes_len = options->replicas ? options->replicas : options->profile.replicas;
    sim->closed = options->workload.arrivals == KVR_ARRIVALS_CLOSED;
    sim->first_free = UINT32_MAX;
    sim->now_ns = KVR_SIM_ORIGIN_NS;
    double overhead_ns = options->profile.overhead_ms * 1e6;
    sim->before_ns = (uint64_t)(overhead_ns * 0.8);
    sim->after_ns = (uint64_t)(overhead_ns * (1 - 0.8));
    sim->network_ns = ns_of(options->network_ms);
    sim->router_ns = ns_of(options->router_ms);
    sim->scrape_ns = ns_of(options->scrape_ms);
    sim->timeout_ns = ns_of(options->timeout_ms);
    set_window(sim);
    sim->workload = make_workload(sim, error);
    if (!sim->workload) {
        kvr_free(sim);
        return NULL;
    }
    kvr_event_queue_init(&sim->queue);
    struct kvr_prompt_options prompt = {
        .block_bytes = options->index_block_bytes,
        .wide_after = options->index_wide_after,
    };
    kvr_sim_prompt_init(&sim->prompt, &options->profile, &prompt);
    make_router(sim);
    if (kvr_sim_fleet_init(sim, error)) {
        kvr_sim_destroy(sim);
        return NULL;
    }
    return sim;
}

void kvr_sim_destroy(struct kvr_sim *sim)
{
    if (!sim)
        return;
    kvr_sim_cancel_all(sim);
    kvr_sim_fleet_deinit(sim);
    kvr_router_deinit(&sim->router);
    kvr_sim_prompt_deinit(&sim->prompt);
    kvr_event_queue_deinit(&sim->queue);
    kvr_workload_destroy(sim->workload);
    kvr_sim_records_deinit(sim);
    kvr_free(sim->plans);
    kvr_free(sim->requests);
    kvr_free(sim);
}

struct kvr_workload *kvr_sim_workload(struct kvr_sim *sim)
{
    return sim->workload;
}

/* ---- running it ---- */

static void start(struct kvr_sim *sim)
{
    sim->started = true;
    kvr_sim_fleet_start(sim);
    kvr_sim_plan_start(sim);
    if (sim->options.queue_max)
        kvr_sim_later(sim, TICK_NS, KVR_SIM_TICK, 0, 0);
    if (sim->options.workload.kind == KVR_WORKLOAD_LIST)
        kvr_workload_rewind(sim->workload);
    if (!sim->closed) {
        sim->arrival_due = kvr_workload_next(sim->workload, &sim->arrival);
        if (sim->arrival_due)
            kvr_sim_later(sim, sim->arrival.due_ns, KVR_SIM_ARRIVE, 0, 0);
        return;
    }
    uint64_t users = kvr_workload_users(sim->workload);
    KVR_CHECK(users < UINT32_MAX);
    sim->sends_due = users;
    for (uint32_t user = 0; user < users; user++)
        kvr_sim_later(sim, kvr_workload_start_ns(sim->workload, user), KVR_SIM_SEND, user, 0);
}

/* No more is sent; what is under way may end. */
static void stop(struct kvr_sim *sim)
{
    if (sim->stopped)
        return;
    sim->stopped = true;
    double drain_ms = sim->options.drain_ms > 0 ? sim->options.drain_ms : DRAIN_MS_DEFAULT;
    sim->give_up_ns = sim->now_ns + ns_of(drain_ms);
    const struct kvr_sim_counts *counts = &sim->counts;
    uint64_t answered = counts->success + counts->failed + counts->dropped + counts->timed_out;
    sim->unanswered = counts->requests - answered;
}

static void send(struct kvr_sim *sim, uint64_t user, uint64_t turn)
{
    if (sim->now_ns >= sim->stop_ns || sim->sent >= sim->last_request)
        stop(sim);
    if (!sim->stopped)
        kvr_sim_send(sim, user, turn);
}

static void on_arrival(struct kvr_sim *sim)
{
    struct kvr_arrival arrival = sim->arrival;
    sim->arrival_due = kvr_workload_next(sim->workload, &sim->arrival);
    if (sim->arrival_due)
        kvr_event_queue_add(&sim->queue, KVR_SIM_ORIGIN_NS + sim->arrival.due_ns, false,
                            KVR_SIM_ARRIVE, 0, 0);
    send(sim, arrival.user, arrival.turn);
}

static void handle(struct kvr_sim *sim, const struct kvr_sim_event *event)
{
    switch ((enum kvr_sim_event_kind)event->kind) {
    case KVR_SIM_SEND:
        sim->sends_due--;
        send(sim, event->a, event->b);
        break;
    case KVR_SIM_ARRIVE:
        on_arrival(sim);
        break;
    case KVR_SIM_TICK:
        kvr_router_tick(&sim->router, sim->now_ns);
        kvr_sim_act(sim);
        kvr_sim_later(sim, TICK_NS, KVR_SIM_TICK, 0, 0);
        break;
    case KVR_SIM_PLAN:
        kvr_sim_plan_again(sim);
        break;
    case KVR_SIM_WAKE:
    case KVR_SIM_SCRAPE:
    case KVR_SIM_CHANGE:
    case KVR_SIM_PROBES:
        kvr_sim_on_fleet_event(sim, event);
        break;
    default:
        kvr_sim_on_request_event(sim, event);
    }
}

static void verify(const struct kvr_sim *sim)
{
    kvr_router_verify(&sim->router);
    uint32_t on_nodes = 0, routed = 0;
    for (uint32_t i = 0; i < sim->nodes_len; i++) {
        kvr_engine_verify(&sim->nodes[i].engine);
        KVR_CHECK(sim->nodes[i].on_it == sim->router.loads[i].in_flight);
        on_nodes += sim->nodes[i].on_it;
    }
    for (uint32_t i = 0; i < sim->requests_len; i++)
        routed += sim->requests[i].generation % 2 && sim->requests[i].routed;
    KVR_CHECK(sim->sent == sim->ended + sim->open);
    KVR_CHECK(routed == sim->router.requests.open);
    KVR_CHECK(on_nodes + sim->router.queue.count == routed);
}

/* Is there nothing more to come? Engines and requests may be through while scrapes go on. */
static bool is_over(struct kvr_sim *sim)
{
    if (sim->open > 0)
        return false;
    if (sim->stopped)
        return true;
    return sim->closed ? sim->sends_due == 0 : !sim->arrival_due;
}

int kvr_sim_run(struct kvr_sim *sim, uint64_t until_ns, uint64_t events_max)
{
    uint64_t until =
        until_ns > UINT64_MAX - KVR_SIM_ORIGIN_NS ? UINT64_MAX : KVR_SIM_ORIGIN_NS + until_ns;
    if (!sim->started)
        start(sim);
    for (uint64_t n = 0; !sim->over; n++) {
        uint64_t next = kvr_event_queue_time(&sim->queue);
        if (is_over(sim) || next == UINT64_MAX || next > sim->give_up_ns) {
            stop(sim);
            kvr_sim_cancel_all(sim);
            sim->over = true;
            break;
        }
        if (next > until || (events_max && n == events_max))
            return 1;
        struct kvr_sim_event event = kvr_event_queue_take(&sim->queue);
        sim->now_ns = event.time_ns;
        sim->events++;
        kvr_sim_note(sim, event.time_ns,
                     (uint64_t)event.kind << 56 ^ (uint64_t)event.a << 24 ^ event.b);
        handle(sim, &event);
        if (sim->options.verify)
            verify(sim);
    }
    return 0;
}

uint64_t kvr_sim_now(const struct kvr_sim *sim)
{
    return sim->now_ns - KVR_SIM_ORIGIN_NS;
}

double kvr_sim_progress(const struct kvr_sim *sim)
{
    if (sim->over)
        return 1;
    double by_time = 0, by_number = 0;
    if (sim->stop_ns != UINT64_MAX && sim->stop_ns > KVR_SIM_ORIGIN_NS)
        by_time = (double)kvr_sim_now(sim) / (double)(sim->stop_ns - KVR_SIM_ORIGIN_NS);
    if (sim->last_request != UINT64_MAX)
        by_number = (double)sim->sent / (double)sim->last_request;
    double done = by_time > by_number ? by_time : by_number;
    return done < 0.999 ? done : 0.999;
}
