#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "metrics_text.h"
#include "rng.h"

#define SECOND UINT64_C(1000000000)

static const struct kvr_router_options small = {
    .seed = 1, .requests_max = 64, .index = {.memory_bytes = KVR_PREFIX_MEMORY_MIN}};

static struct kvr_router router;

static void start(uint32_t replicas_max)
{
    struct kvr_router_options options = small;
    options.replicas_max = replicas_max;
    kvr_router_init(&router, &options);
}

static uint32_t add(const char *authority, const char *const *models, uint32_t count)
{
    struct kvr_error error = {0};
    struct kvr_replica_spec spec = {.authority = kvr_slice_of(authority), .rank = -1};
    int slot = kvr_router_add_replica(&router, 1, &spec, &error);
    assert_true(slot >= 0);
    kvr_router_probed(&router, 2, (uint32_t)slot, KVR_PROBE_PASS, false);
    struct kvr_slice names[KVR_REPLICA_MODELS_MAX];
    for (uint32_t i = 0; i < count; i++)
        names[i] = kvr_slice_of(models[i]);
    kvr_replica_set_models(&router.replicas, (uint32_t)slot, names, count);
    return (uint32_t)slot;
}

/* One request from its arrival to its end, wherever the router leads it. */
static void serve(struct kvr_slice model, uint64_t now_ns)
{
    struct kvr_submission submission = {.model = model,
                                        .request_id = kvr_slice_of("r"),
                                        .endpoint = "/v1/chat/completions",
                                        .routed = true,
                                        .prompt_bytes = 4000,
                                        .prompt_tokens = (double)NAN,
                                        .max_tokens = (double)NAN,
                                        .slo_ttft_ms = (double)NAN,
                                        .received_ns = now_ns};
    struct kvr_request_ref ref = kvr_router_submit(&router, now_ns, &submission);
    struct kvr_action action;
    assert_true(kvr_router_next_action(&router, &action));
    struct kvr_ending ending = {.outcome = KVR_OUTCOME_DROPPED,
                                .status = 404,
                                .prompt_tokens = -1,
                                .output_tokens = -1,
                                .cached_tokens = -1,
                                .gap_mean_ms = (double)NAN,
                                .gap_p50_ms = (double)NAN,
                                .gap_max_ms = (double)NAN};
    if (action.kind == KVR_ACTION_DISPATCH) {
        kvr_router_sent(&router, now_ns + 25000, ref);
        kvr_router_first_byte(&router, now_ns + 30000000, ref, 200);
        kvr_router_first_token(&router, now_ns + 31000000, ref);
        ending.outcome = KVR_OUTCOME_SUCCESS;
        ending.status = 200;
        ending.prompt_tokens = 1000;
        ending.output_tokens = 7;
    }
    kvr_router_finish(&router, now_ns + SECOND / 2, ref, &ending);
}

static char *page(uint64_t now_ns)
{
    struct kvr_buffer out = {0};
    kvr_metrics_text_write(&router, now_ns, &out);
    kvr_buffer_append(&out, "", 1);
    return out.data;
}

static unsigned samples_in(const char *text)
{
    unsigned samples = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        samples += *line != '#';
    return samples;
}

#define assert_has(text, line)   assert_non_null(strstr(text, line))
#define assert_lacks(text, line) assert_null(strstr(text, line))

/* promtool says what a Prometheus server would, and lints names, types and help besides. */
static void assert_promtool_accepts(const char *text)
{
    if (system("command -v promtool >/dev/null 2>&1") != 0) {
        print_message("promtool is not installed (Debian: prometheus): not checked\n");
        skip();
    }
    FILE *tool = popen("promtool check metrics", "w");
    assert_non_null(tool);
    assert_int_equal(fwrite(text, 1, strlen(text), tool), strlen(text));
    assert_int_equal(pclose(tool), 0);
}

