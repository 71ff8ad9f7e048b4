#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "prom_writer.h"
#include "utf8.h"

static struct kvr_prom_writer start(struct kvr_buffer *out)
{
    *out = (struct kvr_buffer){0};
    return (struct kvr_prom_writer){.out = out, .prefix = "x_"};
}

static void assert_text(struct kvr_buffer *out, const char *expected)
{
    kvr_buffer_append(out, "", 1);
    assert_string_equal(out->data, expected);
    kvr_buffer_deinit(out);
}

static void a_family_has_help_type_and_samples(void **state)
{
    (void)state;
    struct kvr_buffer out;
    struct kvr_prom_writer prom = start(&out);
    kvr_prom_family(&prom, "requests_total", KVR_PROM_COUNTER, "Requests.");
    kvr_prom_label(&prom, "code", kvr_slice_of("a"));
    kvr_prom_label(&prom, "kind", kvr_slice_of(""));
    kvr_prom_uint(&prom, UINT64_MAX);
    kvr_prom_uint(&prom, 0);
    kvr_prom_gauge(&prom, "age_seconds", 0.25, "Age.");
    assert_text(&out, "# HELP x_requests_total Requests.\n# TYPE x_requests_total counter\n"
                      "x_requests_total{code=\"a\",kind=\"\"} 18446744073709551615\n"
                      "x_requests_total 0\n"
                      "# HELP x_age_seconds Age.\n# TYPE x_age_seconds gauge\n"
                      "x_age_seconds 0.25\n");
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        size_t len;
        const char *written;
    } cases[] = {
        {"a\"b\\c\nd", 7, "a\\\"b\\\\c\\nd"},
        {"\r\t\x01\x7f", 4, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"a\0b", 3,
         "a\xef\xbf\xbd"
         "b"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff\xc3", 2, "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {NULL, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_buffer out;
        struct kvr_prom_writer prom = start(&out);
        prom.family = "f";
        kvr_prom_label(&prom, "l", kvr_slice_make(cases[i].value, cases[i].len));
        kvr_prom_uint(&prom, 1);
        char expected[128];
        snprintf(expected, sizeof expected, "x_f{l=\"%s\"} 1\n", cases[i].written);
        assert_text(&out, expected);
    }
}

static void what_is_not_known_has_no_sample(void **state)
{
    (void)state;
    struct kvr_buffer out;
    struct kvr_prom_writer prom = start(&out);
    prom.family = "f";
    kvr_prom_double(&prom, (double)NAN);
    kvr_prom_label(&prom, "l", kvr_slice_of("first"));
    kvr_prom_double(&prom, (double)NAN);
    kvr_prom_label(&prom, "l", kvr_slice_of("second"));
    kvr_prom_double(&prom, (double)INFINITY);
    kvr_prom_label(&prom, "l", kvr_slice_of("third\n"));
    kvr_prom_double(&prom, (double)NAN);
    kvr_prom_double(&prom, 1e14 + 1);
    kvr_prom_double(&prom, -2.5e-7);
    assert_text(&out, "x_f{l=\"second\"} +Inf\nx_f 100000000000001\nx_f -2.5e-07\n");
}

/* A bound T counts what lasted less than T, in whole microseconds. */
static void histograms_are_cumulative_and_in_seconds(void **state)
{
    (void)state;
    static const uint32_t bounds[] = {10, 100, 1000};
    static struct kvr_histogram histogram;
    const uint64_t samples[] = {0, 9, 10, 99, 100, 5000};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        kvr_histogram_add(&histogram, samples[i]);
    struct kvr_buffer out;
    struct kvr_prom_writer prom = start(&out);
    kvr_prom_histogram_us(&prom, "t_seconds", &histogram, bounds, 3, "Times.");
    assert_text(&out, "# HELP x_t_seconds Times.\n# TYPE x_t_seconds histogram\n"
                      "x_t_seconds_bucket{le=\"1e-05\"} 2\n"
                      "x_t_seconds_bucket{le=\"0.0001\"} 4\n"
                      "x_t_seconds_bucket{le=\"0.001\"} 5\n"
                      "x_t_seconds_bucket{le=\"+Inf\"} 6\n"
                      "x_t_seconds_sum 0.005218\n"
                      "x_t_seconds_count 6\n");
}

static void utf8_is_told_from_other_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len; /* of the first character; 0: not one */
    } cases[] = {
        {"", 0},
        {"a", 1},
        {"\x7f", 1},
        {"\x80", 0},
        {"\xc1\xbf", 0},
        {"\xc2\x80", 2},
        {"\xc3", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xe2\x82"
         "a",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(kvr_utf8_length(kvr_slice_of(cases[i].text)), cases[i].len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_has_help_type_and_samples),
        cmocka_unit_test(label_values_are_escaped),
        cmocka_unit_test(what_is_not_known_has_no_sample),
        cmocka_unit_test(histograms_are_cumulative_and_in_seconds),
        cmocka_unit_test(utf8_is_told_from_other_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
