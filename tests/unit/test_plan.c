/* core/model/plan: named cases of the algorithm, and random instances against a planner that looks
 * at everything each time. */
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
#include "ranking.h"
#include "replica.h"
#include "rng.h"

#define KEYS         60u
#define DESTINATIONS 12u
#define SETS         4u

static struct kvr_plan *make(const struct kvr_plan_options *options,
                             const struct kvr_plan_key *keys, uint32_t len, const double *weights,
                             uint32_t destinations)
{
    struct kvr_error error = {0};
    struct kvr_plan *plan = kvr_plan_create(options, keys, len, weights, destinations, &error);
    if (!plan)
        fail_msg("no plan: %s", error.text);
    return plan;
}

static void assert_goes_to(const struct kvr_plan *plan, uint64_t key, const char *expected)
{
    char text[64] = "";
    uint32_t count;
    const uint16_t *assigned = kvr_plan_lookup(plan, key, &count);
    assert_int_equal(assigned != NULL, count > 0);
    for (uint32_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? " " : "",
                 assigned[i]);
    assert_string_equal(text, expected);
}

static void longest_first_to_the_least_loaded(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 4}, {2, 7}, {3, 5}, {4, 6}, {5, 3}};
    struct kvr_plan *plan = make(&(struct kvr_plan_options){0}, keys, 5, NULL, 2);
    assert_goes_to(plan, 2, "0"); /* 7 | 0 */
    assert_goes_to(plan, 4, "1"); /* 7 | 6 */
    assert_goes_to(plan, 3, "1"); /* 7 | 11 */
    assert_goes_to(plan, 1, "0"); /* 11 | 11 */
    assert_goes_to(plan, 5, "0"); /* 14 | 11 */
    assert_goes_to(plan, 6, "");
    assert_true(plan->loads[0] == 14 && plan->loads[1] == 11);
    assert_true(plan->imbalance == 14.0 * 2 / 25);
    assert_int_equal(plan->entries[0].key, 2);
    assert_int_equal(plan->entries[4].key, 5);
    kvr_plan_destroy(plan);
}

static void equal_rates_go_by_key(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{9, 1}, {UINT64_MAX, 1}, {0, 1}, {7, 1}};
    struct kvr_plan *plan = make(&(struct kvr_plan_options){.slots = 3}, keys, 4, NULL, 4);
    assert_goes_to(plan, 0, "0");
    assert_goes_to(plan, 7, "1");
    assert_goes_to(plan, 9, "2");
    assert_goes_to(plan, UINT64_MAX, "");
    assert_true(plan->tail_rate == 1);
    assert_true(plan->loads[3] == 0.25);
    kvr_plan_destroy(plan);
}

static void a_hot_key_has_distinct_destinations(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 10}, {2, 4}, {3, 4.5}};
    struct kvr_plan *plan = make(&(struct kvr_plan_options){.q_cap = 4}, keys, 3, NULL, 4);
    assert_goes_to(plan, 1, "0 1 2"); /* ceil(10 / 4) */
    assert_goes_to(plan, 3, "3 0");   /* 2.25 each */
    assert_goes_to(plan, 2, "3");     /* 2.25 is below 10 / 3 */
    assert_int_equal(plan->copies, 6);
    assert_int_equal(plan->split, 2);
    kvr_plan_destroy(plan);
    /* No more copies than destinations. */
    plan = make(&(struct kvr_plan_options){.q_cap = 1e-300}, keys, 3, NULL, 2);
    assert_goes_to(plan, 1, "0 1");
    assert_goes_to(plan, 2, "0 1");
    kvr_plan_destroy(plan);
}

static void overflow_ends_admission_or_is_skipped(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 9}, {2, 8}, {3, 3}, {4, 2}};
    struct kvr_plan_options options = {.q_cap = 3, .slots = 5};
    struct kvr_plan *plan = make(&options, keys, 4, NULL, 8);
    assert_int_equal(plan->admitted, 1); /* 3 copies; key 2 wants 3 more */
    assert_goes_to(plan, 3, "");
    assert_true(plan->admitted_rate == 9 && plan->tail_rate == 13);
    kvr_plan_destroy(plan);
    options.skip = 1;
    plan = make(&options, keys, 4, NULL, 8);
    assert_int_equal(plan->admitted, 3);
    assert_int_equal(plan->copies, 5);
    assert_goes_to(plan, 2, "");
    assert_goes_to(plan, 3, "3");
    assert_goes_to(plan, 4, "4");
    kvr_plan_destroy(plan);
}

