/* core/engine/step_log: ranges over the ring's end, growth, and medians against sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rng.h"
#include "step_log.h"

static uint64_t duration_of(uint64_t step)
{
    return kvr_mix64(step + 1) % 1000;
}

static void test_ranges_and_growth(void **state)
{
    (void)state;
    struct kvr_step_log log;
    kvr_step_log_init(&log);
    static uint64_t out[2 * KVR_STEP_LOG_MAX];
    uint64_t kept = 256;
    for (uint64_t step = 0; step < 5000; step++) {
        kvr_step_log_put(&log, step, duration_of(step));
        if (step == 1000 || step == 3001) {
            /* Nothing that was remembered is lost by growing. */
            kvr_step_log_ensure(&log, step, step);
            uint64_t first = step + 1 - kept;
            assert_int_equal(kvr_step_log_copy(&log, first, step, out), kept);
            for (uint64_t i = 0; i < kept; i++)
                assert_int_equal(out[i], duration_of(first + i));
            kept = log.mask + 1;
        }
    }
    assert_int_equal(kvr_step_log_copy(&log, 4700, 4999, out), 300);
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(out[i], duration_of(4700 + i));
    assert_int_equal(kvr_step_log_copy(&log, 5000, 4999, out), 0);

    /* The limit: of a longer range, the latest so many. */
    kvr_step_log_ensure(&log, 10 * KVR_STEP_LOG_MAX, 5000);
    assert_int_equal(log.mask + 1, KVR_STEP_LOG_MAX);
    uint64_t last = 3 * KVR_STEP_LOG_MAX;
    for (uint64_t step = 5000; step <= last; step++)
        kvr_step_log_put(&log, step, duration_of(step));
    assert_int_equal(kvr_step_log_copy(&log, 0, last, out), KVR_STEP_LOG_MAX);
    assert_int_equal(out[0], duration_of(last - KVR_STEP_LOG_MAX + 1));
    assert_int_equal(out[KVR_STEP_LOG_MAX - 1], duration_of(last));
    kvr_step_log_deinit(&log);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_median(void **state)
{
    (void)state;
    struct kvr_step_log log;
    kvr_step_log_init(&log);
    struct kvr_rng rng;
    kvr_rng_init(&rng, 5);
    uint64_t step = 1; /* an empty range is [step, step - 1] */
    for (int round = 0; round < 20000; round++) {
        uint64_t saved[40];
        uint64_t all[140];
        uint64_t saved_len = kvr_rng_below(&rng, 40);
        uint64_t count = kvr_rng_below(&rng, 100);
        /* Few different values, many, rising, falling. */
        uint64_t span = 1 + kvr_rng_below(&rng, round % 2 ? 5 : 100000);
        for (uint64_t i = 0; i < saved_len; i++)
            all[i] = saved[i] = kvr_rng_below(&rng, span);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t value = round % 7 == 0   ? i * span
                             : round % 7 == 1 ? (count - i) * span
                                              : kvr_rng_below(&rng, span);
            all[saved_len + i] = value;
            kvr_step_log_put(&log, step + i, value);
        }
        struct kvr_gap_stats stats =
            kvr_step_log_stats(&log, saved, saved_len, step, step + count - 1);
        step += count;
        uint64_t n = saved_len + count;
        qsort(all, n, sizeof all[0], compare);
        assert_int_equal(stats.p50_ns, n ? all[(n - 1) / 2] : 0);
        assert_int_equal(stats.max_ns, n ? all[n - 1] : 0);
    }
    kvr_step_log_deinit(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_and_growth),
        cmocka_unit_test(test_median),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
