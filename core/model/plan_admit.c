/* Which keys a plan has, and with how many copies. */
#include <math.h>

#include "memory.h"
#include "plan_parts.h"
#include "real.h"

/* Most load of one copy; 0: no limit. At least what a count can tell from less. */
static double cap_of(const struct kvr_plan_draft *p)
{
    double fair = p->options->phi * p->rate / p->plan->destinations;
    double cap = p->options->q_cap > 0 && fair > 0 ? fmin(p->options->q_cap, fair)
                                                   : fmax(p->options->q_cap, fair);
    return cap > 0 && p->input->counted > 0 ? fmax(cap, KVR_PLAN_SPLIT_COUNT / p->input->counted)
                                            : cap;
}

static const struct kvr_plan_part *part_of(const struct kvr_plan_draft *p, uint32_t item)
{
    return &p->parts[kvr_plan_part_of(p->input, item)];
}

static uint32_t copies_at(const struct kvr_plan_draft *p, uint32_t item, double rate, double cap)
{
    uint32_t most = part_of(p, item)->destinations;
    if (cap == 0)
        return 1;
    double copies = ceil(rate / cap);
    return copies <= 1 || most == 0 ? 1 : copies >= most ? most : (uint32_t)copies;
}

/* A key of the last plan keeps its number as long as that is right for some rate within theta. */
static uint32_t copies_of(const struct kvr_plan_draft *p, uint32_t item, double cap)
{
    double rate = p->input->keys[item].rate, slack = 1 + p->options->theta;
    if (!p->had || p->had[item] == 0)
        return copies_at(p, item, rate, cap);
    uint32_t least = copies_at(p, item, rate / slack, cap);
    uint32_t most = copies_at(p, item, rate * slack, cap);
    return p->had[item] < least ? least : p->had[item] > most ? most : p->had[item];
}

/* What the order of admission goes by; `loyalty` is for those that were there. */
static double worth(const struct kvr_plan_draft *p, uint32_t item, double cap)
{
    const struct kvr_plan_options *o = p->options;
    double rate = p->input->keys[item].rate, worth = rate;
    if (o->tokens > 0 && part_of(p, item)->destinations > 0) {
        struct kvr_plan_size size = kvr_plan_size_of(p->input, item);
        double copies = copies_of(p, item, cap);
        double gain = 1, seen = rate * size.saved / size.tokens * o->residency;
        if (o->residency > 0)
            gain =
                kvr_real_exp(-seen / part_of(p, item)->destinations) - kvr_real_exp(-seen / copies);
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

/* What a part has room for: all of it for all destinations, its share for some. */
static void bound_parts(struct kvr_plan_draft *p)
{
    const struct kvr_plan_options *o = p->options;
    uint32_t all = p->plan->destinations;
    bool bounded = o->slots > 0 && o->slots <= KVR_PLAN_COPIES_MAX;
    for (uint32_t i = 0; i < p->parts_len; i++) {
        struct kvr_plan_part *part = &p->parts[i];
        bool whole = part->destinations == all;
        part->slots = bounded ? (uint32_t)((uint64_t)o->slots * part->destinations / all)
                              : KVR_PLAN_COPIES_MAX * (part->destinations > 0);
        part->tokens_most = whole ? o->tokens : o->tokens * part->weight / p->total_weight;
    }
}

/* Is one part within the other, by both numbers? The last is all destinations. */
static bool *make_within(const struct kvr_plan_draft *p)
{
    uint32_t len = p->parts_len;
    bool *within = kvr_alloc((size_t)len * len * sizeof *within);
    for (uint32_t i = 0; i < len; i++)
        for (uint32_t j = 0; j < len; j++) {
            bool all = p->parts[i].destinations <= p->parts[j].destinations;
            for (uint32_t to = 0; all && to < p->plan->destinations; to++)
                all = !kvr_plan_has(p->input, i, to) || kvr_plan_has(p->input, j, to);
            within[i * len + j] = all;
        }
    return within;
}

/* Does a key fit, in every part that it cannot leave? If so, it is in them. */
static bool take_key(struct kvr_plan_draft *p, const bool *within, uint32_t item, uint32_t copies)
{
    bool by_size = p->options->tokens > 0, takes = true;
    double one = kvr_plan_size_of(p->input, item).tokens, size = by_size ? copies * one : 0;
    /* What is more than any destination's tokens is warm nowhere. */
    double largest = p->options->tokens * part_of(p, item)->heaviest / p->total_weight;
    for (uint32_t i = 0; i < p->parts_len; i++) {
        struct kvr_plan_part *part = &p->parts[i];
        if (!within[i])
            continue;
        bool fits = copies <= part->slots - part->copies &&
                    (!by_size || (one <= largest && part->tokens + size <= part->tokens_most));
        part->full |= !fits && !p->options->skip && !by_size;
        takes &= fits && !part->full;
    }
    for (uint32_t i = 0; takes && i < p->parts_len; i++)
        if (within[i]) {
            p->parts[i].copies += copies;
            p->parts[i].tokens += size;
        }
    return takes;
}

/* Leaves the admitted keys first in `order`, in their order. */
static void take(struct kvr_plan_draft *p, uint32_t len, double cap)
{
    struct kvr_plan *plan = p->plan;
    bool *within = make_within(p);
    bound_parts(p);
    for (uint32_t i = 0; i < len; i++) {
        uint32_t item = p->order[i].item, part = kvr_plan_part_of(p->input, item);
        double rate = p->input->keys[item].rate;
        uint32_t copies = copies_of(p, item, cap);
        if (!take_key(p, within + (size_t)part * p->parts_len, item, copies)) {
            plan->tail_rate += rate;
            p->parts[part].tail += rate;
            continue;
        }
        plan->copies += copies;
        plan->admitted_rate += rate;
        plan->split += copies > 1;
        p->order[plan->admitted++].item = item;
    }
    kvr_free(within);
}

/* How many copies the last plan has of each key, where they may stay. */
static void look_back(struct kvr_plan_draft *p)
{
    const struct kvr_plan_input *in = p->input;
    uint16_t places[KVR_REPLICAS_MAX];
    p->had = kvr_alloc(in->keys_len * sizeof *p->had + 1);
    for (uint32_t i = 0; i < in->keys_len; i++)
        p->had[i] = (uint16_t)kvr_plan_last_places(in, i, places);
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