static void a_heavy_destination_takes_more(void **state)
{
    (void)state;
    const struct kvr_plan_key keys[] = {{1, 6}, {2, 6}, {3, 6}, {4, 4}};
    const double weights[] = {1, 3};
    struct kvr_plan *plan = make(&(struct kvr_plan_options){.slots = 3}, keys, 4, weights, 2);
    assert_goes_to(plan, 1, "1"); /* the tail is 1 | 3; 7 / 1 against 9 / 3 */
    assert_goes_to(plan, 2, "1"); /* 15 / 3 */
    assert_goes_to(plan, 3, "0"); /* 7 / 1 against 21 / 3: a tie */
    assert_true(plan->loads[0] == 7 && plan->loads[1] == 15);
    assert_true(plan->imbalance == 7.0 * 4 / 22);
    kvr_plan_destroy(plan);
}

static void nothing_to_plan(void **state)
{
    (void)state;
    struct kvr_plan *plan = make(&(struct kvr_plan_options){0}, NULL, 0, NULL, 3);
    assert_int_equal(plan->admitted, 0);
    assert_true(plan->imbalance == 1);
    assert_goes_to(plan, 0, "");
    kvr_plan_destroy(plan);
    const struct kvr_plan_key idle = {5, 0};
    plan = make(&(struct kvr_plan_options){.q_cap = 2}, &idle, 1, NULL, 3);
    assert_goes_to(plan, 5, "0");
    kvr_plan_destroy(plan);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    const struct kvr_plan_options plain = {0};
    struct kvr_error error = {0};
    const struct kvr_plan_key bad[] = {{1, -1}, {1, (double)NAN}, {1, (double)INFINITY}};
    for (uint32_t i = 0; i < 3; i++) {
        assert_null(kvr_plan_create(&plain, &bad[i], 1, NULL, 2, &error));
        assert_int_equal(error.code, KVR_E_INVALID);
    }
    const struct kvr_plan_key twice[] = {{1, 1}, {1, 2}};
    assert_null(kvr_plan_create(&plain, twice, 2, NULL, 2, &error));
    assert_int_equal(error.code, KVR_E_EXISTS);
    assert_null(kvr_plan_create(&plain, twice, 1, NULL, 0, &error));
    assert_null(kvr_plan_create(&plain, twice, 1, NULL, KVR_REPLICAS_MAX + 1, &error));
    assert_null(kvr_plan_create(&plain, twice, 1, (const double[]){1, 0}, 2, &error));
    assert_int_equal(error.code, KVR_E_INVALID);
    assert_null(
        kvr_plan_create(&(struct kvr_plan_options){.q_cap = -1}, twice, 1, NULL, 1, &error));
    assert_null(kvr_plan_create(&plain, twice, KVR_PLAN_KEYS_MAX + 1, NULL, 1, &error));
    assert_int_equal(error.code, KVR_E_LIMIT);
}

/* ---- against the naive planner ---- */

struct instance {
    struct kvr_plan_options options;
    struct kvr_plan_key keys[KEYS];
    double weights[DESTINATIONS];
    uint64_t sets[SETS + 1]; /* and all destinations, when there are sets */
    uint16_t set_of[KEYS];
    uint32_t len, destinations, sets_len;
    double counted;
    bool weighted;
};

struct naive {
    bool assigned[KEYS][DESTINATIONS]; /* by key of the instance */
    double loads[DESTINATIONS];
    uint32_t admitted, copies;
};

static int compare_keys(const void *left, const void *right)
{
    const struct kvr_plan_key *a = *(const struct kvr_plan_key *const *)left;
    const struct kvr_plan_key *b = *(const struct kvr_plan_key *const *)right;
    if (a->rate != b->rate)
        return a->rate > b->rate ? -1 : 1;
    return (a->key > b->key) - (a->key < b->key);
}

/* Does `a` take the copy rather than `b`? */
static bool is_better(const struct instance *in, const double *loads, uint32_t a, uint32_t b,
                      double load)
{
    double left = loads[a], right = loads[b];
    bool alike = in->weights[a] == in->weights[b];
    for (uint32_t i = 0; i < in->sets_len; i++)
        alike = alike && (in->sets[i] >> a & 1) == (in->sets[i] >> b & 1);
    if (!alike) {
        left = (left + load) / in->weights[a];
        right = (right + load) / in->weights[b];
    }
    return left != right ? left < right : a < b;
}

/* Of a key: the set it may go to. */
static uint64_t set_of(const struct instance *in, const struct kvr_plan_key *key)
{
    return in->sets[in->sets_len ? in->set_of[key - in->keys] : 0];
}

static uint32_t size_of(uint64_t set)
{
    return (uint32_t)__builtin_popcountll(set);
}

