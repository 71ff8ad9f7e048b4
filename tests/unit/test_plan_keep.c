/* core/model/plan beyond the paper: named cases of plans that go on from the last one, of splitting
 * and of admission by size, and random instances of all of it against a planner that looks at
 * everything each time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan.h"
#include "plan_change.h"
#include "real.h"
#include "replica.h"
#include "rng.h"

#define KEYS         24u
#define DESTINATIONS 6u

static struct kvr_plan *make(const struct kvr_plan_options *options,
                             const struct kvr_plan_input *input)
{
    struct kvr_error error = {0};
    struct kvr_plan *plan = kvr_plan_make(options, input, &error);
    if (!plan)
        fail_msg("no plan: %s", error.text);
    return plan;
}

static void assert_near(double value, double expected)
{
    assert_true(fabs(value - expected) < 1e-9);
}

/* "key:destination,destination key:..." in the order of the plan. */
static void assert_plan(const struct kvr_plan *plan, const char *expected)
{
    char text[512] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < plan->admitted; i++) {
        const struct kvr_plan_entry *entry = &plan->entries[i];
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%llu", i ? " " : "",
                                (unsigned long long)entry->key);
        for (uint32_t copy = 0; copy < entry->count; copy++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%c%u", copy ? ',' : ':',
                                    plan->assigned[entry->first + copy]);
    }
    assert_string_equal(text, expected);
}

static const struct kvr_plan_options scratch = {0};

static void what_is_placed_stays(void **state)
{
    (void)state;
    const struct kvr_plan_key before[] = {{1, 8}, {2, 7}, {3, 3}, {4, 2}};
    const struct kvr_plan_key after[] = {{1, 3}, {2, 2}, {3, 9}, {5, 4}};
    struct kvr_plan_input input = {.keys = before, .keys_len = 4, .destinations = 2};
    struct kvr_plan *last = make(&scratch, &input);
    assert_plan(last, "1:0 2:1 3:1 4:0"); /* 8 | 7, 8 | 10, 10 | 10 */
    input.keys = after;
    input.last = last;
    struct kvr_plan_options keep = {.keep = 1};
    struct kvr_plan *plan = make(&keep, &input);
    assert_plan(plan, "3:1 5:0 1:0 2:1"); /* only 5 is placed: 3 | 11 */
    struct kvr_plan_change change;
    kvr_plan_compare(plan, &input, 0, &change);
    assert_int_equal(change.kept, 3);
    assert_int_equal(change.added, 1);
    assert_int_equal(change.removed, 1);
    assert_int_equal(change.keys_moved, 0);
    assert_int_equal(change.keys_new, 1);
    assert_int_equal(change.keys_gone, 1);
    assert_true(change.rate_moved == 0 && change.warmup == 0);
    assert_true(change.last_imbalance == 13.0 * 2 / 18); /* 5 was in its tail: 5 | 13 */
    assert_true(plan->imbalance == 11.0 * 2 / 18);
    kvr_plan_destroy(plan);
    /* With a budget, and 3 too heavy to be of use elsewhere, 2 moves: 9 | 9. */
    keep.move_budget = 0.2;
    plan = make(&keep, &input);
    assert_plan(plan, "3:1 5:0 1:0 2:0");
    assert_true(plan->imbalance == 1);
    kvr_plan_compare(plan, &input, 0, &change);
    assert_int_equal(change.keys_moved, 1);
    assert_true(change.rate_moved == 2 && change.warmup == 1);
    kvr_plan_destroy(plan);
    /* Not below theta. */
    keep.theta = 0.25;
    plan = make(&keep, &input);
    assert_plan(plan, "3:1 5:0 1:0 2:1");
    kvr_plan_destroy(plan);
    kvr_plan_destroy(last);
}

