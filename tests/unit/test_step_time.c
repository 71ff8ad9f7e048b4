/* core/engine/step_time: both forms against the formula in floating point, and jitter as a function
 * of the step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "profile.h"
#include "rng.h"
#include "step_time.h"

static double formula_ms(const struct kvr_profile *p, const struct kvr_step_shape *shape)
{
    double prefill = (double)shape->prefill_tokens;
    double context = (double)shape->prefill_context / 2.0;
    double decoding = (double)shape->decoding;
    double reading = (double)shape->decode_context * p->decode_context_ms;
    double ms = p->step_floor_ms + (prefill > 0.0 ? p->prefill_step_ms : 0.0) +
                p->prefill_context_ms * context + p->decode_seq_ms * decoding +
                p->decode_seq_squared_ms * decoding * decoding;
    if (p->form == KVR_STEP_LINEAR)
        return ms + p->prefill_token_ms * prefill + reading;
    return ms + fmax(p->weights_ms + reading, p->prefill_token_ms * (prefill + decoding));
}

static struct kvr_step_shape random_shape(struct kvr_rng *rng)
{
    struct kvr_step_shape shape = {.decoding = kvr_rng_below(rng, 257)};
    shape.decode_context = shape.decoding * kvr_rng_below(rng, 8000);
    if (kvr_rng_below(rng, 2)) {
        shape.prefill_tokens = 1 + kvr_rng_below(rng, 8192);
        shape.prefill_context = shape.prefill_tokens * kvr_rng_below(rng, 100000);
    }
    return shape;
}

static void test_formula(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    for (size_t i = 0; kvr_profile_at(i); i++) {
        struct kvr_profile profile = *kvr_profile_at(i);
        profile.jitter = 0.0;
        struct kvr_step_time time;
        kvr_step_time_init(&time, &profile, 0);
        for (int k = 0; k < 10000; k++) {
            struct kvr_step_shape shape = random_shape(&rng);
            double want_ns = formula_ms(&profile, &shape) * 1e6;
            assert_true(fabs((double)kvr_step_time_ns(&time, 0, &shape) - want_ns) < 0.51);
        }
    }
}

static void test_jitter_belongs_to_the_step(void **state)
{
    (void)state;
    struct kvr_profile profile = *kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
    struct kvr_step_time ahead, behind, other;
    kvr_step_time_init(&ahead, &profile, 1);
    kvr_step_time_init(&behind, &profile, 1);
    kvr_step_time_init(&other, &profile, 2);
    struct kvr_step_shape shape = {.decoding = 5, .decode_context = 5000};
    uint64_t times[300];
    for (uint64_t step = 0; step < 300; step++)
        times[step] = kvr_step_time_ns(&ahead, step, &shape);
    int differ = 0;
    for (uint64_t step = 300; step-- > 0;) {
        assert_int_equal(kvr_step_time_ns(&behind, step, &shape), times[step]);
        differ += kvr_step_time_ns(&other, step, &shape) != times[step];
    }
    assert_true(differ > 290);

    /* A slow GPU is slow by its factor on top of the jitter. */
    ahead.slowdown = 2.0;
    for (uint64_t step = 0; step < 300; step++) {
        double ratio = (double)kvr_step_time_ns(&ahead, step, &shape) / (double)times[step];
        assert_true(fabs(ratio - 2.0) < 1e-6);
    }
}

static void test_never_zero(void **state)
{
    (void)state;
    struct kvr_profile nothing = {.name = "nothing"};
    struct kvr_step_time time;
    kvr_step_time_init(&time, &nothing, 0);
    assert_int_equal(kvr_step_time_ns(&time, 0, &(struct kvr_step_shape){0}), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),
        cmocka_unit_test(test_jitter_belongs_to_the_step),
        cmocka_unit_test(test_never_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
