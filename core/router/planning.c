#include "planning.h"

#include <math.h>
#include <string.h>

#include "memory.h"
#include "plan_file.h"
#include "ranking.h"

static void copy_last(struct kvr_planning *planning, const struct kvr_router *router)
{
    planning->last = router->plan;
    if (!router->plan)
        return;
    size_t bytes = router->plan->destinations * sizeof *planning->last_replicas;
    planning->last_replicas = kvr_alloc(bytes);
    memcpy(planning->last_replicas, router->plan_replicas, bytes);
}

void kvr_planning_begin(struct kvr_planning *planning, const struct kvr_router *router,
                        uint64_t now_ns)
{
    const struct kvr_replica_table *table = &router->replicas;
    double covered_s = (double)kvr_window_covered_ns(&router->keys, now_ns) / 1e9;
    *planning = (struct kvr_planning){
        .weights = kvr_alloc_zero(table->count + 1, sizeof *planning->weights),
        .replicas = kvr_alloc_zero(table->count + 1, sizeof *planning->replicas),
        .window_s = fmax(covered_s, KVR_PLANNING_COUNTED_MIN_S),
        .counts = kvr_alloc(router->keys.cells_max * sizeof *planning->counts),
        .tokens = router->options.key_tokens
                      ? kvr_alloc(router->keys.cells_max * sizeof *planning->tokens)
                      : NULL,
        .now_ns = now_ns,
    };
    copy_last(planning, router);
    kvr_serving_init(&planning->serving, table->count);
    for (uint32_t slot = 0; slot < table->end; slot++) {
        const struct kvr_replica *replica = &table->slots[slot];
        if (!replica->member || replica->administrative != KVR_READY)
            continue;
        kvr_serving_add(&planning->serving, replica);
        planning->weights[planning->destinations] = replica->weight;
        planning->replicas[planning->destinations++] = replica->id;
    }
}

bool kvr_planning_read(struct kvr_planning *planning, const struct kvr_router *router,
                       uint32_t cells)
{
    uint32_t room = router->keys.cells_max - planning->counts_len, before = planning->counts_len;
    planning->counts_len +=
        kvr_window_keys(&router->keys, planning->now_ns, &planning->cursor,
                        planning->counts + planning->counts_len, cells < room ? cells : room);
    for (uint32_t i = before; planning->tokens && i < planning->counts_len; i++)
        planning->tokens[i] =
            kvr_window_count(&router->key_tokens, planning->now_ns, planning->counts[i].key);
    return planning->cursor && planning->counts_len < router->keys.cells_max;
}

/* A key that went and came back between two pieces may be there twice. */
static void drop_twins(struct kvr_planning *planning)
{
    uint32_t len = planning->counts_len, kept = 0;
    struct kvr_ranked *order = kvr_alloc((size_t)len * sizeof *order + 1);
    struct kvr_ranked *scratch = kvr_alloc((size_t)len * sizeof *scratch + 1);
    for (uint32_t i = 0; i < len; i++)
        order[i] = (struct kvr_ranked){planning->counts[i].key, i};
    kvr_ranking_sort(order, scratch, len);
    for (uint32_t i = 0; i < len; i++)
        if (i > 0 && order[i].rank == order[i - 1].rank)
            planning->counts[order[i].item].count = 0;
    for (uint32_t i = 0; i < len; i++) {
        if (!planning->counts[i].count)
            continue;
        if (planning->tokens)
            planning->tokens[kept] = planning->tokens[i];
        planning->counts[kept++] = planning->counts[i];
    }
    planning->counts_len = kept;
    kvr_free(order);
    kvr_free(scratch);
}

/* Of each key, the mean of its prompts, which are taken to be all prefix. */
static void make_sizes(struct kvr_planning *planning)
{
    planning->sizes = kvr_alloc(planning->keys_len * sizeof *planning->sizes + 1);
    for (uint32_t i = 0; i < planning->keys_len; i++) {
        double tokens = (double)planning->tokens[i];
        double mean = tokens > 0 ? tokens / (double)planning->counts[i].count : 1;
        planning->sizes[i] = (struct kvr_plan_size){mean, mean};
    }
    kvr_free(planning->tokens);
    planning->tokens = NULL;
}

static void make_rates(struct kvr_planning *planning)
{
    planning->keys_len = planning->counts_len;
    planning->keys = kvr_alloc(planning->keys_len * sizeof *planning->keys + 1);
    for (uint32_t i = 0; i < planning->keys_len; i++)
        planning->keys[i] = (struct kvr_plan_key){
            planning->counts[i].key, (double)planning->counts[i].count / planning->window_s};
    if (planning->tokens)
        make_sizes(planning);
    kvr_free(planning->counts);
    planning->counts = NULL;
}

