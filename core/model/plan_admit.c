/* Which keys a plan has, and with how many copies. */
#include <math.h>

#include "memory.h"
#include "plan_parts.h"
#include "real.h"

/* Most load of one copy; 0: no limit. */
static double cap_of(const struct kvr_plan_draft *p)
{
    double fair = p->options->phi * p->rate / p->plan->destinations;
    return p->options->q_cap > 0 && fair > 0 ? fmin(p->options->q_cap, fair)
                                             : fmax(p->options->q_cap, fair);
}

static uint32_t copies_at(const struct kvr_plan_draft *p, double rate, double cap)
{
    uint32_t most = p->plan->destinations;
    if (cap == 0)
        return 1;
    double copies = ceil(rate / cap);
    return copies <= 1 ? 1 : copies >= most ? most : (uint32_t)copies;
}

/* A key of the last plan keeps its number as long as that is right for some rate within theta. */
static uint32_t copies_of(const struct kvr_plan_draft *p, uint32_t item, double cap)
{
    double rate = p->input->keys[item].rate, slack = 1 + p->options->theta;
    if (!p->had || p->had[item] == 0)
        return copies_at(p, rate, cap);
    uint32_t least = copies_at(p, rate / slack, cap), most = copies_at(p, rate * slack, cap);
    return p->had[item] < least ? least : p->had[item] > most ? most : p->had[item];
}

/* What the order of admission goes by; `loyalty` is for those that were there. */
static double worth(const struct kvr_plan_draft *p, uint32_t item, double cap)
{
    const struct kvr_plan_options *o = p->options;
    double rate = p->input->keys[item].rate, worth = rate;
    if (o->tokens > 0) {
        struct kvr_plan_size size = kvr_plan_size_of(p->input, item);
        double copies = copies_of(p, item, cap);
        double gain = 1, seen = rate * size.saved / size.tokens * o->residency;
        if (o->residency > 0)
            gain = kvr_real_exp(-seen / p->plan->destinations) - kvr_real_exp(-seen / copies);
        worth = rate * size.saved * gain / (copies * size.tokens);
    }
    return o->loyalty > 1 && p->had && p->had[item] ? worth * o->loyalty : worth;
}

/* By rising rank, equal ranks by rising key. */
static void sort(struct kvr_plan_draft *p, struct kvr_ranked *order, uint32_t len)
{
    kvr_ranking_sort(order, p->scratch, len);
    for (uint32_t first = 0, end; first < len; first = end) {
        uint64_t rank = order[first].rank;
        for (end = first + 1; end < len && order[end].rank == rank;)
            end++;
        if (end - first == 1)
            continue;
        for (uint32_t i = first; i < end; i++)
            order[i].rank = p->input->keys[order[i].item].key;
        kvr_ranking_sort(order + first, p->scratch, end - first);
    }
}

/* Tokens of the destination that has most of them: what does not fit there is warm nowhere. */
static double largest_part(const struct kvr_plan_draft *p)
{
    double most = 0;
    for (uint32_t i = 0; i < p->input->destinations; i++)
        most = fmax(most, kvr_plan_weight(p->input, i));
    return p->options->tokens * most / p->total_weight;
}

/* Leaves the admitted keys first in `order`, in their order. */
static void take(struct kvr_plan_draft *p, uint32_t len, double cap)
{
    struct kvr_plan *plan = p->plan;
    const struct kvr_plan_options *o = p->options;
    bool over = false, by_size = o->tokens > 0;
    uint32_t slots = o->slots;
    double tokens = 0, part = largest_part(p);
    if (slots == 0 || slots > KVR_PLAN_COPIES_MAX)
        slots = KVR_PLAN_COPIES_MAX;
    for (uint32_t i = 0; i < len; i++) {
        uint32_t item = p->order[i].item;
        double rate = p->input->keys[item].rate;
        uint32_t copies = copies_of(p, item, cap);
        double one = kvr_plan_size_of(p->input, item).tokens, size = by_size ? copies * one : 0;
        bool fits = copies <= slots - plan->copies &&
                    (!by_size || (one <= part && tokens + size <= o->tokens));
        over |= !fits && !o->skip && !by_size;
        if (over || !fits) {
            plan->tail_rate += rate;
            continue;
        }
        plan->copies += copies;
        tokens += size;
        plan->admitted_rate += rate;
        plan->split += copies > 1;
        p->order[plan->admitted++].item = item;
    }
}

/* How many copies the last plan has of each key, where they may stay. */
static void look_back(struct kvr_plan_draft *p)
{
    const struct kvr_plan_input *in = p->input;
    uint16_t places[KVR_REPLICAS_MAX];
    p->had = kvr_alloc(in->keys_len * sizeof *p->had + 1);
    for (uint32_t i = 0; i < in->keys_len; i++)
        p->had[i] = (uint16_t)kvr_plan_last_places(in, in->keys[i].key, places);
}

void kvr_plan_admit(struct kvr_plan_draft *p)
{
    uint32_t len = p->input->keys_len;
    bool keep = p->options->keep && p->input->last;
    double cap = cap_of(p);
    if (keep)
        look_back(p);
    p->order = kvr_alloc_zero(len + 1, sizeof *p->order);
    p->scratch = kvr_alloc_zero(len + 1, sizeof *p->scratch);
    for (uint32_t i = 0; i < len; i++)
        p->order[i] = (struct kvr_ranked){kvr_ranking_falling(worth(p, i, cap)), i};
    sort(p, p->order, len);
    take(p, len, cap);
    uint32_t admitted = p->plan->admitted;
    if (p->options->tokens > 0 || (keep && p->options->loyalty > 1)) {
        for (uint32_t i = 0; i < admitted; i++)
            p->order[i].rank = kvr_ranking_falling(p->input->keys[p->order[i].item].rate);
        sort(p, p->order, admitted);
    }
    for (uint32_t i = 0; i < admitted; i++)
        p->order[i].rank = copies_of(p, p->order[i].item, cap);
    kvr_free(p->scratch);
    p->plan->keys = len;
}
