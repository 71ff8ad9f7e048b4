/* Reasons: one number for one text, for ever, within a bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "reason.h"

static uint16_t intern(const char *text)
{
    return kvr_reason_intern(kvr_slice_of(text));
}

static void a_text_has_one_number(void **state)
{
    (void)state;
    assert_string_equal(kvr_reason_text(0), "none");
    assert_string_equal(kvr_reason_text(1), "other");
    uint16_t prefix = intern("prefix");
    assert_int_equal(intern("prefix"), prefix);
    assert_int_not_equal(intern("prefix_"), prefix);
    assert_string_equal(kvr_reason_text(prefix), "prefix");
    assert_int_equal(intern(""), 0);
    assert_int_equal(intern("none"), 0);
}

static void a_text_is_fit_for_a_label(void **state)
{
    (void)state;
    assert_string_equal(kvr_reason_text(intern("Spill: \"x\"\r\n")), "_pill___x___");
    char longer[200];
    memset(longer, 'a', sizeof longer);
    uint16_t cut = kvr_reason_intern(kvr_slice_make(longer, sizeof longer));
    assert_int_equal(strlen(kvr_reason_text(cut)), KVR_REASON_LEN_MAX);
    assert_int_equal(kvr_reason_intern(kvr_slice_make(longer, KVR_REASON_LEN_MAX)), cut);
    assert_int_equal(kvr_reason_intern(kvr_slice_make("a\0b", 3)), intern("a_b"));
}

/* The last test: it uses up the table. */
static void past_the_bound_all_are_other(void **state)
{
    (void)state;
    uint16_t kept = intern("kept");
    char text[16];
    for (int i = 0; i < 2 * KVR_REASONS_MAX; i++) {
        snprintf(text, sizeof text, "r%d", i);
        uint16_t reason = intern(text);
        if (reason != 1)
            assert_string_equal(kvr_reason_text(reason), text);
    }
    assert_int_equal(kvr_reason_count(), KVR_REASONS_MAX);
    assert_int_equal(intern("one_more"), 1);
    assert_int_equal(intern("kept"), kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_one_number),
        cmocka_unit_test(a_text_is_fit_for_a_label),
        cmocka_unit_test(past_the_bound_all_are_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
