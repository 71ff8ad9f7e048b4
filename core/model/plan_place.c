/* Where the copies of a plan go. */
#include "memory.h"
#include "plan_parts.h"

struct placing {
    struct kvr_plan_draft *draft;
    struct kvr_tier *tiers; /* by rising lowest number */
    uint32_t tiers_len;
    struct kvr_place *heaps; /* of all tiers, one after another */
    uint32_t part;           /* that the key at hand may go to */
    struct {
        struct kvr_place place;
        struct kvr_tier *from;
        bool chosen;
    } * taken; /* out of their heaps, for the key at hand */
    uint32_t taken_len;
};

/* Without a branch: which of two comes first is as good as random. */
static bool goes_before(const struct kvr_place *a, const struct kvr_place *b)
{
    return (a->load < b->load) | ((a->load == b->load) & (a->destination < b->destination));
}

/* Puts `place` where it belongs, from `at` down, which is free. */
static void sink(struct kvr_tier *tier, uint32_t at, struct kvr_place place)
{
    struct kvr_place *heap = tier->heap;
    for (uint32_t child; (child = 2 * at + 1) < tier->len; at = child) {
        if (child + 1 < tier->len)
            child += goes_before(&heap[child + 1], &heap[child]);
        if (!goes_before(&heap[child], &place))
            break;
        heap[at] = heap[child];
    }
    heap[at] = place;
}

static struct kvr_place pop(struct kvr_tier *tier)
{
    struct kvr_place least = tier->heap[0];
    tier->len--;
    sink(tier, 0, tier->heap[tier->len]);
    return least;
}

