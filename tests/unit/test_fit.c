/* Fitting: constants come back from the times that they gave, whatever the form, with noise, and
 * where the observations tell nothing of some. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fit.h"
#include "rng.h"

#define ROWS  400
#define STEPS 4

struct bench {
    struct kvr_step_shape steps[ROWS][STEPS];
    struct kvr_fit_row rows[ROWS];
};

/* Random rows of one to four steps, timed by `truth` and then wrong by up to `noise`. */
static void make(struct bench *bench, const struct kvr_profile *truth, double noise, uint64_t seed)
{
    struct kvr_rng rng;
    kvr_rng_init(&rng, seed);
    for (int i = 0; i < ROWS; i++) {
        struct kvr_fit_row *row = &bench->rows[i];
        *row = (struct kvr_fit_row){
            .paths = (double)kvr_rng_below(&rng, 2),
            .steps = bench->steps[i],
            .steps_len = 1 + (uint32_t)kvr_rng_below(&rng, STEPS),
        };
        for (uint32_t k = 0; k < row->steps_len; k++) {
            uint64_t chunk = kvr_rng_below(&rng, 2) * kvr_rng_below(&rng, 2048);
            uint64_t decoding = kvr_rng_below(&rng, 64);
            bench->steps[i][k] = (struct kvr_step_shape){
                .prefill_tokens = chunk,
                .prefill_context = chunk * (2 * kvr_rng_below(&rng, 4096) + chunk),
                .decoding = decoding,
                .decode_context = decoding * kvr_rng_below(&rng, 4096),
            };
        }
        double wrong = 1 + noise * (2 * kvr_rng_double(&rng) - 1);
        row->ms = kvr_fit_predict(truth, row) * wrong;
    }
}

static void assert_near(const char *what, double value, double truth, double tolerance)
{
    if (!(fabs(value - truth) <= tolerance * truth + 1e-9))
        fail_msg("%s is %.6g, was %.6g", what, value, truth);
}

static void assert_recovered(const struct kvr_profile *fitted, const struct kvr_profile *truth,
                             double tolerance)
{
    assert_int_equal(fitted->form, truth->form);
    assert_near("floor", fitted->step_floor_ms, truth->step_floor_ms, tolerance);
    assert_near("weights", fitted->weights_ms, truth->weights_ms, tolerance);
    assert_near("prefill step", fitted->prefill_step_ms, truth->prefill_step_ms, tolerance);
    assert_near("prefill token", fitted->prefill_token_ms, truth->prefill_token_ms, tolerance);
    assert_near("prefill context", fitted->prefill_context_ms, truth->prefill_context_ms,
                tolerance);
    assert_near("decode seq", fitted->decode_seq_ms, truth->decode_seq_ms, tolerance);
    assert_near("decode seq squared", fitted->decode_seq_squared_ms, truth->decode_seq_squared_ms,
                tolerance);
    assert_near("decode context", fitted->decode_context_ms, truth->decode_context_ms, tolerance);
    assert_near("overhead", fitted->overhead_ms, truth->overhead_ms, tolerance);
}

static void test_every_profile_comes_back(void **state)
{
    (void)state;
    static struct bench bench;
    const struct kvr_profile *truth;
    for (size_t i = 0; (truth = kvr_profile_at(i)); i++) {
        struct kvr_profile fitted = {.blocks = 7};
        struct kvr_fit_report report;
        make(&bench, truth, 0, i);
        assert_int_equal(kvr_fit(bench.rows, ROWS, truth->form, &fitted, &report), KVR_OK);
        assert_recovered(&fitted, truth, 1e-3);
        assert_true(report.worst < 1e-5 && report.median <= report.p90);
        assert_int_equal(fitted.blocks, 7); /* what is no time is not touched */
    }
}

static void test_noise(void **state)
{
    (void)state;
    static struct bench bench;
    const struct kvr_profile *truth = kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
    struct kvr_profile fitted = {0};
    struct kvr_fit_report report;
    make(&bench, truth, 0.05, 1);
    assert_int_equal(kvr_fit(bench.rows, ROWS, KVR_STEP_LINEAR, &fitted, &report), KVR_OK);
    assert_near("prefill token", fitted.prefill_token_ms, truth->prefill_token_ms, 0.03);
    assert_near("decode context", fitted.decode_context_ms, truth->decode_context_ms, 0.15);
    assert_true(report.median > 0.01 && report.median < 0.04 && report.worst < 0.08);
}

/* Negative constants are no constants: what would want one is zero, and the rest makes do. */
static void test_never_negative(void **state)
{
    (void)state;
    const struct kvr_step_shape steps[] = {
        {.decoding = 1}, {.decoding = 2}, {.decoding = 4}, {.decoding = 8}};
    struct kvr_fit_row rows[4];
    const double ms[] = {10, 9, 8, 7};
    for (int i = 0; i < 4; i++)
        rows[i] = (struct kvr_fit_row){.ms = ms[i], .steps = &steps[i], .steps_len = 1};
    struct kvr_profile fitted = {0};
    assert_int_equal(kvr_fit(rows, 4, KVR_STEP_LINEAR, &fitted, NULL), KVR_OK);
    assert_true(fitted.decode_seq_ms == 0 && fitted.decode_seq_squared_ms == 0);
    assert_true(fitted.step_floor_ms > 7 && fitted.step_floor_ms < 10);
}

/* Steps of one kind only: what nothing was seen of is zero, and no row is missed. */
static void test_little_is_known(void **state)
{
    (void)state;
    const struct kvr_step_shape steps[] = {{.prefill_tokens = 100, .prefill_context = 10000},
                                           {.prefill_tokens = 200, .prefill_context = 40000}};
    struct kvr_fit_row rows[] = {{.ms = 12, .steps = &steps[0], .steps_len = 1},
                                 {.ms = 22, .steps = &steps[1], .steps_len = 1}};
    struct kvr_profile fitted = {.decode_seq_ms = 3};
    struct kvr_fit_report report;
    assert_int_equal(kvr_fit(rows, 2, KVR_STEP_LINEAR, &fitted, &report), KVR_OK);
    assert_true(report.worst < 1e-6);
    assert_true(fitted.decode_seq_ms == 0 && fitted.overhead_ms == 0);
    assert_near("a step", fitted.step_floor_ms + fitted.prefill_step_ms, 2, 0.2);
    assert_int_equal(kvr_fit(rows, 0, KVR_STEP_LINEAR, &fitted, NULL), KVR_E_INVALID);
    rows[1].ms = 0;
    assert_int_equal(kvr_fit(rows, 2, KVR_STEP_LINEAR, &fitted, NULL), KVR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_profile_comes_back),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_never_negative),
        cmocka_unit_test(test_little_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