static void copies_of_a_lost_destination_are_placed_anew(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 8}, {2, 4}, {3, 3}};
    struct kvr_plan_input input = {.keys = keys, .keys_len = 3, .destinations = 3};
    struct kvr_plan *last = make(&(struct kvr_plan_options){.q_cap = 4}, &input);
    assert_plan(last, "1:0,1 2:2 3:0");
    /* 0 is gone, 2 is now the first of two. */
    const uint16_t now[] = {KVR_PLAN_GONE, 1, 0};
    input.last = last;
    input.now = now;
    input.destinations = 2;
    struct kvr_plan *plan = make(&(struct kvr_plan_options){.q_cap = 4, .keep = 1}, &input);
    assert_plan(plan, "1:1,0 2:0 3:1"); /* 1 has kept a copy at 1; 8 | 4 */
    kvr_plan_destroy(plan);
    kvr_plan_destroy(last);
}

static void the_number_of_copies_is_sticky(void **state)
{
    (void)state;
    struct kvr_plan_key key = {1, 7.9};
    struct kvr_plan_input input = {.keys = &key, .keys_len = 1, .destinations = 4};
    struct kvr_plan_options options = {.q_cap = 4, .theta = 0.1};
    struct kvr_plan *last = make(&options, &input);
    assert_plan(last, "1:0,1");
    input.last = last;
    options.keep = 1;
    const struct {
        double rate;
        const char *expected;
    } cases[] = {{8.7, "1:0,1"}, {8.9, "1:0,1,2"}, {3.7, "1:0,1"}, {3.6, "1:0"}};
    for (uint32_t i = 0; i < 4; i++) {
        key.rate = cases[i].rate;
        struct kvr_plan *plan = make(&options, &input);
        assert_plan(plan, cases[i].expected);
        kvr_plan_destroy(plan);
    }
    kvr_plan_destroy(last);
}

static void those_who_are_in_stay_in(void **state)
{
    (void)state;
    struct kvr_plan_key keys[] = {{1, 5}, {2, 4}, {3, 3}};
    struct kvr_plan_input input = {.keys = keys, .keys_len = 3, .destinations = 2};
    struct kvr_plan_options options = {.slots = 2};
    struct kvr_plan *last = make(&options, &input);
    assert_plan(last, "1:0 2:1");
    input.last = last;
    options.keep = 1;
    options.loyalty = 1.25;
    keys[2].rate = 4.9; /* not a quarter above 4 */
    struct kvr_plan *plan = make(&options, &input);
    assert_plan(plan, "1:0 2:1");
    kvr_plan_destroy(plan);
    keys[2].rate = 5.1;
    plan = make(&options, &input);
    assert_plan(plan, "3:1 1:0");
    kvr_plan_destroy(plan);
    kvr_plan_destroy(last);
}

/* Destinations 0 and 1 serve one model, 2 the other; 2 is the idlest all the time. */
static void keys_move_and_stay_where_they_may(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 8}, {2, 4}, {3, 1}, {4, 3}};
    const uint64_t sets[] = {3, 4};
    const uint16_t set_of[] = {0, 0, 1, 0};
    const struct kvr_plan_entry entries[] = {{1, 0, 1}, {2, 1, 1}, {3, 2, 1}, {4, 3, 1}};
    /* 3 was where its model is served no more. */
    struct kvr_plan *last = kvr_plan_of(entries, 4, (const uint16_t[]){0, 0, 0, 1}, 3, NULL);
    struct kvr_plan_input input = {.keys = keys,
                                   .last = last,
                                   .sets = sets,
                                   .set_of = set_of,
                                   .sets_len = 2,
                                   .keys_len = 4,
                                   .destinations = 3};
    struct kvr_plan *plan = make(&(struct kvr_plan_options){.keep = 1, .move_budget = 1}, &input);
    assert_plan(plan, "1:0 2:1 4:1 3:2");
    assert_true(plan->loads[0] == 8 && plan->loads[1] == 7 && plan->loads[2] == 1);
    struct kvr_plan_change change;
    kvr_plan_compare(plan, &input, 0, &change);
    assert_int_equal(change.kept, 2);
    assert_int_equal(change.keys_moved, 2);
    /* Under these rates the last plan has 12 at 0 and 3 at 1; 3 goes without it, to where it may.
     */
    assert_near(change.last_imbalance, 12 * 3 / 16.0);
    kvr_plan_destroy(plan);
    kvr_plan_destroy(last);
}

