/* A slot over its life: what it loads, keeps, refuses, decides, and hands to the next generation. */
#include "script_fixture.h"

#include "reason.h"

#define FIRST_AVAILABLE "for i = 0, #view - 1 do if view[i].available then return i, 'first' end end"

static void picks_and_names_its_reason(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    fixture_load(&f, POLICY("local i = kvr.nth_available(request.serial)\n"
                            "if i then return i, 'nth', i == 2 end"));
    for (uint32_t serial = 0; serial < 8; serial++) {
        f.picture.request.serial = serial;
        assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
        assert_int_equal(decision.verdict, KVR_VERDICT_PICK);
        assert_int_equal(decision.index, serial % 4);
        assert_int_equal(decision.affine, serial % 4 == 2);
        assert_string_equal(kvr_reason_text(decision.reason), "nth");
    }
    assert_int_equal(kvr_slot_counters(f.slot)->calls, 8);
    assert_int_equal(kvr_slot_info(f.slot)->generation, 1);
    assert_string_equal(kvr_slot_last_error(f.slot), "");
    fixture_deinit(&f);
}

static void an_empty_slot_has_no_opinion(void **state)
{
    (void)state;
    struct fixture f;
    struct kvr_decision decision;
    fixture_init(&f, KVR_SCRIPT_POLICY, 4);
    assert_null(kvr_slot_info(f.slot));
    assert_int_equal(kvr_slot_pick(f.slot, &decision), 0);
    assert_int_equal(decision.verdict, KVR_VERDICT_NONE);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_and_names_its_reason),
        cmocka_unit_test(an_empty_slot_has_no_opinion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
