#include "plan.h"

#include <math.h>

#include "memory.h"
#include "plan_parts.h"
#include "rng.h"

/* ---- what it is made from ---- */

static bool is_amount(double value)
{
    return value >= 0 && !isinf(value); /* NaN is none */
}

static int check_options(const struct kvr_plan_options *o, struct kvr_error *error)
{
    const struct {
        const char *name;
        double value;
    } amounts[] = {{"q_cap", o->q_cap},
                   {"phi", o->phi},
                   {"tokens", o->tokens},
                   {"theta", o->theta},
                   {"loyalty", o->loyalty},
                   {"residency", o->residency},
                   {"move_budget", o->move_budget}};
    for (uint32_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++)
        if (!is_amount(amounts[i].value))
            return kvr_error_set(error, KVR_E_INVALID, "%s is a number of 0 or more",
                                 amounts[i].name);
    if (o->move_budget > 1)
        return kvr_error_set(error, KVR_E_INVALID, "move_budget is a share of all rate, 0 to 1");
    if (o->loyalty > 0 && o->loyalty < 1)
        return kvr_error_set(error, KVR_E_INVALID, "loyalty is 1 or more, or 0: off");
    return KVR_OK;
}

static int check_numbers(const struct kvr_plan_input *in, struct kvr_error *error)
{
    for (uint32_t i = 0; in->weights && i < in->destinations; i++)
        if (!(in->weights[i] > 0) || isinf(in->weights[i]))
            return kvr_error_set(error, KVR_E_INVALID, "weight of destination %u is not above 0",
                                 i);
    for (uint32_t i = 0; i < in->keys_len; i++)
        if (!(in->keys[i].rate >= 0 && in->keys[i].rate <= KVR_PLAN_RATE_MAX))
            return kvr_error_set(error, KVR_E_INVALID, "rate of key %u is no number from 0 to %g",
                                 i, KVR_PLAN_RATE_MAX);
    for (uint32_t i = 0; in->sizes && i < in->keys_len; i++)
        if (!(in->sizes[i].tokens > 0) || isinf(in->sizes[i].tokens) ||
            !is_amount(in->sizes[i].saved))
            return kvr_error_set(error, KVR_E_INVALID, "size of key %u is not above 0", i);
    if (!is_amount(in->counted))
        return kvr_error_set(error, KVR_E_INVALID, "counted is a time of 0 or more");
    return KVR_OK;
}

static int check_sets(const struct kvr_plan_input *in, struct kvr_error *error)
{
    if (!in->sets)
        return KVR_OK;
    if (in->sets_len > KVR_PLAN_SETS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "a plan is of at most %u sets, not %u",
                             KVR_PLAN_SETS_MAX, in->sets_len);
    for (uint32_t i = 0; i < in->keys_len; i++)
        KVR_CHECK(in->set_of[i] < in->sets_len);
    return KVR_OK;
}

static int check_input(const struct kvr_plan_options *options, const struct kvr_plan_input *in,
                       struct kvr_error *error)
{
    if (in->destinations < 1 || in->destinations > KVR_REPLICAS_MAX)
        return kvr_error_set(error, KVR_E_INVALID, "a plan has 1 to %u destinations, not %u",
                             KVR_REPLICAS_MAX, in->destinations);
    if (in->keys_len > KVR_PLAN_KEYS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "a plan is of at most %u keys, not %u",
                             KVR_PLAN_KEYS_MAX, in->keys_len);
    int failed = check_options(options, error);
    if (!failed)
        failed = check_numbers(in, error);
    return failed ? failed : check_sets(in, error);
}

uint32_t kvr_plan_last_places(const struct kvr_plan_input *input, uint32_t item,
                              uint16_t places[KVR_REPLICAS_MAX])
{
    uint32_t count, left = 0, part = kvr_plan_part_of(input, item);
    const uint16_t *assigned = kvr_plan_lookup(input->last, input->keys[item].key, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t place = input->now ? input->now[assigned[i]] : assigned[i];
        if (place == KVR_PLAN_GONE)
            continue;
        KVR_CHECK(place < input->destinations);
        if (kvr_plan_has(input, part, place))
            places[left++] = place;
    }
    return left;
}

/* ---- the table ---- */

/* Where the key is, or would be. */
static struct kvr_plan_entry *find(const struct kvr_plan *plan, uint64_t key)
{
    uint32_t at = (uint32_t)kvr_mix64(key) & plan->table_mask;
    while (plan->table[at].count && plan->table[at].key != key)
        at = (at + 1) & plan->table_mask;
    return &plan->table[at];
}

int kvr_plan_index(struct kvr_plan *plan, struct kvr_error *error)
{
    uint32_t size = 8;
    while (size / 3 * 2 < plan->admitted)
        size *= 2;
    plan->table = kvr_alloc_zero(size, sizeof *plan->table);
    plan->table_mask = size - 1;
    for (uint32_t i = 0; i < plan->admitted; i++) {
        struct kvr_plan_entry *entry = find(plan, plan->entries[i].key);
        if (entry->count)
            return kvr_error_set(error, KVR_E_EXISTS, "key %016llx is there twice",
                                 (unsigned long long)entry->key);
        *entry = plan->entries[i];
    }
    return KVR_OK;
}

