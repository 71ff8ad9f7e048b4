/* Plans of routing keys in a simulation: from the rates that the workload was given, or from those
 * that the router has counted. A plan takes no time. */
#include "memory.h"
#include "planning.h"
#include "ranking.h"
#include "sim_parts.h"

int kvr_sim_plan_check(const struct kvr_sim_options *o, struct kvr_error *error)
{
    bool knows_rates = o->workload.kind == KVR_WORKLOAD_KEYS && o->workload.rate > 0 &&
                       o->workload.arrivals == KVR_ARRIVALS_RATE;
    if (o->plan_at_start && !knows_rates)
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_at_start is for keys that come at a rate");
    bool wanted = o->plan_at_start || o->plan_q_cap > 0 || o->plan_interval_ms > 0;
    if (wanted && !o->plan_slots)
        return kvr_error_set(error, KVR_E_INVALID, "sim: a plan needs plan_slots");
    if (o->plan_interval_ms > 0 && o->plan_interval_ms < 1)
        return kvr_error_set(error, KVR_E_INVALID, "sim: plan_interval_ms is 0, or 1 or more");
    if (o->plan_slots && !o->plan_at_start && !(o->plan_interval_ms > 0))
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_slots needs plan_at_start or plan_interval_ms");
    return KVR_OK;
}

static void plan(struct kvr_sim *sim, const struct kvr_planning *planning)
{
    const struct kvr_planning_options options = {
        .plan = {.q_cap = sim->options.plan_q_cap},
        .slots = sim->options.plan_slots,
    };
    if (planning->destinations == 0)
        return; /* all are drained: the last plan stays */
    struct kvr_next_plan next;
    int failed = kvr_planning_make(planning, &options, &next, NULL);
    KVR_CHECK(!failed);
    if (next.change.verdict == KVR_PLAN_INSTALL)
        kvr_planning_install(&sim->router, sim->now_ns, planning, &next);
    kvr_next_plan_deinit(&next);
}

/* The true rates, by key as the router has it: in 32 bits, where two may fall together. */
static void give_true_rates(const struct kvr_sim *sim, struct kvr_planning *planning)
{
    const struct kvr_workload_options *o = kvr_workload_options(sim->workload);
    struct kvr_ranked *order = kvr_alloc_zero(o->keys, sizeof *order);
    struct kvr_ranked *scratch = kvr_alloc_zero(o->keys, sizeof *scratch);
    for (uint32_t i = 0; i < o->keys; i++) {
        struct kvr_workload_request ask = {.session = i + 1};
        order[i] = (struct kvr_ranked){kvr_hash32(kvr_sim_routing_key(sim, &ask)), i};
    }
    kvr_ranking_sort(order, scratch, o->keys);
    kvr_free(scratch);
    kvr_free(planning->keys);
    planning->keys = kvr_alloc_zero(o->keys, sizeof *planning->keys);
    planning->keys_len = 0;
    for (uint32_t i = 0; i < o->keys; i++) {
        bool new = i == 0 || order[i].rank != order[i - 1].rank;
        planning->keys_len += new;
        struct kvr_plan_key *key = &planning->keys[planning->keys_len - 1];
        key->key = order[i].rank;
        key->rate += o->rate * kvr_workload_key_share(sim->workload, order[i].item);
    }
    kvr_free(order);
}

static void plan_later(struct kvr_sim *sim)
{
    if (sim->options.plan_interval_ms > 0)
        kvr_sim_later(sim, (uint64_t)(sim->options.plan_interval_ms * 1e6), KVR_SIM_PLAN, 0, 0);
}

void kvr_sim_plan_start(struct kvr_sim *sim)
{
    if (sim->options.plan_at_start) {
        struct kvr_planning planning;
        kvr_planning_init(&planning, &sim->router, sim->now_ns);
        give_true_rates(sim, &planning);
        plan(sim, &planning);
        kvr_planning_deinit(&planning);
    }
    plan_later(sim);
}

void kvr_sim_plan_again(struct kvr_sim *sim)
{
    struct kvr_planning planning;
    kvr_planning_init(&planning, &sim->router, sim->now_ns);
    plan(sim, &planning);
    kvr_planning_deinit(&planning);
    plan_later(sim);
}
