/* Time to make a plan, all keys admitted, from lognormal rates with the Gini coefficient of 0.756
 * of the CacheRoute paper (which reports 345 ms for 128,824 keys and 30 destinations), and to look
 * a key up in it; and to make one that goes on from it when all rates have changed by a lognormal
 * factor of sigma 0.3, with what it changes. The best of several. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "memory.h"
#include "plan.h"
#include "plan_change.h"
#include "real.h"
#include "rng.h"

#define PAPER_KEYS 128824u
#define SIGMA      1.6476 /* Gini = 2 Phi(sigma / sqrt 2) - 1 */
#define LOOKUPS    2000000u

static volatile uint64_t sink;

static double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void print_figure(const char *figure, double value, const char *unit)
{
    printf("{\"bench\":\"plan\",\"figure\":\"%s\",\"value\":%.3f,\"unit\":\"%s\"}\n", figure, value,
           unit);
}

static struct kvr_plan_key *make_keys(uint32_t len)
{
    struct kvr_plan_key *keys = kvr_alloc(len * sizeof *keys);
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    for (uint32_t i = 0; i < len; i++)
        keys[i] = (struct kvr_plan_key){kvr_mix64(i + 1),
                                        kvr_real_exp(SIGMA * kvr_real_normal(kvr_rng_next(&rng)))};
    return keys;
}

static struct kvr_plan *make_plan(const struct kvr_plan_key *keys, uint32_t len,
                                  uint32_t destinations)
{
    struct kvr_error error = {0};
    struct kvr_plan *plan =
        kvr_plan_create(&(struct kvr_plan_options){0}, keys, len, NULL, destinations, &error);
    KVR_CHECK(plan && plan->admitted == len);
    return plan;
}

static void measure(uint32_t len, uint32_t destinations, uint32_t times)
{
    struct kvr_plan_key *keys = make_keys(len);
    double best = 1e9, imbalance = 0;
    for (uint32_t i = 0; i < times; i++) {
        double start = clock_ms();
        struct kvr_plan *plan = make_plan(keys, len, destinations);
        best = fmin(best, clock_ms() - start);
        imbalance = plan->imbalance;
        kvr_plan_destroy(plan);
    }
    char figure[64];
    snprintf(figure, sizeof figure, "ms_%u_r%u", len, destinations);
    print_figure(figure, best, "ms");
    snprintf(figure, sizeof figure, "imbalance_%u_r%u", len, destinations);
    print_figure(figure, imbalance, "max/mean");
    kvr_free(keys);
}

static void measure_keep(uint32_t len, uint32_t destinations, uint32_t times)
{
    struct kvr_plan_key *keys = make_keys(len);
    struct kvr_plan *last = make_plan(keys, len, destinations);
    const struct kvr_plan_options options = {.keep = 1, .theta = 0.15, .move_budget = 0.05};
    const struct kvr_plan_input input = {
        .keys = keys, .keys_len = len, .destinations = destinations, .last = last};
    struct kvr_plan_change change = {0};
    double best = 1e9, imbalance = 0;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 2);
    for (uint32_t i = 0; i < len; i++)
        keys[i].rate *= kvr_real_exp(0.3 * kvr_real_normal(kvr_rng_next(&rng)));
    for (uint32_t i = 0; i < times; i++) {
        double start = clock_ms();
        struct kvr_plan *plan = kvr_plan_make(&options, &input, NULL);
        kvr_plan_compare(plan, &input, 60, &change);
        best = fmin(best, clock_ms() - start);
        imbalance = plan->imbalance;
        kvr_plan_destroy(plan);
    }
    char figure[64];
    snprintf(figure, sizeof figure, "keep_ms_%u_r%u", len, destinations);
    print_figure(figure, best, "ms");
    snprintf(figure, sizeof figure, "keep_moved_%u_r%u", len, destinations);
    print_figure(figure, 100.0 * change.keys_moved / len, "% of keys");
    snprintf(figure, sizeof figure, "keep_imbalance_%u_r%u", len, destinations);
    print_figure(figure, imbalance, "max/mean");
    kvr_plan_destroy(last);
    kvr_free(keys);
}

static void measure_lookup(uint32_t len)
{
    struct kvr_plan_key *keys = make_keys(len);
    struct kvr_plan *plan = make_plan(keys, len, 30);
    double best = 1e9;
    for (uint32_t round = 0; round < 3; round++) {
        struct kvr_rng rng;
        kvr_rng_init(&rng, round);
        double start = clock_ms();
        for (uint32_t i = 0; i < LOOKUPS; i++) {
            uint32_t count;
            sink += kvr_plan_lookup(plan, keys[kvr_rng_below(&rng, len)].key, &count)[0];
        }
        best = fmin(best, (clock_ms() - start) * 1e6 / LOOKUPS);
    }
    char figure[64];
    snprintf(figure, sizeof figure, "lookup_ns_%u", len);
    print_figure(figure, best, "ns");
    kvr_plan_destroy(plan);
    kvr_free(keys);
}

int main(void)
{
    measure(PAPER_KEYS, 30, 9);
    measure(PAPER_KEYS, 1000, 9);
    measure(1000000, 30, 3);
    measure(1000000, 1000, 3);
    measure(10000000, 30, 1);
    measure(10000000, 1000, 1);
    measure_keep(PAPER_KEYS, 30, 5);
    measure_keep(PAPER_KEYS, 1000, 5);
    measure_lookup(PAPER_KEYS);
    measure_lookup(10000000);
    return 0;
}