/* ---- the whole of it ---- */

static void sum_up(struct kvr_plan_draft *p)
{
    p->parts = kvr_plan_parts(p->input, &p->parts_len);
    p->total_weight = p->parts[p->parts_len - 1].weight;
    for (uint32_t i = 0; i < p->input->keys_len; i++)
        p->rate += p->input->keys[i].rate;
}

static void measure_balance(struct kvr_plan_draft *p)
{
    struct kvr_plan *plan = p->plan;
    double highest = 0, sum = 0;
    for (uint32_t i = 0; i < plan->destinations; i++) {
        highest = fmax(highest, plan->loads[i] / kvr_plan_weight(p->input, i));
        sum += plan->loads[i];
    }
    plan->imbalance = sum > 0 ? highest * p->total_weight / sum : 1;
}

struct kvr_plan *kvr_plan_make(const struct kvr_plan_options *options,
                               const struct kvr_plan_input *input, struct kvr_error *error)
{
    if (check_input(options, input, error))
        return NULL;
    struct kvr_plan *plan = kvr_alloc_zero(1, sizeof *plan);
    plan->destinations = input->destinations;
    plan->key_mask = UINT64_MAX;
    struct kvr_plan_draft p = {.options = options, .input = input, .plan = plan};
    sum_up(&p);
    kvr_plan_admit(&p);
    plan->loads = kvr_alloc_zero(plan->destinations, sizeof *plan->loads);
    plan->entries = kvr_alloc_zero(plan->admitted + 1, sizeof *plan->entries);
    plan->assigned = kvr_alloc_zero(plan->copies + 1, sizeof *plan->assigned);
    kvr_plan_place(&p);
    measure_balance(&p);
    kvr_free(p.parts);
    kvr_free(p.order);
    kvr_free(p.had);
    if (kvr_plan_index(plan, error)) {
        kvr_plan_destroy(plan);
        return NULL;
    }
    return plan;
}

struct kvr_plan *kvr_plan_create(const struct kvr_plan_options *options,
                                 const struct kvr_plan_key *keys, uint32_t keys_len,
                                 const double *weights, uint32_t destinations,
                                 struct kvr_error *error)
{
    const struct kvr_plan_input input = {
        .keys = keys, .weights = weights, .keys_len = keys_len, .destinations = destinations};
    return kvr_plan_make(options, &input, error);
}

struct kvr_plan *kvr_plan_of(const struct kvr_plan_entry *entries, uint32_t entries_len,
                             const uint16_t *assigned, uint32_t destinations,
                             struct kvr_error *error)
{
    struct kvr_plan *plan = kvr_alloc_zero(1, sizeof *plan);
    *plan = (struct kvr_plan){.key_mask = UINT64_MAX,
                              .keys = entries_len,
                              .admitted = entries_len,
                              .destinations = destinations,
                              .imbalance = 1};
    plan->loads = kvr_alloc_zero(destinations + 1, sizeof *plan->loads);
    plan->entries = kvr_alloc(entries_len * sizeof *plan->entries + 1);
    for (uint32_t i = 0; i < entries_len; i++) {
        KVR_CHECK(entries[i].count > 0);
        plan->entries[i] = entries[i];
        plan->entries[i].first = plan->copies;
        plan->copies += entries[i].count;
        plan->split += entries[i].count > 1;
    }
    plan->assigned = kvr_alloc(plan->copies * sizeof *plan->assigned + 1);
    for (uint32_t i = 0; i < entries_len; i++)
        for (uint32_t copy = 0; copy < entries[i].count; copy++) {
            KVR_CHECK(assigned[entries[i].first + copy] < destinations);
            plan->assigned[plan->entries[i].first + copy] = assigned[entries[i].first + copy];
        }
    if (kvr_plan_index(plan, error)) {
        kvr_plan_destroy(plan);
        return NULL;
    }
    return plan;
}

void kvr_plan_destroy(struct kvr_plan *plan)
{
    if (!plan)
        return;
    kvr_free(plan->entries);
    kvr_free(plan->table);
    kvr_free(plan->assigned);
    kvr_free(plan->loads);
    kvr_free(plan);
}

void kvr_plan_prefetch(const struct kvr_plan *plan, uint64_t key)
{
    key &= plan->key_mask;
    __builtin_prefetch(&plan->table[(uint32_t)kvr_mix64(key) & plan->table_mask]);
    __asm__ volatile(""); /* or GCC drops a call that does nothing else */
}

const uint16_t *kvr_plan_lookup(const struct kvr_plan *plan, uint64_t key, uint32_t *count)
{
    const struct kvr_plan_entry *entry = find(plan, key & plan->key_mask);
    *count = entry->count;
    return entry->count ? plan->assigned + entry->first : NULL;
}
