/* core/engine against a naive one, over random schedules (engine_schedule.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_schedule.h"

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
#define SCHEDULES 1500
#else
#define SCHEDULES 10000
#endif

static uint32_t draw(void *dice, uint32_t bound)
{
    return (uint32_t)kvr_rng_below(dice, bound);
}

static void test_random_schedules(void **state)
{
    (void)state;
    static struct schedule s;
    struct kvr_rng rng;
    s.draw = draw;
    s.dice = &rng;
    for (uint64_t seed = 0; seed < SCHEDULES; seed++) {
        kvr_rng_init(&rng, seed);
        run_schedule(&s, seed);
    }
    /* The rare things did happen. */
    assert_true(s.seen.preemptions > SCHEDULES / 10);
    assert_true(s.seen.restarts > SCHEDULES / 10);
    assert_true(s.seen.resets > SCHEDULES / 100);
    assert_true(s.seen.refused_resets > SCHEDULES / 100);
    assert_true(s.seen.refusals > SCHEDULES / 10);
    assert_true(s.seen.aborts > SCHEDULES);
    assert_true(s.seen.hits > SCHEDULES * 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
