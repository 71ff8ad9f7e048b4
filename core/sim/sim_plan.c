/* Plans of routing keys in a simulation: from the rates that the workload was given, or from those
 * that the router has counted. A plan takes no time. */
#include "memory.h"
#include "planning.h"
#include "ranking.h"
#include "sim_parts.h"

#define PLANS_MAX 100000u /* that are remembered */

static int check_beyond(const struct kvr_sim_options *o, bool knows_rates, struct kvr_error *error)
{
    if (o->plan_true && !knows_rates)
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_true is for keys that come at a rate");
    if ((o->plan_theta > 0 || o->plan_move_budget > 0 || o->plan_loyalty > 0) && !o->plan_keep)
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_theta, plan_move_budget and plan_loyalty need plan_keep");
    if (o->plan_residency_s > 0 && !(o->plan_tokens > 0))
        return kvr_error_set(error, KVR_E_INVALID, "sim: plan_residency_s needs plan_tokens");
    if (o->plan_handover == 1 || (o->plan_handover_s > 0 && !o->plan_handover))
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_handover is 0, or one request in 2 or more");
    if (o->plan_loyalty > 0 && o->plan_loyalty < 1)
        return kvr_error_set(error, KVR_E_INVALID, "sim: plan_loyalty is 0, or 1 or more");
    return KVR_OK;
}

int kvr_sim_plan_check(const struct kvr_sim_options *o, struct kvr_error *error)
{
    bool knows_rates = o->workload.kind == KVR_WORKLOAD_KEYS && o->workload.rate > 0 &&
                       (o->workload.arrivals == KVR_ARRIVALS_RATE ||
                        o->workload.arrivals == KVR_ARRIVALS_BOOTSTRAP);
    if (o->plan_at_start && !knows_rates)
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_at_start is for keys that come at a rate");
    if (o->plan_requests > 0 &&
        (o->workload.kind != KVR_WORKLOAD_LIST || o->workload.arrivals == KVR_ARRIVALS_CLOSED))
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_requests is for a list in an open loop");
    bool starts = o->plan_at_start || o->plan_requests > 0;
    bool bounded = o->plan_slots || o->plan_tokens > 0;
    bool wanted = starts || o->plan_q_cap > 0 || o->plan_interval_ms > 0;
    if (wanted && !bounded)
        return kvr_error_set(error, KVR_E_INVALID, "sim: a plan needs plan_slots or plan_tokens");
    if (o->plan_interval_ms > 0 && o->plan_interval_ms < 1)
        return kvr_error_set(error, KVR_E_INVALID, "sim: plan_interval_ms is 0, or 1 or more");
    if (bounded && !starts && !(o->plan_interval_ms > 0))
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: plan_slots needs plan_at_start or plan_interval_ms");
    return check_beyond(o, knows_rates, error);
}

static struct kvr_planning_options planning_options(const struct kvr_sim_options *o)
{
    return (struct kvr_planning_options){
        .plan =
            {
                .q_cap = o->plan_q_cap,
                .phi = o->plan_phi,
                .residency = o->plan_residency_s,
                .keep = o->plan_keep,
                .theta = o->plan_theta,
                .move_budget = o->plan_move_budget,
                .loyalty = o->plan_loyalty,
            },
        .slots = o->plan_slots,
        .tokens = o->plan_tokens,
        .life_s = o->plan_life_s,
        .handover = {.every = o->plan_handover, .most_ns = (uint64_t)(o->plan_handover_s * 1e9)},
    };
}

/* What the plan would have come to from scratch: what keeping costs in balance. */
static double imbalance_from_scratch(const struct kvr_planning *planning,
                                     struct kvr_planning_options options)
{
    struct kvr_next_plan next;
    options.plan.keep = 0;
    options.plan.theta = options.plan.move_budget = options.plan.loyalty = 0;
    options.handover.every = 0;
    int failed = kvr_planning_make(planning, &options, &next, NULL);
    KVR_CHECK(!failed);
    double imbalance = next.plan->imbalance;
    kvr_next_plan_deinit(&next);
    return imbalance;
}

