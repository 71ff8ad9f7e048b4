#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "prom_sample.h"
#include "prom_writer.h"

static bool is(double value, double expected)
{
    return value == expected || (isnan(value) && isnan(expected));
}

static void a_line_is_a_name_labels_and_a_value(void **state)
{
    (void)state;
    static const struct {
        const char *line, *name, *labels;
        double value;
    } cases[] = {
        {"up 1", "up", "", 1},
        {"up\t+2.5e1\r", "up", "", 25},
        {"up{} 3", "up", "", 3},
        {"up{a=\"b\"} 4 1700000000 # {trace=\"x\"} 9", "up", "a=\"b\"", 4},
        {"up{a=\"}\\\"}\"}5", "up", "a=\"}\\\"}\"", 5},
        {"up NaN", "up", "", (double)NAN},
        {"up +Inf", "up", "", (double)NAN},
        {"up 1e999", "up", "", (double)NAN},
        {"up 1x", "up", "", (double)NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_prom_sample sample;
        assert_true(kvr_prom_sample_read(&sample, kvr_slice_of(cases[i].line)));
        assert_true(kvr_slice_is(sample.name, cases[i].name));
        assert_true(kvr_slice_is(sample.labels, cases[i].labels));
        assert_true(is(sample.value, cases[i].value));
    }
}

static void what_is_no_sample_is_told(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "", "# HELP up Up.", "#", "up", "up ", "up{a=\"b\"}", "up{a=\"b\" 1", "up{a=\"b} 1", " 1",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct kvr_prom_sample sample;
        assert_false(kvr_prom_sample_read(&sample, kvr_slice_of(lines[i])));
    }
}

static void a_label_is_found_by_its_whole_name(void **state)
{
    (void)state;
    const struct kvr_slice labels =
        kvr_slice_of("le=\"a,rank=\\\"9\", dp_rank=\"1\" ,rank=\"2\",end=");
    struct kvr_slice value;
    assert_true(kvr_prom_find_label(labels, "le", &value));
    assert_true(kvr_slice_is(value, "a,rank=\\\"9"));
    assert_true(is(kvr_prom_label_number(labels, "rank"), 2));
    assert_true(is(kvr_prom_label_number(labels, "dp_rank"), 1));
    assert_true(is(kvr_prom_label_number(labels, "le"), (double)NAN));
    assert_false(kvr_prom_find_label(labels, "end", &value));
    assert_false(kvr_prom_find_label(kvr_slice_of(""), "rank", &value));
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct kvr_buffer out = {0};
    struct kvr_prom_writer prom = {.out = &out, .prefix = "x_"};
    kvr_prom_family(&prom, "share", KVR_PROM_GAUGE, "A share.");
    out.len = 0; /* its comments */
    kvr_prom_label(&prom, "name", kvr_slice_of("a \"b\" {c}"));
    kvr_prom_label(&prom, "rank", kvr_slice_of("7"));
    kvr_prom_double(&prom, 0.125);
    struct kvr_prom_sample sample;
    assert_true(kvr_prom_sample_read(&sample, kvr_slice_make(out.data, out.len - 1)));
    assert_true(kvr_slice_is(sample.name, "x_share"));
    assert_true(is(kvr_prom_label_number(sample.labels, "rank"), 7));
    assert_true(is(sample.value, 0.125));
    kvr_buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_name_labels_and_a_value),
        cmocka_unit_test(what_is_no_sample_is_told),
        cmocka_unit_test(a_label_is_found_by_its_whole_name),
        cmocka_unit_test(what_is_written_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