static void a_page_tells_what_happened(void **state)
{
    (void)state;
    static const char *const models[] = {"m"};
    start(4);
    uint32_t slot = add("10.0.0.1:8000", models, 1);
    uint32_t drained = add("10.0.0.2:8000", models, 1);
    kvr_replica_set_administrative(&router.replicas, drained, KVR_DRAINING);
    for (int i = 0; i < 3; i++)
        serve(kvr_slice_of("m"), SECOND);
    serve(kvr_slice_of("nobody"), SECOND);
    struct kvr_engine_signals signals = kvr_engine_signals_unread();
    signals.running = 2;
    kvr_router_signals(&router, 2 * SECOND, slot, &signals);

    char *text = page(5 * SECOND);
    assert_has(text, "\nkvroute_requests_received_total 4\n");
    assert_has(text, "\nkvroute_requests_total{outcome=\"success\"} 3\n");
    assert_has(text, "\nkvroute_requests_total{outcome=\"dropped\"} 1\n");
    assert_has(text, "\nkvroute_rejections_total{code=\"model_not_found\"} 1\n");
    assert_has(text, "\nkvroute_decisions_total{reason=\"fallback\"} 3\n");
    assert_has(text, "\nkvroute_fallbacks_total 3\n");
    assert_has(text, "\nkvroute_model_requests_total{model=\"m\"} 3\n");
    assert_has(text, "\nkvroute_model_requests_total{model=\"other\"} 1\n");
    assert_has(text, "\nkvroute_model_prompt_bytes_per_token{model=\"m\"} 4\n");
    assert_has(text, "\nkvroute_overhead_seconds_bucket{le=\"2e-05\"} 0\n");
    assert_has(text, "\nkvroute_overhead_seconds_bucket{le=\"3e-05\"} 3\n");
    assert_has(text, "\nkvroute_overhead_seconds_count 3\n");
    assert_has(text, "\nkvroute_time_to_first_token_seconds_bucket{le=\"0.02\"} 0\n");
    assert_has(text, "\nkvroute_time_to_first_token_seconds_bucket{le=\"0.05\"} 3\n");
    assert_has(text, "\nkvroute_request_duration_seconds_sum 1.5\n");
    assert_has(text, "\nkvroute_replica_requests_total{replica=\"10.0.0.1:8000\"} 3\n");
    assert_has(text, "\nkvroute_replica_in_flight{replica=\"10.0.0.1:8000\"} 0\n");
    assert_has(text, "_operational{replica=\"10.0.0.1:8000\",state=\"up\"} 1\n");
    assert_has(text, "_operational{replica=\"10.0.0.1:8000\",state=\"down\"} 0\n");
    assert_has(text, "_administrative{replica=\"10.0.0.2:8000\",state=\"draining\"} 1\n");
    assert_has(text, "_in_rotation{replica=\"10.0.0.2:8000\"} 0\n");
    assert_has(text, "_engine_running_requests{replica=\"10.0.0.1:8000\"} 2\n");
    assert_has(text, "_engine_age_seconds{replica=\"10.0.0.1:8000\"} 3\n");
    /* What an engine has not said has no sample. */
    assert_lacks(text, "_engine_age_seconds{replica=\"10.0.0.2:8000\"}");
    assert_lacks(text, "_engine_waiting_requests{");
    assert_promtool_accepts(text);
    free(text);

    kvr_router_remove_replica(&router, slot);
    text = page(5 * SECOND);
    assert_lacks(text, "replica=\"10.0.0.1:8000\"");
    free(text);
    kvr_router_deinit(&router);
}

static void a_script_is_named_and_its_faults_are_counted(void **state)
{
    (void)state;
    static const char *const models[] = {"m"};
    start(2);
    add("10.0.0.1:8000", models, 1);
    struct kvr_error error = {0};
    struct kvr_slice good = kvr_slice_of("return { api = 1, name = 'a',\n"
                                         "pick = function(request, view)\n"
                                         "  if request.now_ms == 6000 then error('late') end\n"
                                         "  return kvr.least(), 'zero' end }");
    struct kvr_slice none = kvr_slice_of("");
    struct kvr_slice name = kvr_slice_of("odd \"name\"\n");
    assert_int_equal(
        kvr_slot_load(router.slots[KVR_ROLE_POLICY], name, none, good, NULL, 0, &error), 0);
    assert_int_not_equal(kvr_slot_load(router.slots[KVR_ROLE_POLICY], name, none,
                                       kvr_slice_of("no lua"), NULL, 0, &error),
                         0);
    kvr_router_scripts_changed(&router);
    serve(kvr_slice_of("m"), SECOND);
    serve(kvr_slice_of("m"), 6 * SECOND);

    char *text = page(7 * SECOND);
    assert_has(text, "_script_generation{role=\"policy\",name=\"odd \\\"name\\\"\\n\"} 1\n");
    assert_has(text, "_script_loads_total{role=\"policy\"} 1\n");
    assert_has(text, "_script_refusals_total{role=\"policy\"} 1\n");
    assert_has(text, "_script_calls_total{role=\"policy\"} 2\n");
    assert_has(text, "_script_failures_total{role=\"policy\",kind=\"error\"} 1\n");
    assert_has(text, "_script_quarantined{role=\"policy\"} 0\n");
    assert_has(text, "_decisions_total{reason=\"zero\"} 1\n");
    assert_has(text, "_decisions_total{reason=\"fallback\"} 1\n");
    assert_lacks(text, "_script_generation{role=\"spill\"");
    assert_promtool_accepts(text);
    free(text);
    kvr_router_deinit(&router);
}