static void remember(struct kvr_sim *sim, const struct kvr_next_plan *next, double fresh)
{
    const struct kvr_plan *plan = next->plan;
    const struct kvr_plan_change *change = &next->change;
    if (sim->plans_len == PLANS_MAX)
        return;
    if (sim->plans_len == sim->plans_capacity) {
        sim->plans_capacity = sim->plans_capacity ? sim->plans_capacity * 2 : 16;
        sim->plans = kvr_realloc(sim->plans, sim->plans_capacity * sizeof *sim->plans);
    }
    sim->plans[sim->plans_len++] = (struct kvr_sim_plan){
        .at_s = (double)(sim->now_ns - KVR_SIM_ORIGIN_NS) / 1e9,
        .imbalance = plan->imbalance,
        .fresh = fresh,
        .stale = change->last_imbalance,
        .admitted = plan->admitted,
        .copies = plan->copies,
        .split = plan->split,
        .keys_both = change->keys_both,
        .keys_moved = change->keys_moved,
        .rate_moved = change->rate_moved,
        .keys_new = change->keys_new,
        .keys_gone = change->keys_gone,
        .staleness = change->staleness,
        .warmup = change->warmup,
        .verdict = change->verdict,
    };
}

static void plan(struct kvr_sim *sim, const struct kvr_planning *planning)
{
    struct kvr_planning_options options = planning_options(&sim->options);
    if (planning->destinations == 0)
        return; /* all are drained: the last plan stays */
    struct kvr_next_plan next;
    int failed = kvr_planning_make(planning, &options, &next, NULL);
    KVR_CHECK(!failed);
    double fresh = next.plan->imbalance;
    if (options.plan.keep && planning->last)
        fresh = imbalance_from_scratch(planning, options);
    remember(sim, &next, fresh);
    if (next.change.verdict == KVR_PLAN_INSTALL)
        kvr_planning_install(&sim->router, sim->now_ns, planning, &next);
    kvr_next_plan_deinit(&next);
}

/* The true rates and sizes, by key as the router has it: in 32 bits, where two may fall together.
 */
static void give_truth(const struct kvr_sim *sim, struct kvr_planning *planning)
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
    kvr_free(planning->sizes);
    planning->keys = kvr_alloc_zero(o->keys, sizeof *planning->keys);
    planning->sizes = kvr_alloc_zero(o->keys, sizeof *planning->sizes);
    planning->keys_len = 0;
    planning->window_s = 0; /* nothing was counted */
    for (uint32_t i = 0; i < o->keys; i++) {
        bool new = i == 0 || order[i].rank != order[i - 1].rank;
        planning->keys_len += new;
        struct kvr_plan_key *key = &planning->keys[planning->keys_len - 1];
        struct kvr_plan_size *size = &planning->sizes[planning->keys_len - 1];
        key->key = kvr_sim_model_key(sim, (uint32_t)order[i].rank);
        key->rate += o->rate * kvr_workload_key_share(sim->workload, order[i].item);
        kvr_workload_key_tokens(sim->workload, order[i].item, &size->tokens, &size->saved);
        if (!(size->tokens > 0))
            *size = (struct kvr_plan_size){1, 1}; /* the workload has no prefixes */
    }
    kvr_free(order);
}

/* By the rates that `give` knows, or NULL: those that the router has counted. */
static void plan_now(struct kvr_sim *sim,
                     void (*give)(const struct kvr_sim *sim, struct kvr_planning *planning))
{
    struct kvr_planning planning;
    kvr_planning_init(&planning, &sim->router, sim->now_ns);
    if (give)
        give(sim, &planning);
    plan(sim, &planning);
    kvr_planning_deinit(&planning);
}

static void plan_later(struct kvr_sim *sim)
{
    if (sim->options.plan_interval_ms > 0)
        kvr_sim_later(sim, (uint64_t)(sim->options.plan_interval_ms * 1e6), KVR_SIM_PLAN, 0, 0);
}

void kvr_sim_plan_start(struct kvr_sim *sim)
{
    if (sim->options.plan_at_start)
        plan_now(sim, give_truth);
    else if (sim->options.plan_requests > 0)
        plan_now(sim, kvr_sim_plan_list_rates);
    plan_later(sim);
}

void kvr_sim_plan_again(struct kvr_sim *sim)
{
    plan_now(sim, sim->options.plan_true ? give_truth : NULL);
    plan_later(sim);
}

int kvr_sim_plan_at(const struct kvr_sim *sim, uint32_t number, struct kvr_sim_plan *result)
{
    if (number >= sim->plans_len)
        return KVR_E_NOT_FOUND;
    *result = sim->plans[number];
    return KVR_OK;
}
