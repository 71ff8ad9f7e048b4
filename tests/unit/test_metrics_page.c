/* model/metrics_page: the pages of tests/data/metrics against what they must say, situations that
 * those do not have, and bytes that are no page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json_number.h"
#include "json_reader.h"
#include "memory.h"
#include "metrics_page.h"
#include "rng.h"

static char *read_file(const char *name, const char *suffix, size_t *len)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/data/metrics/%s%s", KVR_SOURCE_DIR, name, suffix);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    char *text = malloc(1 << 16);
    *len = fread(text, 1, 1 << 16, file);
    fclose(file);
    return text;
}

static void assert_figure(double expected, double actual, const char *what)
{
    if (isnan(expected) ? !isnan(actual) : !(expected == actual))
        fail_msg("%s: expected %.17g, read %.17g", what, expected, actual);
}

/* The signal that the expectation's key names; NULL for keys that are no signal. */
static const double *signal_of(const struct kvr_metrics_page *page, struct kvr_slice key)
{
    const struct {
        const char *key;
        const double *value;
    } signals[] = {
        {"running", &page->signals.running},
        {"waiting", &page->signals.waiting},
        {"kv_usage", &page->signals.kv_usage},
        {"kv_blocks_total", &page->signals.kv_blocks},
        {"block_size", &page->signals.block_size},
        {"prefix_hit_tokens", &page->signals.prefix_hit_tokens},
        {"prefix_query_tokens", &page->signals.prefix_query_tokens},
        {"prefix_hit_rate", &page->signals.prefix_hit_rate},
    };
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (kvr_slice_is(key, signals[i].key))
            return signals[i].value;
    return NULL;
}

static int check_expectation(const struct kvr_metrics_page *page, struct kvr_slice expectation)
{
    struct kvr_json_reader json;
    struct kvr_json_span key, text;
    struct kvr_slice number;
    int checked = 0;
    kvr_json_reader_init(&json, expectation);
    assert_true(kvr_json_enter_object(&json));
    while (kvr_json_next_key(&json, &key)) {
        const double *value = signal_of(page, key.raw);
        if (kvr_slice_is(key.raw, "dialect")) {
            assert_true(kvr_json_read_string(&json, &text));
            assert_true(kvr_slice_is(text.raw, kvr_metrics_dialect_name(page->dialect)));
            checked++;
        } else if (!value) {
            assert_true(kvr_slice_is(key.raw, "trap"));
            kvr_json_skip(&json, NULL);
        } else if (kvr_json_read_number(&json, &number)) {
            assert_figure(kvr_json_number_value(number), *value, key.raw.data);
            checked++;
        } else {
            assert_int_equal(kvr_json_peek(&json), KVR_JSON_NULL);
            kvr_json_skip(&json, NULL);
            assert_figure((double)NAN, *value, key.raw.data);
            checked++;
        }
    }
    assert_true(kvr_json_finish(&json));
    return checked;
}

static const char *const pages[] = {"llamacpp", "sglang_colon", "vllm_v0_old_names",
                                    "vllm_v1_single"};

static void pages_say_what_they_must(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        size_t len, expected_len;
        char *text = read_file(pages[i], ".prom", &len);
        char *expected = read_file(pages[i], ".expect.json", &expected_len);
        struct kvr_metrics_page page;
        kvr_metrics_page_read(&page, kvr_slice_make(text, len));
        checked += check_expectation(&page, kvr_slice_make(expected, expected_len));
        free(text);
        free(expected);
    }
    assert_int_equal(checked, 4 + 5 + 5 + 8);
}

static struct kvr_metrics_page read_page(const char *text)
{
    struct kvr_metrics_page page;
    kvr_metrics_page_read(&page, kvr_slice_of(text));
    return page;
}

