#include "plan.h"

#include <math.h>
#include <stdbool.h>

#include "memory.h"
#include "ranking.h"
#include "replica.h"
#include "rng.h"

struct place {
    double load; /* so far */
    uint32_t destination;
};

/* Destinations of one weight, as a heap: the least loaded first, ties by number. */
struct tier {
    double weight;
    struct place *heap;
    uint32_t len;
};

struct planner {
    const struct kvr_plan_options *options;
    const struct kvr_plan_key *keys;
    struct kvr_ranked *order; /* keys_len; `item` is the index of a key */
    struct kvr_ranked *scratch;
    struct kvr_plan *plan;
    struct tier *tiers; /* by rising lowest number */
    uint32_t tiers_len;
    struct place *heaps; /* of all tiers, one after another */
    struct {
        struct place place;
        struct tier *from;
    } * taken; /* by copy of the key at hand */
    double total_weight;
};

static int check_input(const struct kvr_plan_options *options, const struct kvr_plan_key *keys,
                       uint32_t keys_len, const double *weights, uint32_t destinations,
                       struct kvr_error *error)
{
    if (destinations < 1 || destinations > KVR_REPLICAS_MAX)
        return kvr_error_set(error, KVR_E_INVALID, "a plan has 1 to %u destinations, not %u",
                             KVR_REPLICAS_MAX, destinations);
    if (keys_len > KVR_PLAN_KEYS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "a plan is of at most %u keys, not %u",
                             KVR_PLAN_KEYS_MAX, keys_len);
    if (!(options->q_cap >= 0) || isinf(options->q_cap))
        return kvr_error_set(error, KVR_E_INVALID, "q_cap is a number of 0 or more");
    for (uint32_t i = 0; weights && i < destinations; i++)
        if (!(weights[i] > 0) || isinf(weights[i]))
            return kvr_error_set(error, KVR_E_INVALID, "weight of destination %u is not above 0",
                                 i);
    for (uint32_t i = 0; i < keys_len; i++)
        if (!(keys[i].rate >= 0) || isinf(keys[i].rate))
            return kvr_error_set(error, KVR_E_INVALID, "rate of key %u is no number of 0 or more",
                                 i);
    return KVR_OK;
}

/* ---- order and admission ---- */

static void order_keys(struct planner *p, uint32_t len)
{
    struct kvr_ranked *order = p->order;
    for (uint32_t i = 0; i < len; i++)
        order[i] = (struct kvr_ranked){kvr_ranking_falling(p->keys[i].rate), i};
    kvr_ranking_sort(order, p->scratch, len);
    for (uint32_t first = 0, end; first < len; first = end) {
        uint64_t rank = order[first].rank;
        for (end = first + 1; end < len && order[end].rank == rank;)
            end++;
        if (end - first == 1)
            continue;
        for (uint32_t i = first; i < end; i++)
            order[i].rank = p->keys[order[i].item].key;
        kvr_ranking_sort(order + first, p->scratch, end - first);
    }
}

static uint32_t copies_of(const struct planner *p, double rate)
{
    uint32_t most = p->plan->destinations;
    if (p->options->q_cap == 0)
        return 1;
    double copies = ceil(rate / p->options->q_cap);
    return copies <= 1 ? 1 : copies >= most ? most : (uint32_t)copies;
}

/* Leaves the admitted keys first in `order`, in their order, and their number of copies in `rank`.
 */
static void admit(struct planner *p, uint32_t len)
{
    struct kvr_plan *plan = p->plan;
    uint32_t slots = p->options->slots, used = 0;
    if (slots == 0 || slots > KVR_PLAN_COPIES_MAX)
        slots = KVR_PLAN_COPIES_MAX;
    bool over = false;
    for (uint32_t i = 0; i < len; i++) {
        uint32_t item = p->order[i].item;
        double rate = p->keys[item].rate;
        uint32_t copies = copies_of(p, rate);
        bool fits = copies <= slots - used;
        over |= !fits && !p->options->skip;
        if (over || !fits) {
            plan->tail_rate += rate;
            continue;
        }
        used += copies;
        plan->admitted_rate += rate;
        plan->split += copies > 1;
        p->order[plan->admitted++] = (struct kvr_ranked){copies, item};
    }
    plan->keys = len;
    plan->copies = used;
}

