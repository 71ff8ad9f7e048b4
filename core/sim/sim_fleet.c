/* What becomes of replicas: they are made, woken, read, restarted, slowed down and taken out. They
 * are probed only where something can happen to them; else all are up all the time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "memory.h"
#include "rng.h"
#include "sim_parts.h"

static int make_engine(struct kvr_sim *sim, uint32_t i, struct kvr_error *error)
{
    struct kvr_sim_node *node = &sim->nodes[i];
    struct kvr_engine_options options = {
        .profile = &sim->options.profile,
        .seed = kvr_mix64(sim->options.seed + (i + 1) * 0x9e3779b97f4a7c15u),
        .kv_events = sim->options.kv_events,
        .max_waiting = sim->options.max_waiting,
    };
    int failed = kvr_engine_init(&node->engine, &options, error);
    if (failed)
        return failed;
    node->wake_ns = UINT64_MAX;
    double slowdown = sim->options.slowdowns ? sim->options.slowdowns[i] : 1;
    if (!(slowdown > 0 && slowdown <= 1e6)) {
        kvr_engine_deinit(&node->engine);
        return kvr_error_set(error, KVR_E_INVALID, "sim: slowdown of replica %u is %g", i,
                             slowdown);
    }
    if (slowdown != 1)
        kvr_engine_set_slowdown(&node->engine, KVR_SIM_ORIGIN_NS, slowdown);
    return KVR_OK;
}

/* The i-th name: of the given ones, else one that places the ring by ring_seed. */
static struct kvr_slice name_of(const struct kvr_sim *sim, uint32_t i, const char **at, char *room,
                                size_t size)
{
    if (!sim->options.authorities) {
        uint64_t seed = sim->options.ring_seed ? sim->options.ring_seed : sim->options.seed;
        snprintf(room, size, "sim-%016llx-%u:8000", (unsigned long long)kvr_mix64(seed), i);
        return kvr_slice_of(room);
    }
    *at += strspn(*at, " ");
    size_t len = strcspn(*at, " ");
    struct kvr_slice name = kvr_slice_make(*at, len);
    *at += len;
    return name;
}

static int add_replica(struct kvr_sim *sim, uint32_t i, struct kvr_slice name,
                       struct kvr_error *error)
{
    struct kvr_replica_spec spec = {
        .authority = name,
        .rank = -1,
        .weight = sim->options.weights ? sim->options.weights[i] : 0,
        .capacity = sim->options.capacity,
    };
    int slot = kvr_router_add_replica(&sim->router, sim->now_ns, &spec, error);
    if (slot < 0)
        return slot;
    KVR_CHECK((uint32_t)slot == i);
    kvr_router_probed(&sim->router, sim->now_ns, i, KVR_PROBE_PASS, false);
    return KVR_OK;
}

static int keep_changes(struct kvr_sim *sim, struct kvr_error *error)
{
    uint32_t len = sim->options.changes_len;
    const struct kvr_sim_change *given = sim->options.changes;
    sim->options.changes = NULL;
    sim->faults = len > 0;
    for (uint32_t i = 0; i < len; i++)
        if (given[i].replica >= sim->nodes_len || given[i].kind > KVR_SIM_RESTORE ||
            !(given[i].at_ms >= 0 && given[i].at_ms <= 1e12) ||
            (given[i].kind == KVR_SIM_SLOWDOWN && !(given[i].value > 0 && given[i].value <= 1e6)))
            return kvr_error_set(error, KVR_E_INVALID, "sim: change %u makes no sense", i);
    struct kvr_sim_change *kept = kvr_alloc(len * sizeof *kept + 1);
    if (len)
        memcpy(kept, given, len * sizeof *kept);
    sim->options.changes = kept;
    return KVR_OK;
}

int kvr_sim_fleet_init(struct kvr_sim *sim, struct kvr_error *error)
{
    const char *at = sim->options.authorities;
    uint32_t wanted = sim->nodes_len;
    sim->nodes = kvr_alloc_zero(wanted, sizeof *sim->nodes);
    sim->nodes_len = 0;
    for (uint32_t i = 0; i < wanted; i++) {
        char room[64];
        int failed = make_engine(sim, i, error);
        if (failed)
            return failed;
        sim->nodes_len++;
        failed = add_replica(sim, i, name_of(sim, i, &at, room, sizeof room), error);
        if (failed)
            return failed;
    }
    sim->options.authorities = NULL;
    sim->options.slowdowns = sim->options.weights = NULL;
    return keep_changes(sim, error);
}

void kvr_sim_fleet_deinit(struct kvr_sim *sim)
{
    for (uint32_t i = 0; i < sim->nodes_len; i++)
        kvr_engine_deinit(&sim->nodes[i].engine);
    kvr_free(sim->nodes);
    kvr_free((void *)(uintptr_t)sim->options.changes);
}