/* Do so many copies fit all sets that hold the key's own, where no key before has been too many? */
static bool is_admitted(const struct instance *in, uint64_t own, uint32_t k, uint32_t *used,
                        bool *over)
{
    bool all = true;
    for (uint32_t i = 0; i <= in->sets_len; i++) {
        uint32_t room = in->options.slots * size_of(in->sets[i]) / in->destinations;
        if (own & ~in->sets[i])
            continue;
        bool fits = in->options.slots == 0 ? in->sets[i] != 0 : used[i] + k <= room;
        over[i] = over[i] || (!fits && !in->options.skip);
        all = all && fits && !over[i];
    }
    for (uint32_t i = 0; all && i <= in->sets_len; i++)
        used[i] += own & ~in->sets[i] ? 0 : k;
    return all;
}

static void add_tails(const struct instance *in, const double *tails, double *loads)
{
    for (uint32_t i = 0; i <= in->sets_len; i++) {
        double weight = 0;
        for (uint32_t r = 0; r < in->destinations; r++)
            weight += in->sets[i] >> r & 1 ? in->weights[r] : 0;
        for (uint32_t r = 0; r < in->destinations; r++)
            if (in->sets[i] >> r & 1)
                loads[r] += tails[i] * in->weights[r] / weight;
    }
}

static double cap_of(const struct instance *in)
{
    return in->counted > 0 ? fmax(in->options.q_cap, KVR_PLAN_SPLIT_COUNT / in->counted)
                           : in->options.q_cap;
}

static void plan_naively(const struct instance *in, struct naive *naive)
{
    const struct kvr_plan_key *order[KEYS];
    uint32_t copies[KEYS], used[SETS + 1] = {0};
    double tails[SETS + 1] = {0};
    bool over[SETS + 1] = {false};
    memset(naive, 0, sizeof *naive);
    for (uint32_t i = 0; i < in->len; i++)
        order[i] = &in->keys[i];
    qsort(order, in->len, sizeof *order, compare_keys);
    for (uint32_t i = 0; i < in->len; i++) {
        uint64_t set = set_of(in, order[i]);
        double k = in->options.q_cap > 0 ? ceil(order[i]->rate / cap_of(in)) : 1;
        k = fmax(1, fmin(size_of(set), k));
        copies[i] = is_admitted(in, set, (uint32_t)k, used, over) ? (uint32_t)k : 0;
        naive->copies += copies[i];
        naive->admitted += copies[i] > 0;
        if (!copies[i])
            tails[in->sets_len ? in->set_of[order[i] - in->keys] : 0] += order[i]->rate;
    }
    add_tails(in, tails, naive->loads);
    for (uint32_t i = 0; i < in->len; i++) {
        bool *assigned = naive->assigned[order[i] - in->keys];
        double load = order[i]->rate / copies[i];
        for (uint32_t copy = 0; copy < copies[i]; copy++) {
            uint32_t best = UINT32_MAX;
            for (uint32_t r = 0; r < in->destinations; r++)
                if (!assigned[r] && set_of(in, order[i]) >> r & 1 &&
                    (best == UINT32_MAX || is_better(in, naive->loads, r, best, load)))
                    best = r;
            assigned[best] = true;
        }
        for (uint32_t r = 0; r < in->destinations; r++)
            if (assigned[r])
                naive->loads[r] += load;
    }
}

/* Sets that differ, one of them empty or all at times. */
static void draw_sets(struct kvr_rng *rng, struct instance *in)
{
    uint64_t all = (UINT64_C(1) << in->destinations) - 1;
    in->sets_len = 0;
    for (uint32_t i = 0; kvr_rng_below(rng, 3) && i < SETS; i++) {
        uint64_t set = kvr_rng_next(rng) & all;
        bool known = false;
        for (uint32_t j = 0; j < in->sets_len; j++)
            known = known || in->sets[j] == set;
        if (!known)
            in->sets[in->sets_len++] = set;
    }
    in->sets[in->sets_len] = all;
    for (uint32_t i = 0; in->sets_len && i < in->len; i++)
        in->set_of[i] = (uint16_t)kvr_rng_below(rng, in->sets_len);
}

