/* core/load: limits of goodput, what a report counts and leaves out, bodies, rows and summaries. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json_reader.h"
#include "load_body.h"
#include "load_row.h"
#include "load_summary.h"

static const struct kvr_load_clock clock_1 = {.origin_ns = 0, .scale = 1};

static bool is_json(struct kvr_slice text)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, text);
    kvr_json_skip(&json, NULL);
    return kvr_json_finish(&json);
}

static bool contains(const struct kvr_buffer *text, const char *part)
{
    return memmem(text->data, text->len, part, strlen(part)) != NULL;
}

/* ---- goodput ---- */

static void test_goodput_words(void **state)
{
    (void)state;
    static const char *const bad[] = {"ttft",          "ttft:",       "ttft:x", "ttft:-1",
                                      "ttft:0",        "latency:990", ":990",   "ttft:nan",
                                      "ttft:990,tpot", "TTFT:1"};
    struct kvr_load_goodput goodput = {0};
    struct kvr_error error;
    assert_int_equal(
        kvr_load_goodput_add(&goodput, kvr_slice_of("ttft:990 itl_p50:24,,e2el:5e3"), &error), 0);
    assert_int_equal(kvr_load_goodput_add(&goodput, kvr_slice_of("ttft:500"), &error), 0);
    assert_int_equal(goodput.count, 3);
    assert_true(goodput.limit_ms[KVR_LOAD_TTFT] == 500 && goodput.limit_ms[KVR_LOAD_E2EL] == 5000);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_load_goodput none = {0};
        assert_int_equal(kvr_load_goodput_add(&none, kvr_slice_of(bad[i]), &error), KVR_E_INVALID);
        assert_true(strlen(error.text) > 10);
    }
    double ms[KVR_LOAD_METRICS] = {[KVR_LOAD_TTFT] = 500, [KVR_LOAD_ITL_P50] = 24};
    assert_true(kvr_load_goodput_met(&goodput, ms)); /* just met is met */
    ms[KVR_LOAD_ITL_P50] = 24.001;
    assert_false(kvr_load_goodput_met(&goodput, ms));
}

/* ---- the report ---- */

/* A request that took 100 ms, of which 60 to the first of 5 tokens, from `at_ms` on. */
static struct kvr_load_request request_at(uint64_t at_ms, enum kvr_load_failure failure)
{
    return (struct kvr_load_request){
        .due_ns = at_ms * 1000000 - 2000000,
        .body_hash = 3,
        .call = {.failure = failure,
                 .streamed = true,
                 .reading = failure == KVR_LOAD_OK,
                 .started_ns = at_ms * 1000000,
                 .first_byte_ns = (at_ms + 50) * 1000000,
                 .ended_ns = (at_ms + 100) * 1000000,
                 .usage = {.first_content_ns = (at_ms + 60) * 1000000, .usage = {1000, 5, -1}}},
    };
}

static void add(struct kvr_load_report *report, struct kvr_load_request *request)
{
    struct kvr_load_measure measure;
    kvr_load_measure(request, &clock_1, &measure);
    kvr_load_report_add(report, &clock_1, request, &measure);
}

static void test_report_counts(void **state)
{
    (void)state;
    struct kvr_load_report report;
    struct kvr_load_goodput goodput = {.limit_ms = {[KVR_LOAD_TTFT] = 60}, .count = 1};
    kvr_load_report_init(&report, false, &goodput);
    assert_true(isnan(kvr_load_report_rate(&report, 1)));
    assert_int_equal(kvr_load_report_flags(&report), KVR_LOAD_FLAG_NOTHING);
    struct kvr_load_request warm = request_at(100, KVR_LOAD_OK);
    warm.warmup = true;
    add(&report, &warm);
    for (uint64_t i = 0; i < 10; i++) {
        struct kvr_load_request request = request_at(1000 + i * 100, KVR_LOAD_OK);
        request.before_ns = request.call.started_ns - 3000000;
        if (i == 4)
            request.call.usage.first_content_ns += 1000000; /* 61 ms: not good */
        if (i == 5)
            request.call.usage.usage.cached_tokens = 900;
        add(&report, &request);
    }
    struct kvr_load_request failed = request_at(500, KVR_LOAD_STATUS);
    failed.call.status = 503;
    add(&report, &failed);
    struct kvr_load_request cut = request_at(5000, KVR_LOAD_CANCELLED);
    add(&report, &cut);
    assert_int_equal(report.warmups, 1);
    assert_int_equal(report.measured, 11);
    assert_int_equal(report.succeeded, 10);
    assert_int_equal(report.good, 9);
    assert_int_equal(kvr_load_report_failed(&report), 1);
    assert_int_equal(report.failures[KVR_LOAD_CANCELLED], 1);
    assert_int_equal(report.statuses[0].status, 503);
    assert_int_equal(report.ttft.count, 10); /* of successes only */
    assert_int_equal(report.late.count, 11);
    assert_int_equal(report.gap.count, 10);
    assert_int_equal(report.body_hash, 13 * 3);
    assert_true(kvr_load_report_window_s(&report) == 1.5); /* 0.5 to 2.0 */
    assert_true(fabs(kvr_load_report_cached_share(&report) - 0.09) < 1e-9);
    assert_int_equal(kvr_load_report_flags(&report), KVR_LOAD_FLAG_FAILURES);
    assert_true(fabs(kvr_sketch_quantile(&report.tpot, 0.5) - 1e7) < 2e3);
    kvr_load_report_deinit(&report);
}

