/* A plan that goes on from the last one: copies stay where they are, and some are moved where that
 * evens out the load the most for the tokens that are cold afterwards.
 *
 *   while the busiest destination has more than (1 + theta) of the mean, by weight:
 *       of its copies, move to the least busy one that may have it that which lowers the higher
 *       load of the two by the most a token; among equals that of the key with the highest rate
 *       none does, has room there or is within the budget: leave that destination as it is
 *
 * The order of all this is fixed, so that equal rates and plans give equal plans. */
#include <math.h>
#include <string.h>

#include "memory.h"
#include "plan_parts.h"

#define NONE UINT32_MAX

void kvr_plan_keep(struct kvr_plan_draft *p)
{
    struct kvr_plan *plan = p->plan;
    uint16_t places[KVR_REPLICAS_MAX];
    p->kept = kvr_alloc_zero(plan->admitted + 1, sizeof *p->kept);
    for (uint32_t i = 0; i < plan->admitted; i++) {
        const struct kvr_plan_entry *entry = &plan->entries[i];
        uint32_t item = p->order[i].item;
        uint32_t there = kvr_plan_last_places(p->input, item, places);
        p->kept[i] = there < entry->count ? there : entry->count;
        for (uint32_t copy = 0; copy < p->kept[i]; copy++) {
            plan->assigned[entry->first + copy] = places[copy];
            plan->loads[places[copy]] += p->input->keys[item].rate / entry->count;
            if (p->room)
                p->room[places[copy]] -= kvr_plan_size_of(p->input, item).tokens;
        }
    }
}

/* The copies by destination, as lists; a copy is a place in `assigned`. */
struct moving {
    struct kvr_plan_draft *draft;
    uint32_t *heads;  /* by destination; NONE: empty */
    uint32_t *next;   /* by copy */
    uint32_t *owners; /* by copy: its entry */
    uint32_t *idle;   /* by part: its least busy destination */
    bool *left;       /* by destination: nothing more can be moved from it */
    double limit;     /* of load over weight */
    double budget;    /* rate that may still be moved */
};

static double level(const struct moving *m, uint32_t destination, double more)
{
    return (m->draft->plan->loads[destination] + more) /
           kvr_plan_weight(m->draft->input, destination);
}

/* The busiest that is above the limit, NONE; or the least busy. Ties: the lowest number. */
static uint32_t busiest(const struct moving *m)
{
    uint32_t best = NONE;
    for (uint32_t i = 0; i < m->draft->plan->destinations; i++)
        if (!m->left[i] && level(m, i, 0) > (best == NONE ? m->limit : level(m, best, 0)))
            best = i;
    return best;
}

static uint32_t least_busy(const struct moving *m, uint32_t part)
{
    uint32_t best = NONE;
    for (uint32_t i = 0; i < m->draft->plan->destinations; i++)
        if (kvr_plan_has(m->draft->input, part, i) &&
            (best == NONE || level(m, i, 0) < level(m, best, 0)))
            best = i;
    return best;
}

/* Where the copy would go. */
static uint32_t idle_for(const struct moving *m, uint32_t copy)
{
    return m->idle[kvr_plan_part_of(m->draft->input, m->draft->order[m->owners[copy]].item)];
}

static double load_of(const struct moving *m, uint32_t entry)
{
    const struct kvr_plan_draft *p = m->draft;
    return p->input->keys[p->order[entry].item].rate / p->plan->entries[entry].count;
}

/* How much lower the higher of both is afterwards, for a token; 0 when it cannot go. */
static double gain(const struct moving *m, uint32_t copy, uint32_t from)
{
    const struct kvr_plan_draft *p = m->draft;
    uint32_t to = idle_for(m, copy);
    const struct kvr_plan_entry *entry = &p->plan->entries[m->owners[copy]];
    double load = load_of(m, m->owners[copy]);
    double tokens = kvr_plan_size_of(p->input, p->order[m->owners[copy]].item).tokens;
    double lower = level(m, from, 0) - fmax(level(m, from, -load), level(m, to, load));
    if (!(lower > 0) || load > m->budget || (p->room && p->room[to] < tokens) ||
        kvr_plan_is_in(p->plan->assigned + entry->first, entry->count, to))
        return 0;
    return lower / tokens;
}

/* The link to the copy that had better go; NULL: none. */
static uint32_t *best_copy(struct moving *m, uint32_t from)
{
    uint32_t *best = NULL;
    double most = 0;
    for (uint32_t *at = &m->heads[from]; *at != NONE; at = &m->next[*at]) {
        double value = gain(m, *at, from);
        if (value > most || (best && value == most && m->owners[*at] < m->owners[*best])) {
            best = at;
            most = value;
        }
    }
    return best;
}

static void move(struct moving *m, uint32_t *link, uint32_t from)
{
    struct kvr_plan_draft *p = m->draft;
    uint32_t copy = *link, entry = m->owners[copy], to = idle_for(m, copy);
    double load = load_of(m, entry);
    *link = m->next[copy];
    m->next[copy] = m->heads[to];
    m->heads[to] = copy;
    p->plan->assigned[copy] = (uint16_t)to;
    p->plan->loads[from] -= load;
    p->plan->loads[to] += load;
    m->budget -= load;
    if (p->room) {
        double tokens = kvr_plan_size_of(p->input, p->order[entry].item).tokens;
        p->room[from] += tokens;
        p->room[to] -= tokens;
    }
}

static void list_copies(struct moving *m)
{
    const struct kvr_plan *plan = m->draft->plan;
    memset(m->heads, 0xff, plan->destinations * sizeof *m->heads);
    for (uint32_t i = plan->admitted; i-- > 0;)
        for (uint32_t copy = plan->entries[i].first + plan->entries[i].count;
             copy-- > plan->entries[i].first;) {
            m->owners[copy] = i;
            m->next[copy] = m->heads[plan->assigned[copy]];
            m->heads[plan->assigned[copy]] = copy;
        }
}

void kvr_plan_move(struct kvr_plan_draft *p)
{
    struct kvr_plan *plan = p->plan;
    struct moving m = {.draft = p,
                       .limit = (1 + p->options->theta) * p->rate / p->total_weight,
                       .budget = p->options->move_budget * p->rate};
    m.heads = kvr_alloc(plan->destinations * sizeof *m.heads);
    m.left = kvr_alloc_zero(plan->destinations, sizeof *m.left);
    m.next = kvr_alloc(plan->copies * sizeof *m.next + 1);
    m.owners = kvr_alloc(plan->copies * sizeof *m.owners + 1);
    m.idle = kvr_alloc(p->parts_len * sizeof *m.idle);
    list_copies(&m);
    /* Each lowers the sum of squares; rounding may not make an endless loop of it. */
    for (uint32_t moves = 0; moves < plan->copies;) {
        uint32_t from = busiest(&m);
        if (from == NONE)
            break;
        for (uint32_t i = 0; i < p->parts_len; i++)
            m.idle[i] = least_busy(&m, i);
        uint32_t *link = best_copy(&m, from);
        if (link)
            move(&m, link, from);
        moves += link != NULL;
        m.left[from] = !link;
    }
    kvr_free(m.idle);
    kvr_free(m.owners);
    kvr_free(m.next);
    kvr_free(m.left);
    kvr_free(m.heads);
}
