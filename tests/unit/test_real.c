/* core/base/real: against the C library where that is good enough, and bit patterns that pin the
 * results of this implementation on every machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "real.h"
#include "rng.h"

static void assert_near(double got, double want, double relative)
{
    double scale = fabs(want) > 1e-300 ? fabs(want) : 1e-300;
    if (!(fabs(got - want) / scale <= relative))
        fail_msg("got %.17g, want %.17g", got, want);
}

static void test_exp(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    for (int i = 0; i < 200000; i++) {
        double x = kvr_rng_double(&rng) * 1400.0 - 700.0;
        assert_near(kvr_real_exp(x), exp(x), 1e-15);
        x = (kvr_rng_double(&rng) - 0.5) * 1e-3;
        assert_near(kvr_real_exp(x), exp(x), 3e-16);
    }
    assert_true(kvr_real_exp(0.0) == 1.0);
    assert_true(isinf(kvr_real_exp(710.0)));
    assert_true(kvr_real_exp(-746.0) == 0.0);
    assert_true(kvr_real_exp(-744.0) > 0.0);
    assert_true(isnan(kvr_real_exp((double)NAN)));
}

static void test_log(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 2);
    for (int i = 0; i < 200000; i++) {
        double x = exp(kvr_rng_double(&rng) * 1400.0 - 700.0);
        assert_near(kvr_real_log(x), log(x), 1e-15);
        x = 1.0 + (kvr_rng_double(&rng) - 0.5) * 1e-3;
        assert_near(kvr_real_log(x), log(x), 1e-15);
    }
    assert_true(kvr_real_log(1.0) == 0.0);
    assert_near(kvr_real_log(4.9406564584124654e-324), -744.44007192138122, 1e-15);
    assert_true(isinf(kvr_real_log(0.0)) && kvr_real_log(0.0) < 0.0);
    assert_true(isnan(kvr_real_log(-1.0)));
    assert_true(isinf(kvr_real_log((double)INFINITY)));
}

static void test_pow(void **state)
{
    (void)state;
    assert_near(kvr_real_pow(2.0, 10.0), 1024.0, 1e-14);
    assert_near(kvr_real_pow(10.0, -1.4), pow(10.0, -1.4), 1e-14);
    assert_true(kvr_real_pow(0.0, 0.0) == 1.0);
    assert_true(kvr_real_pow(0.0, 2.0) == 0.0);
}

/* The quantile must undo the distribution function, which erfc gives. */
static void test_normal_quantile(void **state)
{
    (void)state;
    for (double z = -8.0; z <= 8.0; z += 0.001) {
        double p = 0.5 * erfc(-z / sqrt(2.0));
        /* Above 1/2 the rounding of p itself is what limits. */
        double error = p > 0.5 ? 2e-9 : 2e-14;
        if (p < 1.0 - 1e-9)
            assert_near(kvr_real_normal_quantile(p) + 10.0, z + 10.0, error);
    }
    assert_true(kvr_real_normal_quantile(0.5) == 0.0);
}

static void test_normal_moments(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 3);
    double sum = 0.0, squares = 0.0, fourth = 0.0;
    int n = 1000000;
    for (int i = 0; i < n; i++) {
        double z = kvr_real_normal(kvr_rng_next(&rng));
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
    }
    assert_true(fabs(sum / n) < 0.005);
    assert_true(fabs(squares / n - 1.0) < 0.005);
    assert_true(fabs(fourth / n - 3.0) < 0.05);
    assert_true(isfinite(kvr_real_normal(0)));
    assert_true(isfinite(kvr_real_normal(UINT64_MAX)));
    assert_true(kvr_real_normal(0) == -kvr_real_normal(UINT64_MAX));
}

/* A digest of many results: it changes when any last bit does, on any compiler or machine. */
static void test_same_bits_everywhere(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 4);
    uint64_t digest = 0;
    for (int i = 0; i < 100000; i++) {
        double values[3];
        uint64_t draw = kvr_rng_next(&rng);
        values[0] = kvr_real_normal(draw);
        values[1] = kvr_real_exp(values[0] * 20.0);
        values[2] = kvr_real_log(values[1]);
        for (int k = 0; k < 3; k++) {
            uint64_t bits;
            memcpy(&bits, &values[k], sizeof bits);
            digest = kvr_mix64(digest ^ bits);
        }
    }
    assert_int_equal(digest, UINT64_C(0x0f567f4d06f771df));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_normal_quantile),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_same_bits_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