static void no_key_is_more_than_a_share(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 9}, {2, 2}, {3, 1}}; /* 12 over 4 */
    struct kvr_plan_input input = {.keys = keys, .keys_len = 3, .destinations = 4};
    struct kvr_plan *plan = make(&(struct kvr_plan_options){.phi = 1}, &input);
    assert_plan(plan, "1:0,1,2 2:3 3:3");
    assert_true(plan->imbalance == 1);
    kvr_plan_destroy(plan);
    /* The lower limit counts. */
    plan = make(&(struct kvr_plan_options){.phi = 1, .q_cap = 2.5}, &input);
    assert_int_equal(plan->entries[0].count, 4);
    kvr_plan_destroy(plan);
    plan = make(&(struct kvr_plan_options){.phi = 2, .q_cap = 4}, &input);
    assert_int_equal(plan->entries[0].count, 3);
    kvr_plan_destroy(plan);
}

static void what_saves_most_for_its_size_comes_first(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 10}, {2, 6}, {3, 5}, {4, 1}};
    /* Values a second 1000, 600, 500, 400; a token of cache: 1, 1.2, 5, 4. */
    const struct kvr_plan_size sizes[] = {{1000, 100}, {500, 100}, {100, 100}, {100, 400}};
    struct kvr_plan_input input = {.keys = keys, .sizes = sizes, .keys_len = 4, .destinations = 2};
    struct kvr_plan_options options = {.tokens = 1800};
    struct kvr_plan *plan = make(&options, &input);
    assert_plan(plan, "2:0 3:1 4:1"); /* 900 each: 1 would be warm nowhere */
    assert_true(plan->tail_rate == 10);
    kvr_plan_destroy(plan);
    options.tokens = 2100;
    plan = make(&options, &input);
    assert_plan(plan, "1:0 2:1 3:1 4:1"); /* 1050 each: there is no room beside 1 */
    kvr_plan_destroy(plan);
    options.tokens = 1650;
    input.destinations = 1;
    plan = make(&options, &input);
    assert_plan(plan, "2:0 3:0 4:0"); /* 3, 4, 2, and 1 is passed over */
    kvr_plan_destroy(plan);
    options.tokens = 1050;
    plan = make(&options, &input);
    assert_plan(plan, "2:0 3:0 4:0");
    kvr_plan_destroy(plan);
    options.tokens = 600;
    plan = make(&options, &input);
    assert_plan(plan, "3:0 4:0");
    kvr_plan_destroy(plan);
    /* Slots bound it, too. */
    options.slots = 1;
    plan = make(&options, &input);
    assert_plan(plan, "3:0");
    kvr_plan_destroy(plan);
}

static void what_is_warm_everywhere_is_worth_less(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 10}, {2, 0.5}};
    struct kvr_plan_input input = {.keys = keys, .keys_len = 2, .destinations = 2};
    struct kvr_plan_options options = {.tokens = 2, .slots = 1};
    struct kvr_plan *plan = make(&options, &input);
    assert_plan(plan, "1:0");
    kvr_plan_destroy(plan);
    options.residency = 2; /* 10 (e^-10 - e^-20) is less than 0.5 (e^-0.5 - e^-1) */
    plan = make(&options, &input);
    assert_plan(plan, "2:0");
    kvr_plan_destroy(plan);
}