static void push(struct kvr_tier *tier, struct kvr_place place)
{
    struct kvr_place *heap = tier->heap;
    uint32_t at = tier->len++;
    for (; at > 0 && goes_before(&place, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = place;
}

/* Tier of the part whose least loaded destination is the best for a copy of that load; UINT32_MAX:
 * all are taken. */
static uint32_t best_tier(const struct placing *s, double load)
{
    uint32_t best = UINT32_MAX;
    double least = 0;
    for (uint32_t i = 0; i < s->tiers_len; i++) {
        const struct kvr_tier *tier = &s->tiers[i];
        if (tier->len == 0 || !kvr_plan_has(s->draft->input, s->part, tier->heap[0].destination))
            continue;
        double with = (tier->heap[0].load + load) / tier->weight;
        if (best == UINT32_MAX || with < least ||
            (with == least && tier->heap[0].destination < s->tiers[best].heap[0].destination)) {
            best = i;
            least = with;
        }
    }
    return best;
}

/* The best one for a copy, out of its heap; false when all are. */
static bool take_best(struct placing *s, double load)
{
    uint32_t tier = best_tier(s, load);
    if (tier == UINT32_MAX)
        return false;
    s->taken[s->taken_len].from = &s->tiers[tier];
    s->taken[s->taken_len].chosen = false;
    s->taken[s->taken_len++].place = pop(&s->tiers[tier]);
    return true;
}

static void give_back(struct placing *s)
{
    while (s->taken_len > 0) {
        s->taken_len--;
        push(s->taken[s->taken_len].from, s->taken[s->taken_len].place);
    }
}

static bool has_more_room(const struct placing *s, uint32_t a, uint32_t b)
{
    uint32_t left = s->taken[a].place.destination, right = s->taken[b].place.destination;
    const double *room = s->draft->room;
    return room[left] > room[right] || (room[left] == room[right] && left < right);
}

/* For one more copy, the best destination that has none and has room for it; where none has, that
 * with the most room. Those in `kept` have had one all the time. */
static uint32_t choose(struct placing *s, const uint16_t *kept, uint32_t kept_len, double load,
                       double tokens)
{
    const double *room = s->draft->room;
    uint32_t roomiest = UINT32_MAX;
    /* Without rooms, what has been taken before is of no use. */
    for (uint32_t i = room ? 0 : s->taken_len;; i++) {
        if (i == s->taken_len && !take_best(s, load))
            break;
        uint32_t destination = s->taken[i].place.destination;
        if (s->taken[i].chosen || kvr_plan_is_in(kept, kept_len, destination))
            continue;
        if (!room || room[destination] >= tokens)
            return i;
        if (roomiest == UINT32_MAX || has_more_room(s, i, roomiest))
            roomiest = i;
    }
    KVR_CHECK(roomiest != UINT32_MAX);
    return roomiest;
}

/* The copies of a key from number `kept` on. A destination comes back when all are placed, so they
 * are distinct. */
static void place_copies(struct placing *s, uint16_t *assigned, uint32_t kept, uint32_t count,
                         double load, double tokens)
{
    for (uint32_t i = kept; i < count; i++) {
        uint32_t chosen = choose(s, assigned, kept, load, tokens);
        uint32_t destination = s->taken[chosen].place.destination;
        assigned[i] = (uint16_t)destination;
        s->taken[chosen].chosen = true;
        s->taken[chosen].place.load += load;
        if (s->draft->room)
            s->draft->room[destination] -= tokens;
    }
    give_back(s);
}

/* The same for the only one, which need not leave the heap. */
static void place_one(struct placing *s, uint16_t *assigned, double load)
{
    struct kvr_tier *tier = &s->tiers[s->tiers_len == 1 ? 0 : best_tier(s, load)];
    struct kvr_place place = tier->heap[0];
    *assigned = (uint16_t)place.destination;
    place.load += load;
    sink(tier, 0, place);
}

/* Of one weight, and eligible for the same keys. */
static bool are_alike(const struct kvr_plan_input *in, uint32_t one, uint32_t other)
{
    bool alike = kvr_plan_weight(in, one) == kvr_plan_weight(in, other);
    for (uint32_t set = 0; alike && in->sets && set < in->sets_len; set++)
        alike = kvr_plan_has(in, set, one) == kvr_plan_has(in, set, other);
    return alike;
}

static void make_tiers(struct placing *s)
{
    const struct kvr_plan_input *in = s->draft->input;
    uint32_t used = 0;
    for (uint32_t first = 0; first < in->destinations; first++) {
        bool known = false;
        for (uint32_t i = 0; i < s->tiers_len && !known; i++)
            known = are_alike(in, s->tiers[i].heap[0].destination, first);
        if (known)
            continue;
        struct kvr_tier *tier = &s->tiers[s->tiers_len++];
        *tier = (struct kvr_tier){kvr_plan_weight(in, first), s->heaps + used, 0};
        for (uint32_t i = first; i < in->destinations; i++)
            if (are_alike(in, first, i))
                tier->heap[tier->len++] = (struct kvr_place){s->draft->plan->loads[i], i};
        for (uint32_t i = tier->len / 2; i-- > 0;)
            sink(tier, i, tier->heap[i]);
        used += tier->len;
    }
}

/* Every copy that does not stay, the keys in their order. */
static void place_rest(struct kvr_plan_draft *p)
{
    struct kvr_plan *plan = p->plan;
    uint32_t destinations = plan->destinations;
    struct placing s = {.draft = p};
    s.tiers = kvr_alloc_zero(destinations, sizeof *s.tiers);
    s.heaps = kvr_alloc_zero(destinations, sizeof *s.heaps);
    s.taken = kvr_alloc_zero(destinations, sizeof *s.taken);
    make_tiers(&s);
    for (uint32_t i = 0; i < plan->admitted; i++) {
        const struct kvr_plan_entry *entry = &plan->entries[i];
        uint32_t item = p->order[i].item, kept = p->kept ? p->kept[i] : 0;
        double load = p->input->keys[item].rate / entry->count;
        uint16_t *assigned = plan->assigned + entry->first;
        s.part = kvr_plan_part_of(p->input, item);
        if (entry->count == 1 && kept == 0 && !p->room)
            place_one(&s, assigned, load);
        else if (kept < entry->count)
            place_copies(&s, assigned, kept, entry->count, load,
                         kvr_plan_size_of(p->input, item).tokens);
    }
    for (uint32_t i = 0; i < destinations; i++)
        plan->loads[s.heaps[i].destination] = s.heaps[i].load;
    kvr_free(s.taken);
    kvr_free(s.heaps);
    kvr_free(s.tiers);
}

void kvr_plan_place(struct kvr_plan_draft *p)
{
    struct kvr_plan *plan = p->plan;
    uint32_t first = 0;
    for (uint32_t i = 0; i < plan->admitted; i++) {
        uint32_t count = (uint32_t)p->order[i].rank;
        plan->entries[i] =
            (struct kvr_plan_entry){p->input->keys[p->order[i].item].key, first, count};
        first += count;
    }
    KVR_CHECK(first == plan->copies);
    if (p->options->tokens > 0)
        p->room = kvr_alloc(plan->destinations * sizeof *p->room);
    for (uint32_t i = 0; p->room && i < plan->destinations; i++)
        p->room[i] = p->options->tokens * kvr_plan_weight(p->input, i) / p->total_weight;
    kvr_plan_add_tails(p->input, p->parts, p->parts_len, plan->loads);
    if (p->had)
        kvr_plan_keep(p);
    place_rest(p);
    if (p->had)
        kvr_plan_move(p);
    kvr_free(p->kept);
    kvr_free(p->room);
}