void kvr_planning_finish(struct kvr_planning *planning)
{
    drop_twins(planning);
    make_rates(planning);
}

void kvr_planning_init(struct kvr_planning *planning, const struct kvr_router *router,
                       uint64_t now_ns)
{
    kvr_planning_begin(planning, router, now_ns);
    (void)kvr_planning_read(planning, router, router->keys.cells_max);
    make_rates(planning);
}

void kvr_planning_deinit(struct kvr_planning *planning)
{
    kvr_free(planning->counts);
    kvr_free(planning->tokens);
    kvr_free(planning->last_replicas);
    kvr_plan_destroy(planning->bare);
    kvr_serving_deinit(&planning->serving);
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
            kvr_handover_saw(router->handover, now_ns, record->model_key, i, share);
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

static struct kvr_plan_input input_of(const struct kvr_planning *planning, const uint16_t *now,
                                      const struct kvr_serving_sets *sets)
{
    return (struct kvr_plan_input){
        .keys = planning->keys,
        .sizes = planning->sizes,
        .weights = planning->weights,
        .last = planning->bare ? planning->bare : planning->last,
        .now = now,
        .sets = sets->bits,
        .set_of = sets->set_of,
        .sets_len = sets->count,
        .keys_len = planning->keys_len,
        .destinations = planning->destinations,
        .counted = planning->window_s,
    };
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
    struct kvr_serving_sets sets;
    int failed =
        kvr_serving_sets(&planning->serving, planning->keys, planning->keys_len, &sets, error);
    if (failed)
        return failed;
    struct kvr_plan_options plan = plan_options(options, planning->destinations);
    uint16_t *now = renumber(planning);
    const struct kvr_plan_input input = input_of(planning, now, &sets);
    struct kvr_error reason = {0};
    next->plan = kvr_plan_make(&plan, &input, &reason);
    if (next->plan) {
        kvr_plan_compare(next->plan, &input, options->life_s, &next->change);
        next->handover = kvr_handover_create(&options->handover, next->plan, &input);
    } else if (error) {
        *error = reason;
    }
    kvr_free(now);
    kvr_serving_sets_deinit(&sets);
    return next->plan ? KVR_OK : reason.code;
}

/* For a plan of keys whatever their model: the last one in the same terms. Where it has a key under
 * two models there is no such thing, and the next one is all new. */
static void bare_last(struct kvr_planning *planning)
{
    const struct kvr_plan *last = planning->last;
    struct kvr_plan_entry *entries = kvr_alloc(last->admitted * sizeof *entries + 1);
    for (uint32_t i = 0; i < last->admitted; i++) {
        entries[i] = last->entries[i];
        entries[i].key &= KVR_MODEL_KEY_ROUTING;
    }
    planning->bare = kvr_plan_of(entries, last->admitted, last->assigned, last->destinations, NULL);
    kvr_free(entries);
}

int kvr_planning_load(struct kvr_planning *planning, const struct kvr_planning_options *options,
                      struct kvr_slice text, struct kvr_next_plan *next, struct kvr_error *error)
{
    const struct kvr_plan_fleet fleet = {planning->replicas, planning->weights, &planning->serving,
                                         planning->destinations};
    struct kvr_serving_sets sets = {0};
    struct kvr_error reason = {0};
    *next = (struct kvr_next_plan){0};
    kvr_free(planning->keys);
    planning->keys = NULL;
    next->plan = kvr_plan_read(text, &fleet, &planning->keys, &next->version, &reason);
    if (next->plan && kvr_serving_sets(&planning->serving, planning->keys, next->plan->admitted,
                                       &sets, &reason)) {
        kvr_plan_destroy(next->plan);
        next->plan = NULL;
    }
    if (!next->plan) {
        if (error)
            *error = reason;
        return reason.code;
    }
    planning->keys_len = next->plan->admitted;
    planning->window_s = 0;
    if (planning->last && next->plan->key_mask == KVR_MODEL_KEY_ROUTING)
        bare_last(planning);
    uint16_t *now = renumber(planning);
    const struct kvr_plan_input input = input_of(planning, now, &sets);
    kvr_plan_compare(next->plan, &input, 0, &next->change);
    next->handover = kvr_handover_create(&options->handover, next->plan, &input);
    kvr_free(now);
    kvr_serving_sets_deinit(&sets);
    return KVR_OK;
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