static void escaped_names_are_the_same_page(void **state)
{
    (void)state;
    size_t len;
    char *text = read_file("sglang_colon", ".prom", &len);
    struct kvr_metrics_page colon, underscore;
    kvr_metrics_page_read(&colon, kvr_slice_make(text, len));
    for (size_t i = 0; i < len; i++)
        if (text[i] == ':')
            text[i] = '_';
    kvr_metrics_page_read(&underscore, kvr_slice_make(text, len));
    assert_int_equal(underscore.dialect, KVR_METRICS_SGLANG);
    assert_memory_equal(&colon, &underscore, sizeof colon);
    free(text);
}

static void engines_behind_one_page_add_up(void **state)
{
    (void)state;
    struct kvr_metrics_page page =
        read_page("vllm:num_requests_running{engine=\"0\"} 3\n"
                  "vllm:num_requests_running{engine=\"1\"} 4\n"
                  "vllm:num_requests_waiting{engine=\"0\"} 0\n"
                  "vllm:num_requests_waiting{engine=\"1\"} 9\n"
                  "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n"
                  "vllm:kv_cache_usage_perc{engine=\"1\"} 1\n"
                  "vllm:prefix_cache_hits_total{engine=\"0\"} 1e3\n"
                  "vllm:prefix_cache_hits_total{engine=\"1\"} 24\n"
                  "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n"
                  "vllm:cache_config_info{num_gpu_blocks=\"50\",block_size=\"16\"} 1\n");
    assert_figure(7, page.signals.running, "running");
    assert_figure(9, page.signals.waiting, "waiting");
    assert_figure(0.75, page.signals.kv_usage, "kv_usage");
    assert_figure(1024, page.signals.prefix_hit_tokens, "hits");
    assert_figure(150, page.signals.kv_blocks, "kv_blocks");
    assert_figure(16, page.signals.block_size, "block_size");

    page = read_page("sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\",pp_rank=\"0\"} 5\n"
                     "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\",pp_rank=\"0\"} 5\n"
                     "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\",pp_rank=\"0\"} 2\n"
                     "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\",pp_rank=\"1\"} 2\n");
    assert_figure(7, page.signals.running, "running");
}

static void new_names_win_over_old_ones(void **state)
{
    (void)state;
    struct kvr_metrics_page page = read_page("vllm:gpu_cache_usage_perc 0.25\n"
                                             "vllm:kv_cache_usage_perc 0.5\n"
                                             "vllm:gpu_prefix_cache_hits_total 3\n"
                                             "vllm:gpu_prefix_cache_queries_total 4\n"
                                             "vllm:prefix_cache_hits_total 48\n"
                                             "vllm:prefix_cache_queries_total 64\n");
    assert_figure(0.5, page.signals.kv_usage, "kv_usage");
    assert_figure(48, page.signals.prefix_hit_tokens, "hits");
    assert_figure(64, page.signals.prefix_query_tokens, "queries");
    page = read_page("vllm:gpu_prefix_cache_hits_total 3\nvllm:gpu_prefix_cache_queries_total 4\n");
    assert_figure(3, page.signals.prefix_hit_tokens, "hits");
    assert_figure(4, page.signals.prefix_query_tokens, "queries");
}