static void it_says_whether_it_is_worth_it(void **state)
{
    (void)state;
    const struct kvr_plan_key before[] = {{1, 4}, {2, 4}};
    const struct kvr_plan_key after[] = {{1, 1}, {2, 4}, {3, 3}};
    const struct kvr_plan_size sizes[] = {{50, 5}, {40, 5}, {30, 5}};
    struct kvr_plan_change change;
    struct kvr_plan_input input = {.keys = before, .keys_len = 2, .destinations = 2};
    struct kvr_plan *last = make(&scratch, &input);
    kvr_plan_compare(last, &input, 10, &change);
    assert_int_equal(change.verdict, KVR_PLAN_INSTALL); /* there was none */
    assert_int_equal(change.added, 2);
    input.last = last;
    kvr_plan_compare(last, &input, 10, &change);
    assert_int_equal(change.verdict, KVR_PLAN_SAME);
    input.keys = after;
    input.sizes = sizes;
    input.keys_len = 3;
    struct kvr_plan *plan = make(&scratch, &input);
    assert_plan(plan, "2:0 3:1 1:1"); /* 1 and 2 change places; 4 | 4 instead of 2.5 | 5.5 */
    /* New: 3 x 5 saved; 1.5 above 4 at 5 a request. 90 to warm. */
    const struct {
        double life;
        enum kvr_plan_verdict verdict;
    } cases[] = {{0, KVR_PLAN_INSTALL}, {4, KVR_PLAN_NOT_WORTH}, {4.1, KVR_PLAN_INSTALL}};
    for (uint32_t i = 0; i < 3; i++) {
        kvr_plan_compare(plan, &input, cases[i].life, &change);
        assert_int_equal(change.verdict, cases[i].verdict);
        assert_true(change.warmup == 90);
        assert_near(change.staleness, 22.5 * cases[i].life);
    }
    assert_int_equal(change.keys_moved, 2);
    assert_true(change.rate_moved == 5);
    assert_true(change.last_imbalance == 5.5 * 2 / 8);
    kvr_plan_destroy(plan);
    kvr_plan_destroy(last);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    const struct kvr_plan_key key = {1, 1};
    const struct kvr_plan_size none = {0, 1}, bad = {1, -1};
    struct kvr_plan_input input = {.keys = &key, .keys_len = 1, .destinations = 1};
    const struct kvr_plan_options wrong[] = {
        {.phi = -1},
        {.phi = (double)NAN},
        {.tokens = -1},
        {.residency = -1},
        {.theta = (double)INFINITY},
        {.move_budget = 1.1},
        {.loyalty = 0.5},
        {.loyalty = -2},
    };
    struct kvr_error error = {0};
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_null(kvr_plan_make(&wrong[i], &input, &error));
        assert_int_equal(error.code, KVR_E_INVALID);
    }
    input.sizes = &none;
    assert_null(kvr_plan_make(&scratch, &input, &error));
    input.sizes = &bad;
    assert_null(kvr_plan_make(&scratch, &input, &error));
}

/* ---- against the naive planner ---- */

struct instance {
    struct kvr_plan_options options;
    struct kvr_plan_key keys[KEYS];
    struct kvr_plan_size sizes[KEYS];
    double weights[DESTINATIONS];
    uint16_t now[DESTINATIONS];
    uint32_t len, destinations;
    struct kvr_plan_input input;
};

struct naive {
    const struct instance *in;
    uint16_t before[KEYS][DESTINATIONS]; /* of the last plan, in its order */
    uint32_t had[KEYS];
    uint16_t places[KEYS][DESTINATIONS];
    uint32_t counts[KEYS]; /* 0: not admitted */
    const struct kvr_plan_key *order[KEYS];
    double sort_by[KEYS];
    double loads[DESTINATIONS], room[DESTINATIONS];
    double rate, cap, total_weight;
    uint32_t moves, roomless;
};

static double copies_at(const struct naive *n, double rate)
{
    double copies = n->cap > 0 ? ceil(rate / n->cap) : 1;
    return fmin(n->in->destinations, fmax(1, copies));
}

static uint32_t copies_of(const struct naive *n, uint32_t key)
{
    double rate = n->in->keys[key].rate, slack = 1 + n->in->options.theta;
    if (!n->had[key])
        return (uint32_t)copies_at(n, rate);
    return (uint32_t)fmin(copies_at(n, rate * slack),
                          fmax(copies_at(n, rate / slack), n->had[key]));
}

static double worth_of(const struct naive *n, uint32_t key)
{
    const struct kvr_plan_options *o = &n->in->options;
    double rate = n->in->keys[key].rate, worth = rate, copies = copies_of(n, key), gain = 1;
    double seen = rate * n->in->sizes[key].saved / n->in->sizes[key].tokens * o->residency;
    if (o->residency > 0)
        gain = kvr_real_exp(-seen / n->in->destinations) - kvr_real_exp(-seen / copies);
    if (o->tokens > 0)
        worth = rate * n->in->sizes[key].saved * gain / (copies * n->in->sizes[key].tokens);
    return n->had[key] && o->loyalty > 1 ? worth * o->loyalty : worth;
}