/* Open loop: due times make the window, whatever the answers do. */
static void test_report_open(void **state)
{
    (void)state;
    struct kvr_load_report report;
    kvr_load_report_init(&report, true, &(struct kvr_load_goodput){0});
    for (uint64_t i = 0; i < 10; i++) {
        struct kvr_load_request request = request_at(1000 + i * 100, KVR_LOAD_OK);
        request.call.ended_ns += 9000000000u;
        if (i == 9)
            request.due_ns = request.call.started_ns - 200000000; /* 200 ms late */
        else
            request.due_ns = request.call.started_ns;
        if (i == 8) { /* the last that was due */
            request.due_ns = 1900000000u;
            request.call.started_ns = 1900000000u;
        }
        add(&report, &request);
    }
    assert_true(fabs(kvr_load_report_window_s(&report) - 1.0) < 1e-9);
    assert_int_equal(kvr_load_report_flags(&report), KVR_LOAD_FLAG_BEHIND);
    report.interrupted = true;
    report.rows_dropped = 1;
    report.cpu_share = 0.95;
    assert_int_equal(kvr_load_report_flags(&report), KVR_LOAD_FLAG_BEHIND |
                                                         KVR_LOAD_FLAG_INTERRUPTED |
                                                         KVR_LOAD_FLAG_ROWS | KVR_LOAD_FLAG_BUSY);
    kvr_load_report_deinit(&report);
}

static void test_many_statuses(void **state)
{
    (void)state;
    struct kvr_load_report report;
    kvr_load_report_init(&report, true, &(struct kvr_load_goodput){0});
    for (uint16_t i = 0; i < 20; i++) {
        struct kvr_load_request request = request_at(1000, KVR_LOAD_STATUS);
        request.call.status = (uint16_t)(400 + i);
        add(&report, &request);
        add(&report, &request);
    }
    assert_int_equal(report.statuses[KVR_LOAD_STATUSES_MAX - 1].count, 2);
    assert_int_equal(report.statuses_other, 8);
    kvr_load_report_deinit(&report);
}

/* ---- bodies ---- */

static const struct kvr_piece pieces[] = {
    {.id = 1, .bytes = 40, .speaker = KVR_SYSTEM},
    {.id = 2, .bytes = 100, .speaker = KVR_USER},
    {.id = 3, .bytes = 7, .speaker = KVR_USER, .continues = 1},
    {.id = 4, .bytes = 64, .speaker = KVR_ASSISTANT},
    {.id = 5, .bytes = 1, .speaker = KVR_USER},
};

static void test_bodies(void **state)
{
    (void)state;
    struct kvr_workload_request request = {
        .pieces = pieces, .pieces_len = 5, .prompt_bytes = 212, .max_tokens = 64};
    for (int api = KVR_LOAD_CHAT; api <= KVR_LOAD_COMPLETIONS; api++) {
        struct kvr_load_body body;
        struct kvr_buffer out = {0}, again = {0};
        struct kvr_error error;
        assert_int_equal(kvr_load_body_init(&body, (enum kvr_load_api)api, "a \"model\"", true,
                                            kvr_slice_of(" {\"temperature\": 0, \"x\": [1]} "),
                                            &error),
                         0);
        kvr_load_body_write(&body, &request, &out);
        kvr_load_body_write(&body, &request, &again);
        assert_true(is_json(kvr_buffer_slice(&out)));
        assert_true(kvr_slice_equal(kvr_buffer_slice(&out), kvr_buffer_slice(&again)));
        assert_true(contains(&out, "\"model\":\"a \\\"model\\\"\""));
        assert_true(contains(&out, "\"max_tokens\":64,\"stream\":true"));
        assert_true(contains(&out, "\"include_usage\":true"));
        assert_true(contains(&out, "\"temperature\": 0"));
        assert_int_equal(contains(&out, "\"role\":\"system\""), api == KVR_LOAD_CHAT);
        char text[108];
        kvr_workload_text(2, 0, 100, text);
        kvr_workload_text(3, 0, 7, text + 100);
        text[107] = '\0';
        assert_true(contains(&out, text)); /* one message of two pieces */
        kvr_buffer_deinit(&out);
        kvr_buffer_deinit(&again);
        kvr_load_body_deinit(&body);
    }
}