static void counters_mean_the_same_everywhere(void **state)
{
    (void)state;
    struct kvr_metrics_page page =
        read_page("process_start_time_seconds 1.78e+09\n"
                  "vllm:prompt_tokens_total 100\n"
                  "vllm:generation_tokens_total 7\n"
                  "vllm:num_preemptions_total 2\n"
                  "vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 60\n"
                  "vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 40\n");
    assert_figure(1780000000, page.signals.process_start_s, "start");
    assert_figure(100, page.signals.prompt_tokens, "prompt");
    assert_figure(40, page.signals.cached_tokens, "cached");
    assert_figure(7, page.signals.generation_tokens, "generation");
    assert_figure(2, page.signals.preemptions, "preemptions");
    assert_figure((double)NAN, page.signals.prefix_query_tokens, "queries");

    page = read_page("vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 40\n"
                     "vllm:prompt_tokens_cached_total 41\n");
    assert_figure(41, page.signals.cached_tokens, "cached");

    page = read_page("sglang:prompt_tokens_total 100\n"
                     "sglang:cached_tokens_total{cache_source=\"device\"} 30\n"
                     "sglang:cached_tokens_total{cache_source=\"host\"} 10\n"
                     "sglang:num_retracted_reqs_total 3\n"
                     "sglang:max_total_num_tokens 4096\n"
                     "sglang:page_size 16\n");
    assert_figure(100, page.signals.prefix_query_tokens, "queries");
    assert_figure(40, page.signals.prefix_hit_tokens, "hits");
    assert_figure(3, page.signals.preemptions, "preemptions");
    assert_figure(256, page.signals.kv_blocks, "kv_blocks");
    page = read_page("sglang:cache_config_info{page_size=\"1\",num_pages=\"500\"} 1\n"
                     "sglang:max_total_num_tokens 500\n");
    assert_figure(500, page.signals.kv_blocks, "kv_blocks");
    assert_figure(1, page.signals.block_size, "block_size");

    page = read_page("llamacpp:prompt_tokens_total 60\n"
                     "llamacpp:prompt_tokens_cached_total 40\n"
                     "llamacpp:tokens_predicted_total 9\n"
                     "llamacpp:kv_cache_usage_ratio 0.125\n");
    assert_figure(100, page.signals.prompt_tokens, "prompt");
    assert_figure(100, page.signals.prefix_query_tokens, "queries");
    assert_figure(40, page.signals.prefix_hit_tokens, "hits");
    assert_figure(9, page.signals.generation_tokens, "generation");
    assert_figure(0.125, page.signals.kv_usage, "kv_usage");
}

static void unknown_is_not_zero(void **state)
{
    (void)state;
    struct kvr_metrics_page page = read_page("vllm:num_requests_running NaN\n"
                                             "vllm:num_requests_waiting +Inf\n"
                                             "vllm:kv_cache_usage_perc -1.0\n"
                                             "vllm:prompt_tokens_total\n"
                                             "vllm:generation_tokens_total {x=\"1\"}\n"
                                             "vllm:num_preemptions_total 12abc\n"
                                             "vllm:cache_config_info{num_gpu_blocks=\"None\"} 1\n"
                                             "# vllm:num_requests_running 3\n");
    assert_int_equal(page.dialect, KVR_METRICS_VLLM);
    const double *figures = (const double *)&page.signals;
    for (size_t i = 0; i < sizeof page.signals / sizeof *figures; i++)
        assert_figure((double)NAN, figures[i], "a signal");
    /* One of two engines that is unread does not make the other unknown. */
    page = read_page("vllm:num_requests_running{engine=\"0\"} NaN\n"
                     "vllm:num_requests_running{engine=\"1\"} 2\n");
    assert_figure(2, page.signals.running, "running");
}