static void draw(struct kvr_rng *rng, struct instance *in)
{
    static const double weights[] = {1, 2, 4};
    bool whole = kvr_rng_below(rng, 2); /* rates with many ties */
    in->len = (uint32_t)kvr_rng_below(rng, KEYS + 1);
    in->destinations = 1 + (uint32_t)kvr_rng_below(rng, DESTINATIONS);
    in->weighted = kvr_rng_below(rng, 2);
    for (uint32_t r = 0; r < DESTINATIONS; r++)
        in->weights[r] = in->weighted ? weights[kvr_rng_below(rng, 3)] : 1;
    for (uint32_t i = 0; i < in->len; i++)
        in->keys[i] = (struct kvr_plan_key){kvr_mix64(kvr_rng_below(rng, 8) * KEYS + i),
                                            whole ? (double)kvr_rng_below(rng, 6)
                                                  : 100 * pow(kvr_rng_double(rng), 4)};
    in->options = (struct kvr_plan_options){
        .q_cap = kvr_rng_below(rng, 3) ? 0.5 + 20 * kvr_rng_double(rng) : 0,
        .slots = (uint32_t)kvr_rng_below(rng, 2 * KEYS),
        .skip = (uint32_t)kvr_rng_below(rng, 2),
    };
    in->counted = kvr_rng_below(rng, 4) ? 0 : 20 * kvr_rng_double(rng);
    draw_sets(rng, in);
}

static void assert_equal(const struct instance *in, const struct naive *naive,
                         const struct kvr_plan *plan)
{
    assert_int_equal(plan->keys, in->len);
    assert_int_equal(plan->admitted, naive->admitted);
    assert_int_equal(plan->copies, naive->copies);
    for (uint32_t i = 0; i < in->len; i++) {
        bool found[DESTINATIONS] = {false};
        uint32_t count;
        const uint16_t *assigned = kvr_plan_lookup(plan, in->keys[i].key, &count);
        for (uint32_t copy = 0; copy < count; copy++) {
            assert_false(found[assigned[copy]]);
            found[assigned[copy]] = true;
        }
        assert_memory_equal(found, naive->assigned[i], sizeof found);
    }
    assert_memory_equal(plan->loads, naive->loads, in->destinations * sizeof *plan->loads);
}

static void random_instances_equal_the_naive_planner(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 6);
    uint32_t tails = 0, splits = 0, weighted = 0, sets = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        struct instance in;
        struct naive naive;
        draw(&rng, &in);
        plan_naively(&in, &naive);
        const struct kvr_plan_input input = {
            .keys = in.keys,
            .weights = in.weighted ? in.weights : NULL,
            .sets = in.sets_len ? in.sets : NULL,
            .set_of = in.set_of,
            .sets_len = in.sets_len,
            .keys_len = in.len,
            .destinations = in.destinations,
            .counted = in.counted,
        };
        struct kvr_plan *plan = kvr_plan_make(&in.options, &input, NULL);
        assert_non_null(plan);
        assert_equal(&in, &naive, plan);
        sets += in.sets_len > 1;
        tails += plan->admitted < plan->keys;
        splits += plan->split > 0;
        weighted += in.weighted && plan->admitted > 0;
        kvr_plan_destroy(plan);
    }
    /* They are not all of one kind. */
    assert_true(tails > 1000 && tails < 9000);
    assert_true(splits > 1000 && splits < 9000);
    assert_true(weighted > 1000 && sets > 1000);
}

static void ranking_sorts_and_is_stable(void **state)
{
    (void)state;
    static struct kvr_ranked items[5000], scratch[5000];
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t len = (uint32_t)kvr_rng_below(&rng, round % 10 ? 200 : 5000);
        uint64_t mask = kvr_rng_next(&rng) & kvr_rng_next(&rng) & kvr_rng_next(&rng);
        for (uint32_t i = 0; i < len; i++)
            items[i] = (struct kvr_ranked){kvr_rng_next(&rng) & mask, i};
        kvr_ranking_sort(items, scratch, len);
        for (uint32_t i = 1; i < len; i++)
            assert_true(items[i - 1].rank < items[i].rank ||
                        (items[i - 1].rank == items[i].rank && items[i - 1].item < items[i].item));
    }
    const double falling[] = {INFINITY, 1e300, 2, 1, 1e-310, 0, -1e-310, -1, -INFINITY};
    for (uint32_t i = 1; i < sizeof falling / sizeof falling[0]; i++)
        assert_true(kvr_ranking_falling(falling[i - 1]) < kvr_ranking_falling(falling[i]));
    assert_true(kvr_ranking_falling(0.0) == kvr_ranking_falling(-0.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longest_first_to_the_least_loaded),
        cmocka_unit_test(equal_rates_go_by_key),
        cmocka_unit_test(a_hot_key_has_distinct_destinations),
        cmocka_unit_test(overflow_ends_admission_or_is_skipped),
        cmocka_unit_test(a_heavy_destination_takes_more),
        cmocka_unit_test(nothing_to_plan),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(random_instances_equal_the_naive_planner),
        cmocka_unit_test(ranking_sorts_and_is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