static void test_extra_body(void **state)
{
    (void)state;
    static const char *const bad[] = {"x", "[1]", "{\"a\":}", "{} {}", "\"a\"", "{\"a\":1"};
    struct kvr_load_body body;
    struct kvr_error error;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(
            kvr_load_body_init(&body, KVR_LOAD_CHAT, "m", true, kvr_slice_of(bad[i]), &error),
            KVR_E_INVALID);
    struct kvr_workload_request request = {.pieces = pieces, .pieces_len = 1};
    struct kvr_buffer out = {0};
    assert_int_equal(
        kvr_load_body_init(&body, KVR_LOAD_CHAT, "m", false, kvr_slice_of("{}"), &error), 0);
    kvr_load_body_write(&body, &request, &out);
    assert_true(is_json(kvr_buffer_slice(&out)));
    assert_false(contains(&out, "stream"));
    assert_false(contains(&out, "max_tokens")); /* not stated */
    kvr_buffer_deinit(&out);
    kvr_load_body_deinit(&body);
}

/* ---- rows and summaries ---- */

static void test_rows(void **state)
{
    (void)state;
    for (int failure = 0; failure < KVR_LOAD_FAILURES; failure++) {
        for (int open = 0; open < 2; open++) {
            struct kvr_load_request request = request_at(1000, (enum kvr_load_failure)failure);
            struct kvr_load_measure measure;
            struct kvr_buffer out = {0};
            strcpy(request.call.labels.replica, "127.0.0.1:\"8000");
            kvr_load_measure(&request, &clock_1, &measure);
            kvr_load_row(&out, &clock_1, open, &request, &measure, failure == 0);
            assert_int_equal(out.data[out.len - 1], '\n');
            assert_true(is_json(kvr_slice_make(out.data, out.len - 1)));
            /* No column of the one driver is the other's. */
            assert_int_equal(contains(&out, "\"due_at_ms\":998,"), open);
            assert_int_equal(contains(&out, "\"gap_ms\":null"), !open);
            assert_true(contains(&out, "\"late_ms\":2,"));
            assert_true(contains(&out, failure ? "\"error\":\"" : "\"error\":null"));
            kvr_buffer_deinit(&out);
        }
    }
}

static void test_summaries(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    struct kvr_error error;
    kvr_workload_defaults(&options);
    struct kvr_workload *workload = kvr_workload_create(&options, &error);
    assert_non_null(workload);
    struct kvr_load_heading heading = {.workload = workload,
                                       .url = "http://x",
                                       .api = "chat",
                                       .model = "m",
                                       .time_scale = 1,
                                       .percentiles = {50, 99.9},
                                       .percentiles_len = 2};
    struct kvr_load_report report;
    kvr_load_report_init(&report, false, &(struct kvr_load_goodput){0});
    for (int filled = 0; filled < 2; filled++) { /* also of nothing at all */
        struct kvr_buffer json = {0};
        kvr_load_summary_json(&heading, &report, &json);
        assert_true(is_json(kvr_buffer_slice(&json)));
        assert_true(contains(&json, filled ? "\"p99.9_ttft_ms\":60," : "\"p99.9_ttft_ms\":null"));
        kvr_buffer_deinit(&json);
        char *text = NULL;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        kvr_load_summary_print(&heading, &report, out);
        fclose(out);
        assert_non_null(strstr(text, "============ Serving Benchmark Result ============\n"));
        assert_non_null(
            strstr(text, filled ? "P99.9 TTFT (ms):                         60.00     \n"
                                : "P99.9 TTFT (ms):                         -         \n"));
        free(text);
        struct kvr_load_request request = request_at(1000, KVR_LOAD_OK);
        add(&report, &request);
    }
    kvr_load_report_deinit(&report);
    kvr_workload_destroy(workload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goodput_words), cmocka_unit_test(test_report_counts),
        cmocka_unit_test(test_report_open),   cmocka_unit_test(test_many_statuses),
        cmocka_unit_test(test_bodies),        cmocka_unit_test(test_extra_body),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_summaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
