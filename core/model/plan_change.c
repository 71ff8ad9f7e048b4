#include "plan_change.h"

#include <math.h>

#include "memory.h"
#include "plan_parts.h"

struct comparison {
    const struct kvr_plan *next;
    const struct kvr_plan_input *input;
    struct kvr_plan_change *change;
    double *loads; /* of the last plan under these rates, by destination of the next */
    struct kvr_plan_part *parts; /* their tails: rate that the last plan does not place */
    uint32_t parts_len;
    double missed; /* tokens a unit of time that only the next plan saves, less the other way */
    double saved;  /* rate x tokens, of all keys */
    double rate;   /* of all keys */
};

/* A key that both plans have. */
static void compare_places(struct comparison *c, uint32_t item, const uint16_t *last,
                           uint32_t last_count, const uint16_t *next, uint32_t next_count)
{
    struct kvr_plan_change *change = c->change;
    double tokens = kvr_plan_size_of(c->input, item).tokens;
    uint32_t had, kept = 0;
    kvr_plan_lookup(c->input->last, c->input->keys[item].key, &had);
    for (uint32_t i = 0; i < next_count; i++)
        kept += kvr_plan_is_in(last, last_count, next[i]);
    uint32_t added = next_count - kept;
    change->keys_both++;
    change->keys_moved += added > 0 && had > kept;
    change->keys_recounted += had != next_count;
    change->kept += kept;
    change->rate_moved += c->input->keys[item].rate * added / next_count;
    change->warmup += tokens * added;
}

static void compare_key(struct comparison *c, uint32_t item)
{
    uint16_t last[KVR_REPLICAS_MAX];
    uint32_t next_count;
    uint64_t key = c->input->keys[item].key;
    double rate = c->input->keys[item].rate;
    double saved = kvr_plan_size_of(c->input, item).saved;
    uint32_t last_count = kvr_plan_last_places(c->input, item, last);
    const uint16_t *next = kvr_plan_lookup(c->next, key, &next_count);
    uint32_t had;
    kvr_plan_lookup(c->input->last, key, &had);
    for (uint32_t i = 0; i < last_count; i++)
        c->loads[last[i]] += rate / last_count;
    c->parts[kvr_plan_part_of(c->input, item)].tail += last_count ? 0 : rate;
    c->rate += rate;
    c->saved += rate * saved;
    if (next_count && had)
        compare_places(c, item, last, last_count, next, next_count);
    else if (next_count || had)
        c->missed += next_count ? rate * saved : -rate * saved;
}

/* Load of the last plan above the busiest destination of the next one, both by weight. */
static double overload(struct comparison *c)
{
    double total_weight = c->parts[c->parts_len - 1].weight;
    double sum = 0, highest_next = 0, highest = 0, over = 0;
    uint32_t destinations = c->next->destinations;
    for (uint32_t i = 0; i < destinations; i++)
        highest_next = fmax(highest_next, c->next->loads[i] / kvr_plan_weight(c->input, i));
    kvr_plan_add_tails(c->input, c->parts, c->parts_len, c->loads);
    for (uint32_t i = 0; i < destinations; i++) {
        double weight = kvr_plan_weight(c->input, i), load = c->loads[i];
        sum += load;
        highest = fmax(highest, load / weight);
        over += fmax(0, load - highest_next * weight);
    }
    c->change->last_imbalance = sum > 0 ? highest * total_weight / sum : 1;
    return over;
}

static enum kvr_plan_verdict judge(const struct kvr_plan_change *change, double life)
{
    if (change->added == 0 && change->removed == 0)
        return KVR_PLAN_SAME;
    if (life == 0 || change->staleness > change->warmup)
        return KVR_PLAN_INSTALL;
    return KVR_PLAN_NOT_WORTH;
}

/* A key of a plan that is of no model may be several keys of the next one. */
static uint32_t less(uint32_t all, uint32_t part)
{
    return all > part ? all - part : 0;
}

void kvr_plan_compare(const struct kvr_plan *next, const struct kvr_plan_input *input, double life,
                      struct kvr_plan_change *change)
{
    KVR_CHECK(next->destinations == input->destinations && life >= 0);
    *change = (struct kvr_plan_change){
        .verdict = KVR_PLAN_INSTALL,
        .added = next->copies,
        .keys_new = next->admitted,
        .last_imbalance = 1,
    };
    if (!input->last)
        return;
    struct comparison c = {.next = next, .input = input, .change = change};
    c.loads = kvr_alloc_zero(next->destinations, sizeof *c.loads);
    c.parts = kvr_plan_parts(input, &c.parts_len);
    for (uint32_t i = 0; i < input->keys_len; i++)
        compare_key(&c, i);
    change->added = next->copies - change->kept;
    change->removed = less(input->last->copies, change->kept);
    change->keys_new = next->admitted - change->keys_both;
    change->keys_gone = less(input->last->admitted, change->keys_both);
    double over = overload(&c);
    kvr_free(c.parts);
    kvr_free(c.loads);
    change->staleness = life * (c.missed + (c.rate > 0 ? over * c.saved / c.rate : 0));
    change->verdict = (uint32_t)judge(change, life);
}