/* Keys in order of `sort_by`, the largest first. */
static void order_keys(struct naive *n)
{
    const struct kvr_plan_key *keys = n->in->keys;
    for (uint32_t i = 0; i < n->in->len; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            const struct kvr_plan_key *other = n->order[at - 1];
            double a = n->sort_by[other - keys], b = n->sort_by[i];
            if (a > b || (a == b && other->key < keys[i].key))
                break;
            n->order[at] = other;
        }
        n->order[at] = &keys[i];
    }
}

static double admit(struct naive *n)
{
    const struct instance *in = n->in;
    double slots = 0, tokens = 0, tail = 0, heaviest = 0;
    bool over = false, by_size = in->options.tokens > 0;
    for (uint32_t r = 0; r < in->destinations; r++)
        heaviest = fmax(heaviest, in->weights[r]);
    for (uint32_t i = 0; i < in->len; i++)
        n->sort_by[i] = worth_of(n, i);
    order_keys(n);
    for (uint32_t i = 0; i < in->len; i++) {
        uint32_t key = (uint32_t)(n->order[i] - in->keys), k = copies_of(n, key);
        double size = by_size ? k * in->sizes[key].tokens : 0;
        bool fits = (!in->options.slots || slots + k <= in->options.slots) &&
                    (!by_size ||
                     (tokens + size <= in->options.tokens &&
                      in->sizes[key].tokens <= in->options.tokens * heaviest / n->total_weight));
        over = over || (!fits && !in->options.skip && !by_size);
        n->counts[key] = fits && !over ? k : 0;
        slots += n->counts[key];
        tokens += fits && !over ? size : 0;
        tail += fits && !over ? 0 : in->keys[key].rate;
    }
    return tail;
}

static bool is_at(const struct naive *n, uint32_t key, uint32_t count, uint32_t destination)
{
    for (uint32_t i = 0; i < count; i++)
        if (n->places[key][i] == destination)
            return true;
    return false;
}

/* Best destination for one more copy, with room or without; UINT32_MAX: none. */
static uint32_t best_of(const struct naive *n, uint32_t key, uint32_t count, const double *loads,
                        double load, bool room)
{
    uint32_t best = UINT32_MAX;
    const double *w = n->in->weights;
    for (uint32_t r = 0; r < n->in->destinations; r++) {
        if (is_at(n, key, count, r) || (room && n->room[r] < n->in->sizes[key].tokens))
            continue;
        bool alike = best != UINT32_MAX && w[r] == w[best];
        if (best == UINT32_MAX ||
            (alike ? loads[r] < loads[best]
                   : (loads[r] + load) / w[r] < (loads[best] + load) / w[best]))
            best = r;
    }
    return best;
}

static uint32_t roomiest_of(const struct naive *n, uint32_t key, uint32_t count)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t r = 0; r < n->in->destinations; r++)
        if (!is_at(n, key, count, r) && (best == UINT32_MAX || n->room[r] > n->room[best]))
            best = r;
    return best;
}

static void place(struct naive *n, double tail)
{
    const struct instance *in = n->in;
    for (uint32_t r = 0; r < in->destinations; r++) {
        n->loads[r] = tail * in->weights[r] / n->total_weight;
        n->room[r] = in->options.tokens * in->weights[r] / n->total_weight;
    }
    for (uint32_t i = 0; i < in->len; i++)
        n->sort_by[i] = in->keys[i].rate;
    order_keys(n);
    for (uint32_t i = 0; i < in->len; i++) { /* what stays */
        uint32_t key = (uint32_t)(n->order[i] - in->keys);
        for (uint32_t copy = 0; copy < n->counts[key] && copy < n->had[key]; copy++) {
            uint16_t r = n->places[key][copy] = n->before[key][copy];
            n->loads[r] += in->keys[key].rate / n->counts[key];
            n->room[r] -= in->sizes[key].tokens;
        }
    }
    for (uint32_t i = 0; i < in->len; i++) { /* the rest */
        uint32_t key = (uint32_t)(n->order[i] - in->keys);
        double load = in->keys[key].rate / n->counts[key], loads[DESTINATIONS];
        memcpy(loads, n->loads, sizeof loads);
        for (uint32_t copy = n->had[key]; copy < n->counts[key]; copy++) {
            uint32_t r = UINT32_MAX;
            if (in->options.tokens > 0)
                r = best_of(n, key, copy, loads, load, true);
            if (r == UINT32_MAX) {
                n->roomless += in->options.tokens > 0;
                r = in->options.tokens > 0 ? roomiest_of(n, key, copy)
                                           : best_of(n, key, copy, loads, load, false);
            }
            n->places[key][copy] = (uint16_t)r;
            n->loads[r] += load;
            n->room[r] -= in->sizes[key].tokens;
        }
    }
}

