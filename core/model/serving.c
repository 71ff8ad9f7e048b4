#include "serving.h"

#include <string.h>

#include "memory.h"
#include "model_key.h"
#include "ranking.h"

void kvr_serving_init(struct kvr_serving *serving, uint32_t destinations_max)
{
    *serving = (struct kvr_serving){
        .served = kvr_alloc_zero(destinations_max + 1, sizeof *serving->served),
        .room = destinations_max,
    };
}

void kvr_serving_deinit(struct kvr_serving *serving)
{
    kvr_free(serving->served);
    *serving = (struct kvr_serving){0};
}

void kvr_serving_add(struct kvr_serving *serving, const struct kvr_replica *replica)
{
    KVR_CHECK(serving->destinations < serving->room);
    struct kvr_served *served = &serving->served[serving->destinations++];
    served->any = replica->any_model || !replica->models_known;
    served->count = served->any ? 0 : replica->models_count;
    for (uint32_t i = 0; i < served->count; i++)
        served->models[i] = kvr_hash32(replica->models[i]);
}

bool kvr_serving_has(const struct kvr_serving *serving, uint32_t destination, uint32_t model)
{
    const struct kvr_served *served = &serving->served[destination];
    if (served->any || model == 0)
        return true;
    for (uint32_t i = 0; i < served->count; i++)
        if (served->models[i] == model)
            return true;
    return false;
}

/* Behind the sets that there are, where it may stay. */
static const uint64_t *make_set(const struct kvr_serving *serving, struct kvr_serving_sets *sets,
                                uint32_t model)
{
    if (sets->count == sets->room) {
        sets->room = sets->room ? 2 * sets->room : 4;
        sets->bits = kvr_realloc(sets->bits, (size_t)sets->room * sets->words * sizeof *sets->bits);
    }
    uint64_t *bits = sets->bits + (size_t)sets->count * sets->words;
    memset(bits, 0, sets->words * sizeof *bits);
    for (uint32_t i = 0; i < serving->destinations; i++)
        if (kvr_serving_has(serving, i, model))
            bits[i / 64] |= UINT64_C(1) << i % 64;
    return bits;
}

/* The number of the set of a model; the same for equal ones. */
static uint32_t add_set(const struct kvr_serving *serving, struct kvr_serving_sets *sets,
                        uint32_t model)
{
    const uint64_t *last = make_set(serving, sets, model);
    uint32_t same = 0;
    while (memcmp(sets->bits + (size_t)same * sets->words, last, sets->words * sizeof *last) != 0)
        same++;
    sets->count += same == sets->count;
    return same;
}

static bool all_serve_any(const struct kvr_serving *serving)
{
    bool any = true;
    for (uint32_t i = 0; i < serving->destinations; i++)
        any &= serving->served[i].any;
    return any;
}

static bool is_everywhere(const struct kvr_serving *serving, const struct kvr_serving_sets *sets)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < sets->words; i++)
        size += (uint32_t)__builtin_popcountll(sets->bits[i]);
    return sets->count == 1 && size == serving->destinations;
}

/* Keys of one model stand together in `order`. */
static int name_sets(const struct kvr_serving *serving, const struct kvr_ranked *order,
                     uint32_t len, struct kvr_serving_sets *sets, struct kvr_error *error)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < len; i++) {
        if (i == 0 || order[i].rank != order[i - 1].rank)
            set = add_set(serving, sets, (uint32_t)order[i].rank);
        if (sets->count > KVR_PLAN_SETS_MAX)
            return kvr_error_set(error, KVR_E_LIMIT,
                                 "models are served by more than %u different sets of replicas",
                                 KVR_PLAN_SETS_MAX);
        sets->set_of[order[i].item] = (uint16_t)set;
    }
    return KVR_OK;
}

int kvr_serving_sets(const struct kvr_serving *serving, const struct kvr_plan_key *keys,
                     uint32_t len, struct kvr_serving_sets *sets, struct kvr_error *error)
{
    *sets = (struct kvr_serving_sets){.words = (serving->destinations + 63) / 64};
    if (len == 0 || all_serve_any(serving))
        return KVR_OK;
    struct kvr_ranked *order = kvr_alloc(len * sizeof *order);
    struct kvr_ranked *scratch = kvr_alloc(len * sizeof *scratch);
    sets->set_of = kvr_alloc(len * sizeof *sets->set_of);
    for (uint32_t i = 0; i < len; i++)
        order[i] = (struct kvr_ranked){kvr_model_key_model(keys[i].key), i};
    kvr_ranking_sort(order, scratch, len);
    int failed = name_sets(serving, order, len, sets, error);
    kvr_free(scratch);
    kvr_free(order);
    if (failed || is_everywhere(serving, sets))
        kvr_serving_sets_deinit(sets);
    return failed;
}

void kvr_serving_sets_deinit(struct kvr_serving_sets *sets)
{
    kvr_free(sets->bits);
    kvr_free(sets->set_of);
    *sets = (struct kvr_serving_sets){0};
}