/* What clients make up leaves no series behind, whatever it looks like. */
static void invented_models_make_no_series(void **state)
{
    (void)state;
    static const char *const models[] = {"served", "other", "bad\xff", "quote\"d\nname"};
    start(4);
    add("10.0.0.1:8000", models, 4);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        serve(kvr_slice_of(models[i]), SECOND);
    serve(kvr_slice_of("unknown"), SECOND);
    char *before = page(2 * SECOND);
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    for (int i = 0; i < 10000; i++) {
        char name[300];
        size_t len = 1 + kvr_rng_below(&rng, sizeof name - 1);
        for (size_t at = 0; at < len; at++)
            name[at] = (char)kvr_rng_below(&rng, 256);
        serve(kvr_slice_make(name, len), SECOND);
    }
    char *after = page(2 * SECOND);
    assert_int_equal(samples_in(after), samples_in(before));
    assert_has(after, "_rejections_total{code=\"model_not_found\"} 10001\n");
    assert_has(after, "_requests_total{outcome=\"success\"} 4\n");
    assert_has(after, "_model_requests_total{model=\"served\"} 1\n");
    assert_has(after, "_model_requests_total{model=\"quote\\\"d\\nname\"} 1\n");
    assert_has(after, "_model_requests_total{model=\"other\"} 10003\n");
    assert_promtool_accepts(after);
    free(before);
    free(after);
    kvr_router_deinit(&router);
}

/* Names that differ only where they were cut would be one series twice, and the page void. */
static void cut_names_are_no_series(void **state)
{
    (void)state;
    static char a[301], b[301];
    memset(a, 'a', 300);
    memset(b, 'a', 300);
    b[299] = 'b';
    const char *const models[] = {a, b};
    start(1);
    add("10.0.0.1:8000", models, 2);
    serve(kvr_slice_of(a), SECOND);
    serve(kvr_slice_of(b), SECOND);
    char *text = page(2 * SECOND);
    assert_has(text, "_model_requests_total{model=\"other\"} 2\n");
    assert_promtool_accepts(text);
    free(text);
    kvr_router_deinit(&router);
}

static double milliseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void a_large_fleet_fits_a_small_page(void **state)
{
    (void)state;
    char names[4][KVR_REPLICA_MODELS_MAX][32];
    start(64);
    for (int i = 0; i < 64; i++) {
        const char *models[KVR_REPLICA_MODELS_MAX];
        for (int m = 0; m < KVR_REPLICA_MODELS_MAX; m++) {
            snprintf(names[i % 4][m], sizeof names[0][0], "vendor/model-%d-%d", i % 4, m);
            models[m] = names[i % 4][m];
        }
        char authority[64];
        snprintf(authority, sizeof authority, "engine-%d.fleet.example.org:8000", i);
        uint32_t slot = add(authority, models, KVR_REPLICA_MODELS_MAX);
        struct kvr_engine_signals signals = {.running = 1, .waiting = 2, .kv_usage = 0.5};
        kvr_router_signals(&router, SECOND, slot, &signals);
    }
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < KVR_REPLICA_MODELS_MAX; m++)
            serve(kvr_slice_of(names[i][m]), SECOND);
    double best_ms = 1e9;
    size_t bytes = 0;
    for (int i = 0; i < 5; i++) {
        double began = milliseconds();
        char *text = page(2 * SECOND);
        double took = milliseconds() - began;
        best_ms = took < best_ms ? took : best_ms;
        bytes = strlen(text);
        free(text);
    }
    print_message("page of 64 replicas and 128 models: %zu bytes, %.2f ms\n", bytes, best_ms);
    assert_true(bytes < 500000);
    assert_true(best_ms < 20);
    char *text = page(2 * SECOND);
    assert_promtool_accepts(text);
    free(text);
    kvr_router_deinit(&router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_tells_what_happened),
        cmocka_unit_test(a_script_is_named_and_its_faults_are_counted),
        cmocka_unit_test(invented_models_make_no_series),
        cmocka_unit_test(cut_names_are_no_series),
        cmocka_unit_test(a_large_fleet_fits_a_small_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