/* How much lower the higher of both would be for each token; 0: it may not go. */
static double gain_of(const struct naive *n, uint32_t key, uint32_t from, uint32_t to,
                      double budget)
{
    const struct instance *in = n->in;
    const double *w = in->weights;
    double load = in->keys[key].rate / n->counts[key];
    double high = fmax((n->loads[from] - load) / w[from], (n->loads[to] + load) / w[to]);
    double lower = n->loads[from] / w[from] - high;
    bool room = !(in->options.tokens > 0) || n->room[to] >= in->sizes[key].tokens;
    if (!is_at(n, key, n->counts[key], from) || is_at(n, key, n->counts[key], to) || !room ||
        load > budget || !(lower > 0))
        return 0;
    return lower / in->sizes[key].tokens;
}

static void move_all(struct naive *n)
{
    const struct instance *in = n->in;
    const double *w = in->weights;
    bool left[DESTINATIONS] = {false};
    double limit = (1 + in->options.theta) * n->rate / n->total_weight;
    double budget = in->options.move_budget * n->rate;
    for (;;) {
        uint32_t from = UINT32_MAX, to = 0, best = UINT32_MAX;
        double high = limit, most = 0;
        for (uint32_t r = 0; r < in->destinations; r++) {
            if (!left[r] && n->loads[r] / w[r] > high) {
                high = n->loads[r] / w[r];
                from = r;
            }
            if (n->loads[r] / w[r] < n->loads[to] / w[to])
                to = r;
        }
        if (from == UINT32_MAX)
            return;
        for (uint32_t i = 0; i < in->len; i++) {
            uint32_t key = (uint32_t)(n->order[i] - in->keys);
            double gain = n->counts[key] ? gain_of(n, key, from, to, budget) : 0;
            if (gain > most) {
                most = gain;
                best = key;
            }
        }
        left[from] = best == UINT32_MAX;
        if (left[from])
            continue;
        double load = in->keys[best].rate / n->counts[best];
        for (uint32_t copy = 0; copy < n->counts[best]; copy++)
            if (n->places[best][copy] == from)
                n->places[best][copy] = (uint16_t)to;
        n->loads[from] -= load;
        n->loads[to] += load;
        n->room[from] += in->sizes[best].tokens;
        n->room[to] -= in->sizes[best].tokens;
        budget -= load;
        n->moves++;
    }
}

static void plan_naively(const struct instance *in, struct naive *n)
{
    memset(n, 0, sizeof *n);
    n->in = in;
    for (uint32_t i = 0; i < in->len; i++)
        n->rate += in->keys[i].rate;
    for (uint32_t r = 0; r < in->destinations; r++)
        n->total_weight += in->weights[r];
    double fair = in->options.phi * n->rate / in->destinations;
    n->cap =
        fair > 0 && (in->options.q_cap == 0 || fair < in->options.q_cap) ? fair : in->options.q_cap;
    for (uint32_t i = 0; in->options.keep && in->input.last && i < in->len; i++) {
        uint32_t count;
        const uint16_t *assigned = kvr_plan_lookup(in->input.last, in->keys[i].key, &count);
        for (uint32_t copy = 0; copy < count; copy++)
            if (in->now[assigned[copy]] != KVR_PLAN_GONE)
                n->before[i][n->had[i]++] = in->now[assigned[copy]];
    }
    place(n, admit(n));
    if (in->options.keep && in->input.last)
        move_all(n);
}