/* ---- placement ---- */

/* Without a branch: which of two comes first is as good as random. */
static bool goes_before(const struct place *a, const struct place *b)
{
    return (a->load < b->load) | ((a->load == b->load) & (a->destination < b->destination));
}

/* Puts `place` where it belongs, from the top down; the top is free. */
static void sink(struct tier *tier, struct place place)
{
    struct place *heap = tier->heap;
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < tier->len; at = child) {
        if (child + 1 < tier->len)
            child += goes_before(&heap[child + 1], &heap[child]);
        if (!goes_before(&heap[child], &place))
            break;
        heap[at] = heap[child];
    }
    heap[at] = place;
}

static struct place pop(struct tier *tier)
{
    struct place least = tier->heap[0];
    tier->len--;
    sink(tier, tier->heap[tier->len]);
    return least;
}

static void push(struct tier *tier, struct place place)
{
    struct place *heap = tier->heap;
    uint32_t at = tier->len++;
    for (; at > 0 && goes_before(&place, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = place;
}

/* Tier whose least loaded destination is the best for a copy of that load. */
static uint32_t best_tier(const struct planner *p, double load)
{
    uint32_t best = UINT32_MAX;
    double least = 0;
    for (uint32_t i = 0; i < p->tiers_len; i++) {
        const struct tier *tier = &p->tiers[i];
        if (tier->len == 0)
            continue;
        double with = (tier->heap[0].load + load) / tier->weight;
        if (best == UINT32_MAX || with < least ||
            (with == least && tier->heap[0].destination < p->tiers[best].heap[0].destination)) {
            best = i;
            least = with;
        }
    }
    KVR_CHECK(best != UINT32_MAX);
    return best;
}

static struct tier *tier_for(const struct planner *p, double load)
{
    return &p->tiers[p->tiers_len == 1 ? 0 : best_tier(p, load)];
}

/* All are taken before any comes back, so that they are distinct. */
static void place_copies(struct planner *p, uint16_t *assigned, uint32_t count, double load)
{
    for (uint32_t i = 0; i < count; i++) {
        p->taken[i].from = tier_for(p, load);
        p->taken[i].place = pop(p->taken[i].from);
        assigned[i] = (uint16_t)p->taken[i].place.destination;
    }
    for (uint32_t i = 0; i < count; i++) {
        p->taken[i].place.load += load;
        push(p->taken[i].from, p->taken[i].place);
    }
}

/* The same for one, which need not leave the heap. */
static void place_one(struct planner *p, uint16_t *assigned, double load)
{
    struct tier *tier = tier_for(p, load);
    struct place place = tier->heap[0];
    *assigned = (uint16_t)place.destination;
    place.load += load;
    sink(tier, place);
}

static double weight_of(const double *weights, uint32_t destination)
{
    return weights ? weights[destination] : 1;
}

static void make_tiers(struct planner *p, const double *weights)
{
    uint32_t destinations = p->plan->destinations, used = 0;
    for (uint32_t i = 0; i < destinations; i++)
        p->total_weight += weight_of(weights, i);
    for (uint32_t first = 0; first < destinations; first++) {
        double weight = weight_of(weights, first);
        bool known = false;
        for (uint32_t i = 0; i < p->tiers_len && !known; i++)
            known = p->tiers[i].weight == weight;
        if (known)
            continue;
        struct tier *tier = &p->tiers[p->tiers_len++];
        *tier = (struct tier){weight, p->heaps + used, 0};
        double load = p->plan->tail_rate * weight / p->total_weight;
        for (uint32_t i = first; i < destinations; i++)
            if (weight_of(weights, i) == weight)
                tier->heap[tier->len++] = (struct place){load, i}; /* a heap: equally loaded */
        used += tier->len;
    }
}

static void place_all(struct planner *p, const double *weights)
{
    struct kvr_plan *plan = p->plan;
    make_tiers(p, weights);
    uint32_t first = 0;
    for (uint32_t i = 0; i < plan->admitted; i++) {
        const struct kvr_plan_key *key = &p->keys[p->order[i].item];
        plan->entries[i] = (struct kvr_plan_entry){key->key, first, (uint32_t)p->order[i].rank};
        uint32_t count = plan->entries[i].count;
        if (count == 1)
            place_one(p, plan->assigned + first, key->rate);
        else
            place_copies(p, plan->assigned + first, count, key->rate / count);
        first += count;
    }
    KVR_CHECK(first == plan->copies);
    for (uint32_t i = 0; i < plan->destinations; i++)
        plan->loads[p->heaps[i].destination] = p->heaps[i].load;
    double highest = 0, sum = 0;
    for (uint32_t i = 0; i < plan->destinations; i++) {
        highest = fmax(highest, plan->loads[i] / weight_of(weights, i));
        sum += plan->loads[i];
    }
    plan->imbalance = sum > 0 ? highest * p->total_weight / sum : 1;
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

static int index_entries(struct kvr_plan *plan, struct kvr_error *error)
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

struct kvr_plan *kvr_plan_create(const struct kvr_plan_options *options,
                                 const struct kvr_plan_key *keys, uint32_t keys_len,
                                 const double *weights, uint32_t destinations,
                                 struct kvr_error *error)
{
    const struct kvr_plan_input input = {
        .keys = keys, .weights = weights, .keys_len = keys_len, .destinations = destinations};
    return kvr_plan_make(options, &input, error);
}

struct kvr_plan *kvr_plan_make(const struct kvr_plan_options *options,
                               const struct kvr_plan_input *input, struct kvr_error *error)
{
    const struct kvr_plan_key *keys = input->keys;
    const double *weights = input->weights;
    uint32_t keys_len = input->keys_len, destinations = input->destinations;
    if (check_input(options, keys, keys_len, weights, destinations, error))
        return NULL;
    struct kvr_plan *plan = kvr_alloc_zero(1, sizeof *plan);
    plan->destinations = destinations;
    struct planner p = {.options = options, .keys = keys, .plan = plan};
    p.order = kvr_alloc_zero(keys_len + 1, sizeof *p.order);
    p.scratch = kvr_alloc_zero(keys_len + 1, sizeof *p.scratch);
    order_keys(&p, keys_len);
    kvr_free(p.scratch);
    admit(&p, keys_len);
    p.tiers = kvr_alloc_zero(destinations, sizeof *p.tiers);
    p.heaps = kvr_alloc_zero(destinations, sizeof *p.heaps);
    p.taken = kvr_alloc_zero(destinations, sizeof *p.taken);
    plan->loads = kvr_alloc_zero(destinations, sizeof *plan->loads);
    plan->entries = kvr_alloc_zero(plan->admitted + 1, sizeof *plan->entries);
    plan->assigned = kvr_alloc_zero(plan->copies + 1, sizeof *plan->assigned);
    place_all(&p, weights);
    kvr_free(p.taken);
    kvr_free(p.heaps);
    kvr_free(p.tiers);
    kvr_free(p.order);
    if (index_entries(plan, error)) {
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

const uint16_t *kvr_plan_lookup(const struct kvr_plan *plan, uint64_t key, uint32_t *count)
{
    const struct kvr_plan_entry *entry = find(plan, key);
    *count = entry->count;
    return entry->count ? plan->assigned + entry->first : NULL;
}
