/* The watchdog's thread, around a slot: started, it gets the loop out of a script that does not
 * end; stopped, it can be started again. */
#include "script_fixture.h"

#include "guard.h"
#include "watchdog.h"

static void it_gets_the_loop_out(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct kvr_watchdog watchdog;
        struct fixture f;
        struct kvr_decision decision;
        fixture_init(&f, KVR_SCRIPT_POLICY, 4);
        assert_false(kvr_guard_active());
        kvr_watchdog_start(&watchdog, 0);
        assert_true(kvr_guard_active());
        fixture_load(&f, POLICY("local first = kvr.least()\n"
                                "while request.serial == 1000 do end\n"
                                "return first"));
        assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        f.picture.request.serial = 1000;
        assert_int_equal(kvr_slot_pick(f.slot, &decision), KVR_E_RUNAWAY);
        kvr_watchdog_stop(&watchdog);
        assert_false(kvr_guard_active());
        fixture_deinit(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_gets_the_loop_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