static void draw_options(struct kvr_rng *rng, struct kvr_plan_options *o)
{
    bool by_size = kvr_rng_below(rng, 3) == 0;
    *o = (struct kvr_plan_options){
        .q_cap = kvr_rng_below(rng, 3) == 0 ? 1 + 10 * kvr_rng_double(rng) : 0,
        .slots = kvr_rng_below(rng, 2) ? 4 + (uint32_t)kvr_rng_below(rng, 2 * KEYS) : 0,
        .skip = (uint32_t)kvr_rng_below(rng, 2),
        .phi = kvr_rng_below(rng, 3) == 0 ? 0.2 + kvr_rng_double(rng) : 0,
        .tokens = by_size ? 1 + (double)kvr_rng_below(rng, 100) : 0,
        .residency = kvr_rng_below(rng, 2) ? kvr_rng_double(rng) : 0,
        .theta = kvr_rng_below(rng, 2) ? 0.3 * kvr_rng_double(rng) : 0,
        .move_budget = kvr_rng_below(rng, 3) ? kvr_rng_double(rng) : 0,
        .loyalty = kvr_rng_below(rng, 2) ? 1 + kvr_rng_double(rng) : 0,
    };
}

/* Rates, half of the time with many ties; keys are out of a few more than there are. */
static void draw_keys(struct kvr_rng *rng, struct instance *in)
{
    bool whole = kvr_rng_below(rng, 2);
    in->len = (uint32_t)kvr_rng_below(rng, KEYS + 1);
    uint64_t key = 0;
    for (uint32_t i = 0; i < in->len; i++) {
        key += 1 + kvr_rng_below(rng, 2);
        in->keys[i] =
            (struct kvr_plan_key){kvr_mix64(key), whole ? (double)kvr_rng_below(rng, 6)
                                                        : 20 * pow(kvr_rng_double(rng), 3)};
        in->sizes[i] = (struct kvr_plan_size){1 + (double)kvr_rng_below(rng, 8),
                                              (double)kvr_rng_below(rng, 4)};
    }
}

static void draw_fleet(struct kvr_rng *rng, struct instance *in)
{
    static const double weights[] = {1, 2, 4};
    bool weighted = kvr_rng_below(rng, 2);
    in->destinations = 1 + (uint32_t)kvr_rng_below(rng, DESTINATIONS);
    for (uint32_t r = 0; r < DESTINATIONS; r++)
        in->weights[r] = weighted ? weights[kvr_rng_below(rng, 3)] : 1;
    in->input = (struct kvr_plan_input){.keys = in->keys,
                                        .sizes = in->sizes,
                                        .weights = in->weights,
                                        .keys_len = in->len,
                                        .destinations = in->destinations};
}

/* Numbers of the last plan's destinations among these: a part of them, in another order. */
static void renumber(struct kvr_rng *rng, struct instance *in, const struct kvr_plan *last)
{
    uint16_t free[DESTINATIONS];
    uint32_t left = in->destinations;
    for (uint32_t r = 0; r < left; r++)
        free[r] = (uint16_t)r;
    for (uint32_t r = 0; r < last->destinations; r++) {
        in->now[r] = KVR_PLAN_GONE;
        if (left == 0 || kvr_rng_below(rng, 8) == 0)
            continue;
        uint32_t chosen = kvr_rng_below(rng, 2) ? 0 : (uint32_t)kvr_rng_below(rng, left);
        in->now[r] = free[chosen];
        free[chosen] = free[--left];
    }
    in->input.last = last;
    in->input.now = in->now;
}

static void assert_equal(const struct naive *n, const struct kvr_plan *plan)
{
    const struct instance *in = n->in;
    for (uint32_t i = 0; i < in->len; i++) {
        uint32_t count;
        const uint16_t *assigned = kvr_plan_lookup(plan, in->keys[i].key, &count);
        assert_int_equal(count, n->counts[i]);
        for (uint32_t copy = 0; copy < count; copy++) {
            assert_true(is_at(n, i, count, assigned[copy]));
            for (uint32_t other = 0; other < copy; other++)
                assert_int_not_equal(assigned[copy], assigned[other]);
        }
    }
    assert_memory_equal(plan->loads, n->loads, in->destinations * sizeof *plan->loads);
}