void kvr_sim_fleet_start(struct kvr_sim *sim)
{
    /* Staggered, as live: not all pages are read at once. */
    for (uint32_t i = 0; sim->scrape_ns && i < sim->nodes_len; i++)
        kvr_sim_later(sim, sim->scrape_ns * (i + 1) / sim->nodes_len, KVR_SIM_SCRAPE, i, 0);
    for (uint32_t i = 0; i < sim->options.changes_len; i++)
        kvr_sim_later(sim, (uint64_t)(sim->options.changes[i].at_ms * 1e6 + 0.5), KVR_SIM_CHANGE, i,
                      0);
    if (sim->faults)
        kvr_sim_later(sim, 0, KVR_SIM_PROBES, 0, 0);
}

static void wake(struct kvr_sim *sim, uint32_t i, uint64_t asked_for_ns)
{
    struct kvr_sim_node *node = &sim->nodes[i];
    if (node->wake_ns != asked_for_ns)
        return; /* it has been woken earlier */
    node->wake_ns = UINT64_MAX;
    kvr_engine_advance(&node->engine, sim->now_ns);
    kvr_sim_collect(sim, i);
}

static void scrape(struct kvr_sim *sim, uint32_t i)
{
    struct kvr_sim_node *node = &sim->nodes[i];
    kvr_sim_later(sim, sim->scrape_ns, KVR_SIM_SCRAPE, i, 0);
    if (!kvr_engine_ready(&node->engine, sim->now_ns))
        return;
    kvr_engine_advance(&node->engine, sim->now_ns);
    kvr_sim_collect(sim, i);
    struct kvr_engine_gauges gauges = kvr_engine_gauges(&node->engine);
    const struct kvr_engine_counters *counters = &node->engine.counters;
    struct kvr_engine_signals signals = {
        .running = gauges.running,
        .waiting = gauges.waiting,
        .kv_usage = gauges.kv_usage,
        .prefix_hit_tokens = (double)counters->prefix_hits,
        .prefix_query_tokens = (double)counters->prefix_queries,
        .prefix_hit_rate = (double)NAN,
        .prompt_tokens = (double)counters->prompt_tokens,
        .cached_tokens = (double)counters->cached_tokens,
        .generation_tokens = (double)counters->generation_tokens,
        .preemptions = (double)counters->preemptions,
        .kv_blocks = gauges.blocks,
        .block_size = KVR_BLOCK_TOKENS,
        .process_start_s = (double)node->engine.ready_ns / 1e9,
    };
    kvr_router_signals(&sim->router, sim->now_ns, i, &signals);
}

static void restart(struct kvr_sim *sim, uint32_t i)
{
    struct kvr_sim_node *node = &sim->nodes[i];
    kvr_engine_restart(&node->engine, sim->now_ns);
    kvr_sim_collect(sim, i);
}

static void change(struct kvr_sim *sim, const struct kvr_sim_change *change)
{
    struct kvr_sim_node *node = &sim->nodes[change->replica];
    struct kvr_replica_table *table = &sim->router.replicas;
    switch ((enum kvr_sim_change_kind)change->kind) {
    case KVR_SIM_RESTART:
        restart(sim, change->replica);
        break;
    case KVR_SIM_SLOWDOWN:
        kvr_engine_set_slowdown(&node->engine, sim->now_ns, change->value);
        kvr_sim_collect(sim, change->replica);
        break;
    case KVR_SIM_DRAIN:
        kvr_replica_set_administrative(table, change->replica, KVR_DRAINING);
        kvr_router_changed(&sim->router);
        break;
    case KVR_SIM_RESTORE:
        kvr_replica_set_administrative(table, change->replica, KVR_READY);
        kvr_router_changed(&sim->router);
        break;
    }
    kvr_sim_act(sim);
}

/* A process that is gone or not yet up refuses the connection. */
static void probe(struct kvr_sim *sim)
{
    struct kvr_health *health = &sim->router.health;
    uint32_t slot;
    kvr_router_tick(&sim->router, sim->now_ns);
    while ((slot = kvr_health_next_due(health, sim->now_ns)) != KVR_NO_REPLICA) {
        bool up = kvr_engine_ready(&sim->nodes[slot].engine, sim->now_ns);
        kvr_router_probed(&sim->router, sim->now_ns, slot, up ? KVR_PROBE_PASS : KVR_PROBE_FAIL,
                          !up);
    }
    kvr_sim_act(sim);
    uint64_t next = kvr_health_next_time(health, sim->now_ns);
    if (next <= sim->now_ns)
        next = sim->now_ns + 1;
    kvr_event_queue_add(&sim->queue, next, false, KVR_SIM_PROBES, 0, 0);
}

void kvr_sim_on_fleet_event(struct kvr_sim *sim, const struct kvr_sim_event *event)
{
    switch ((enum kvr_sim_event_kind)event->kind) {
    case KVR_SIM_WAKE:
        wake(sim, event->a, event->b);
        break;
    case KVR_SIM_SCRAPE:
        scrape(sim, event->a);
        break;
    case KVR_SIM_CHANGE:
        change(sim, &sim->options.changes[event->a]);
        break;
    case KVR_SIM_PROBES:
        probe(sim);
        break;
    default:
        KVR_CHECK(false);
    }
}
