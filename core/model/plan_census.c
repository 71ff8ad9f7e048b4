#include "plan_census.h"

#include "memory.h"
#include "model_key.h"
#include "ranking.h"

/* Of a model, whose entries are these. `last_of` has for each destination the model's number that
 * was seen there last. */
static struct kvr_plan_census_model count_model(const struct kvr_plan *plan,
                                                const struct kvr_ranked *order, uint32_t len,
                                                uint32_t *last_of, uint32_t number)
{
    struct kvr_plan_census_model model = {.model = (uint32_t)order[0].rank, .keys = len};
    for (uint32_t i = 0; i < len; i++) {
        const struct kvr_plan_entry *entry = &plan->entries[order[i].item];
        model.copies += entry->count;
        for (uint32_t copy = 0; copy < entry->count; copy++) {
            uint32_t *last = &last_of[plan->assigned[entry->first + copy]];
            model.destinations += *last != number;
            *last = number;
        }
    }
    return model;
}

/* Among those with the most keys, as far as there is room; equals stay as they come. */
static void insert(struct kvr_plan_census *census, const struct kvr_plan_census_model *model)
{
    uint32_t at = census->models_len;
    if (at < KVR_PLAN_CENSUS_MODELS)
        census->models_len++;
    else if (census->models[--at].keys >= model->keys)
        return;
    for (; at > 0 && census->models[at - 1].keys < model->keys; at--)
        census->models[at] = census->models[at - 1];
    census->models[at] = *model;
}

static void count_models(struct kvr_plan_census *census, const struct kvr_plan *plan)
{
    uint32_t len = plan->admitted;
    struct kvr_ranked *order = kvr_alloc(len * sizeof *order + 1);
    struct kvr_ranked *scratch = kvr_alloc(len * sizeof *scratch + 1);
    uint32_t *last_of = kvr_alloc_zero(plan->destinations, sizeof *last_of);
    for (uint32_t i = 0; i < len; i++)
        order[i] = (struct kvr_ranked){kvr_model_key_model(plan->entries[i].key), i};
    kvr_ranking_sort(order, scratch, len);
    for (uint32_t first = 0, end; first < len; first = end) {
        for (end = first + 1; end < len && order[end].rank == order[first].rank;)
            end++;
        struct kvr_plan_census_model model =
            count_model(plan, order + first, end - first, last_of, ++census->models_all);
        insert(census, &model);
    }
    kvr_free(last_of);
    kvr_free(scratch);
    kvr_free(order);
}

void kvr_plan_census_init(struct kvr_plan_census *census, const struct kvr_plan *plan)
{
    *census = (struct kvr_plan_census){
        .placed = kvr_alloc_zero(plan->destinations, sizeof *census->placed),
    };
    for (uint32_t i = 0; i < plan->copies; i++)
        census->placed[plan->assigned[i]]++;
    if (plan->key_mask == UINT64_MAX)
        count_models(census, plan);
}

void kvr_plan_census_deinit(struct kvr_plan_census *census)
{
    kvr_free(census->placed);
    *census = (struct kvr_plan_census){0};
}