static void forms_of_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double running;
    } cases[] = {
        {"vllm:num_requests_running 3", 3}, /* no line feed at the end */
        {"vllm:num_requests_running 3\r\n", 3},
        {"vllm:num_requests_running\t 3 1700000000123\n", 3},
        {"vllm:num_requests_running 3 # {trace_id=\"x\"} 1 1.5\n", 3},
        {"vllm:num_requests_running{} 3\n", 3},
        {"vllm:num_requests_running{m=\"a}b\",n=\"c\\\"}d\",} +3\n", 3},
        {"vllm:num_requests_running{ m = \"x\" , engine = \"0\" } 3\n", 3},
        {"vllm:num_requests_running{m=\"x} 3\n", (double)NAN},
        {"vllm:num_requests_running{m=\"x\\\n", (double)NAN},
        {" vllm:num_requests_running 3\n", (double)NAN},
        {"xvllm:num_requests_running 3\n", (double)NAN},
        {"vllm:num_requests_running_more 3\n", (double)NAN},
        {"vllm:num_requests_runnin 3\n", (double)NAN},
        {"vllm:num_requests_running 1e400\n", (double)NAN},
        {"vllm:\n", (double)NAN},
        {"{} 3\n", (double)NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_figure(cases[i].running, read_page(cases[i].line).signals.running, cases[i].line);
}

static void other_pages_are_of_no_engine(void **state)
{
    (void)state;
    struct kvr_metrics_page page = read_page("");
    assert_int_equal(page.dialect, KVR_METRICS_UNKNOWN);
    kvr_metrics_page_read(&page, kvr_slice_make(NULL, 0));
    assert_int_equal(page.dialect, KVR_METRICS_UNKNOWN);
    page = read_page("<html>404</html>\n\n\nprocess_start_time_seconds 5\nrunning 3\n");
    assert_int_equal(page.dialect, KVR_METRICS_UNKNOWN);
    assert_figure((double)NAN, page.signals.running, "running");
    /* A second engine's series on the page are not mixed in. */
    page = read_page("vllm:num_requests_running 3\nsglang:num_running_reqs 4\n");
    assert_int_equal(page.dialect, KVR_METRICS_VLLM);
    assert_figure(3, page.signals.running, "running");
}

static void sums_too_large_are_unknown(void **state)
{
    (void)state;
    struct kvr_metrics_page page = read_page("vllm:num_requests_running{engine=\"0\"} 1.7e308\n"
                                             "vllm:num_requests_running{engine=\"1\"} 1.7e308\n"
                                             "vllm:num_requests_waiting 2\n");
    assert_true(isnan(page.signals.running));
    assert_figure(2, page.signals.waiting, "waiting");
    page = read_page("sglang:page_size 1e-300\nsglang:max_total_num_tokens 1e308\n");
    assert_true(isnan(page.signals.kv_blocks));
    page = read_page("llamacpp:prompt_tokens_total 1.7e308\n"
                     "llamacpp:prompt_tokens_cached 1.7e308\n");
    assert_true(isnan(page.signals.prompt_tokens));
}

/* Cut anywhere, and with bytes changed: nothing may be read out of bounds (the text ends where its
 * memory ends), and what is read is a number or unknown. */
static void mangled_pages_are_harmless(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    int read = 0;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        size_t len;
        char *text = read_file(pages[i], ".prom", &len);
        for (int round = 0; round < 4000; round++) {
            size_t cut = round < 2600 ? (size_t)round % (len + 1) : len;
            char *copy = malloc(cut ? cut : 1);
            memcpy(copy, text, cut);
            for (int changes = round % 5; changes > 0 && cut; changes--) {
                static const char bytes[] = "{}\"\\\n#:,= e\0-9.\xff";
                copy[kvr_rng_below(&rng, cut)] = bytes[kvr_rng_below(&rng, sizeof bytes)];
            }
            struct kvr_metrics_page page;
            kvr_metrics_page_read(&page, kvr_slice_make(copy, cut));
            const double *figures = (const double *)&page.signals;
            for (size_t k = 0; k < sizeof page.signals / sizeof *figures; k++)
                assert_true(isnan(figures[k]) || (isfinite(figures[k]) && figures[k] >= 0));
            read += !isnan(page.signals.running);
            free(copy);
        }
        free(text);
    }
    assert_true(read > 8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_say_what_they_must),
        cmocka_unit_test(escaped_names_are_the_same_page),
        cmocka_unit_test(engines_behind_one_page_add_up),
        cmocka_unit_test(new_names_win_over_old_ones),
        cmocka_unit_test(counters_mean_the_same_everywhere),
        cmocka_unit_test(unknown_is_not_zero),
        cmocka_unit_test(forms_of_a_line),
        cmocka_unit_test(other_pages_are_of_no_engine),
        cmocka_unit_test(sums_too_large_are_unknown),
        cmocka_unit_test(mangled_pages_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
