/* core/base/sketch: percentiles against sorted samples. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rng.h"
#include "sketch.h"

#define SAMPLES 5000

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* As numpy.percentile does. */
static double exact(const uint64_t *sorted, uint64_t count, double share)
{
    double place = share * (double)(count - 1);
    uint64_t low = (uint64_t)place;
    uint64_t high = low + 1 < count ? low + 1 : low;
    double step = (double)sorted[high] - (double)sorted[low];
    return (double)sorted[low] + step * (place - (double)low);
}

static void check_against_sorted(uint64_t seed, uint32_t count, uint32_t bits)
{
    static uint64_t samples[SAMPLES];
    static const double shares[] = {0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1};
    struct kvr_sketch sketch = {0};
    struct kvr_rng rng;
    kvr_rng_init(&rng, seed);
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        samples[i] = kvr_rng_next(&rng) >> (64 - 1 - kvr_rng_below(&rng, bits));
        kvr_sketch_add(&sketch, samples[i]);
        sum += (double)samples[i];
    }
    qsort(samples, count, sizeof samples[0], compare);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        double want = exact(samples, count, shares[i]);
        double got = kvr_sketch_quantile(&sketch, shares[i]);
        if (fabs(got - want) > want * 0.00013 + 1e-9)
            fail_msg("seed %d, share %g: %f instead of %f", (int)seed, shares[i], got, want);
    }
    assert_true(fabs(kvr_sketch_mean(&sketch) - sum / count) <= 1e-9 * sum);
    assert_true(sketch.least == samples[0] && sketch.most == samples[count - 1]);
    kvr_sketch_deinit(&sketch);
}

static void test_percentiles(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++)
        check_against_sorted(seed, 1 + (uint32_t)seed * 113 % SAMPLES, 8 + (uint32_t)seed % 38);
}

static void test_few(void **state)
{
    (void)state;
    struct kvr_sketch sketch = {0};
    assert_true(isnan(kvr_sketch_mean(&sketch)));
    assert_true(isnan(kvr_sketch_quantile(&sketch, 0.5)));
    assert_true(isnan(kvr_sketch_deviation(&sketch)));
    kvr_sketch_add(&sketch, 10);
    assert_true(kvr_sketch_quantile(&sketch, 0.99) == 10);
    for (int i = 0; i < 3; i++)
        kvr_sketch_add(&sketch, 20);
    assert_int_equal(sketch.count, 4);
    assert_true(kvr_sketch_quantile(&sketch, 0.5) == 20);
    assert_true(kvr_sketch_quantile(&sketch, 1.0 / 6) == 15);
    assert_true(fabs(kvr_sketch_deviation(&sketch) - sqrt(18.75)) < 1e-9);
    kvr_sketch_deinit(&sketch);
}

/* Beyond the last step order is lost, but nothing else. */
static void test_giants(void **state)
{
    (void)state;
    struct kvr_sketch sketch = {0};
    kvr_sketch_add(&sketch, UINT64_MAX);
    kvr_sketch_add(&sketch, (UINT64_C(1) << 46) - 1);
    assert_true(kvr_sketch_quantile(&sketch, 1) == (double)UINT64_MAX);
    assert_true(kvr_sketch_quantile(&sketch, 0) == (double)((UINT64_C(1) << 46) - 1));
    kvr_sketch_deinit(&sketch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),
        cmocka_unit_test(test_few),
        cmocka_unit_test(test_giants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