/* Placements of both plans, counted one by one. */
static void assert_change(const struct naive *n, const struct kvr_plan *plan, double life)
{
    const struct instance *in = n->in;
    const struct kvr_plan *last = in->input.last;
    struct kvr_plan_change change;
    kvr_plan_compare(plan, &in->input, life, &change);
    uint32_t kept = 0, both = 0, moved = 0;
    double rate = 0, warmup = 0;
    for (uint32_t i = 0; i < in->len; i++) {
        uint32_t had, has, same = 0;
        const uint16_t *a = kvr_plan_lookup(last, in->keys[i].key, &had);
        const uint16_t *b = kvr_plan_lookup(plan, in->keys[i].key, &has);
        for (uint32_t j = 0; j < had; j++)
            for (uint32_t k = 0; k < has; k++)
                same += in->now[a[j]] == b[k];
        kept += same;
        both += had && has;
        if (!had || !has || same == has)
            continue;
        moved += same < had;
        rate += in->keys[i].rate * (has - same) / has;
        warmup += in->sizes[i].tokens * (has - same);
    }
    assert_int_equal(change.kept, kept);
    assert_int_equal(change.added, plan->copies - kept);
    assert_int_equal(change.removed, last->copies - kept);
    assert_int_equal(change.keys_both, both);
    assert_int_equal(change.keys_moved, moved);
    assert_near(change.rate_moved, rate);
    assert_near(change.warmup, warmup);
    assert_int_equal(change.verdict, change.added + change.removed == 0 ? KVR_PLAN_SAME
                                     : life == 0 || change.staleness > change.warmup
                                         ? KVR_PLAN_INSTALL
                                         : KVR_PLAN_NOT_WORTH);
}

static void random_instances_equal_the_naive_planner(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 4);
    uint32_t moves = 0, kept = 0, splits = 0, roomless = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        static struct instance first, second;
        static struct naive naive;
        draw_keys(&rng, &first);
        draw_fleet(&rng, &first);
        draw_options(&rng, &first.options);
        struct kvr_plan *last = make(&first.options, &first.input);
        plan_naively(&first, &naive);
        assert_equal(&naive, last);
        draw_keys(&rng, &second);
        draw_fleet(&rng, &second);
        draw_options(&rng, &second.options);
        second.options.keep = kvr_rng_below(&rng, 8) > 0;
        renumber(&rng, &second, last);
        struct kvr_plan *plan = make(&second.options, &second.input);
        plan_naively(&second, &naive);
        assert_equal(&naive, plan);
        assert_change(&naive, plan, kvr_rng_below(&rng, 2) ? 0 : 10 * kvr_rng_double(&rng));
        moves += naive.moves > 0;
        for (uint32_t k = 0; k < second.len; k++)
            kept += naive.had[k] > 0 && naive.counts[k] > 0;
        splits += plan->split > 0;
        roomless += naive.roomless > 0;
        kvr_plan_destroy(plan);
        kvr_plan_destroy(last);
    }
    /* They are not all of one kind. */
    assert_true(moves > 1000 && moves < 9000);
    assert_true(splits > 1000 && splits < 9000);
    assert_true(roomless > 100);
    assert_true(kept > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_placed_stays),
        cmocka_unit_test(copies_of_a_lost_destination_are_placed_anew),
        cmocka_unit_test(the_number_of_copies_is_sticky),
        cmocka_unit_test(those_who_are_in_stay_in),
        cmocka_unit_test(keys_move_and_stay_where_they_may),
        cmocka_unit_test(no_key_is_more_than_a_share),
        cmocka_unit_test(what_saves_most_for_its_size_comes_first),
        cmocka_unit_test(what_is_warm_everywhere_is_worth_less),
        cmocka_unit_test(it_says_whether_it_is_worth_it),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(random_instances_equal_the_naive_planner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
