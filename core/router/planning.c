#include "planning.h"

#include <math.h>

#include "memory.h"

static void read_keys(struct kvr_planning *planning, const struct kvr_window *window,
                      uint64_t now_ns)
{
    double covered_s = (double)kvr_window_covered_ns(window, now_ns) / 1e9;
    uint32_t room = window->used, cursor = 0;
    struct kvr_window_key *counts = kvr_alloc(room * sizeof *counts + 1);
    planning->keys_len = kvr_window_keys(window, now_ns, &cursor, counts, window->cells_max);
    KVR_CHECK(planning->keys_len <= room);
    planning->keys = kvr_alloc(planning->keys_len * sizeof *planning->keys + 1);
    for (uint32_t i = 0; i < planning->keys_len; i++)
        planning->keys[i] =
            (struct kvr_plan_key){counts[i].key, (double)counts[i].count / covered_s};
    kvr_free(counts);
}

/* Of each key, the mean of its prompts, which are taken to be all prefix. */
static void read_sizes(struct kvr_planning *planning, const struct kvr_router *router,
                       uint64_t now_ns)
{
    planning->sizes = kvr_alloc(planning->keys_len * sizeof *planning->sizes + 1);
    for (uint32_t i = 0; i < planning->keys_len; i++) {
        uint64_t key = planning->keys[i].key;
        double requests = (double)kvr_window_count(&router->keys, now_ns, key);
        double tokens = (double)kvr_window_count(&router->key_tokens, now_ns, key);
        double mean = tokens > 0 && requests > 0 ? tokens / requests : 1;
        planning->sizes[i] = (struct kvr_plan_size){mean, mean};
    }
}

void kvr_planning_init(struct kvr_planning *planning, const struct kvr_router *router,
                       uint64_t now_ns)
{
    const struct kvr_replica_table *table = &router->replicas;
    *planning = (struct kvr_planning){
        .weights = kvr_alloc_zero(table->count + 1, sizeof *planning->weights),
        .replicas = kvr_alloc_zero(table->count + 1, sizeof *planning->replicas),
        .last = router->plan,
        .last_replicas = router->plan_replicas,
    };
    for (uint32_t slot = 0; slot < table->end; slot++) {
        const struct kvr_replica *replica = &table->slots[slot];
        if (!replica->member || replica->administrative != KVR_READY)
            continue;
        planning->weights[planning->destinations] = replica->weight;
        planning->replicas[planning->destinations++] = replica->id;
    }
    read_keys(planning, &router->keys, now_ns);
    if (router->options.key_tokens)
        read_sizes(planning, router, now_ns);
}

void kvr_planning_deinit(struct kvr_planning *planning)
{
    kvr_free(planning->keys);
    kvr_free(planning->sizes);
    kvr_free(planning->weights);
    kvr_free(planning->replicas);
}

/* What an answer says of how warm its replica is, for a key that is moving. */
void kvr_planning_saw(struct kvr_router *router, uint64_t now_ns,
                      const struct kvr_request_record *record, const struct kvr_ending *ending)
{
    if (!router->handover || !record->routed || record->replica == KVR_NO_REPLICA ||
        ending->cached_tokens < 0 || ending->prompt_tokens <= 0)
        return;
    uint64_t id = router->replicas.slots[record->replica].id;
    double share = (double)ending->cached_tokens / (double)ending->prompt_tokens;
    for (uint32_t i = 0; i < router->plan->destinations; i++)
        if (router->plan_replicas[i] == id)
            kvr_handover_saw(router->handover, now_ns, kvr_hash32(record->routing_key), i, share);
}

/* ---- the next plan ---- */

/* Of `options`, with what depends on the number of destinations. */
static struct kvr_plan_options plan_options(const struct kvr_planning_options *options,
                                            uint32_t destinations)
{
    struct kvr_plan_options plan = options->plan;
    uint64_t slots = (uint64_t)options->slots * destinations;
    plan.slots = slots < KVR_PLAN_COPIES_MAX ? (uint32_t)slots : KVR_PLAN_COPIES_MAX;
    plan.tokens = options->tokens * destinations;
    return plan;
}

/* By destination of the last plan, its number in this one. */
static uint16_t *renumber(const struct kvr_planning *planning)
{
    if (!planning->last)
        return NULL;
    uint16_t *now = kvr_alloc(planning->last->destinations * sizeof *now);
    for (uint32_t i = 0; i < planning->last->destinations; i++) {
        now[i] = KVR_PLAN_GONE;
        for (uint32_t j = 0; j < planning->destinations && now[i] == KVR_PLAN_GONE; j++)
            if (planning->replicas[j] == planning->last_replicas[i])
                now[i] = (uint16_t)j;
    }
    return now;
}

int kvr_planning_make(const struct kvr_planning *planning,
                      const struct kvr_planning_options *options, struct kvr_next_plan *next,
                      struct kvr_error *error)
{
    *next = (struct kvr_next_plan){0};
    if (!(options->life_s >= 0) || isinf(options->life_s))
        return kvr_error_set(error, KVR_E_INVALID, "life_s is a number of 0 or more");
    if (options->handover.every == 1)
        return kvr_error_set(error, KVR_E_INVALID, "a handover warms by one request in 2 or more");
    if (!(options->tokens >= 0) || isinf(options->tokens))
        return kvr_error_set(error, KVR_E_INVALID, "tokens is a number of 0 or more");
    struct kvr_plan_options plan = plan_options(options, planning->destinations);
    uint16_t *now = renumber(planning);
    struct kvr_plan_input input = {
        .keys = planning->keys,
        .sizes = planning->sizes,
        .weights = planning->weights,
        .last = planning->last,
        .now = now,
        .keys_len = planning->keys_len,
        .destinations = planning->destinations,
    };
    struct kvr_error reason = {0};
    next->plan = kvr_plan_make(&plan, &input, &reason);
    if (next->plan) {
        kvr_plan_compare(next->plan, &input, options->life_s, &next->change);
        next->handover = kvr_handover_create(&options->handover, next->plan, &input);
    } else if (error) {
        *error = reason;
    }
    kvr_free(now);
    return next->plan ? KVR_OK : reason.code;
}

void kvr_planning_install(struct kvr_router *router, uint64_t now_ns,
                          const struct kvr_planning *planning, struct kvr_next_plan *next)
{
    struct kvr_handover *before = router->handover;
    KVR_CHECK(next->plan && next->plan->destinations == planning->destinations);
    router->handover = NULL;
    next->plan = kvr_router_install_plan(router, next->plan, planning->replicas);
    router->handover = next->handover;
    next->handover = before;
    if (router->handover)
        kvr_handover_begin(router->handover, now_ns);
}

void kvr_next_plan_deinit(struct kvr_next_plan *next)
{
    kvr_plan_destroy(next->plan);
    kvr_handover_destroy(next->handover);
}
