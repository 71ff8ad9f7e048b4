/* Calibration: what an engine is timed at, as a client would under virtual time, gives its profile
 * back, its token budget too. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "calibration.h"
#include "engine_driver.h"

#define TIMINGS 64

static const uint32_t lengths[] = {60, 200, 600, 1500, 3000, 6000, 7900};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

struct client {
    struct kvr_engine engine;
    struct kvr_tokens tokens;
    uint64_t now_ns;
    uint64_t serial;
    struct kvr_timing timings[TIMINGS];
    size_t len;
};

static void submit(struct client *client, uint64_t prompt_id, uint32_t prompt, uint32_t output)
{
    kvr_tokens_begin(&client->tokens, 0, false);
    kvr_tokens_segment(&client->tokens, prompt_id, prompt);
    struct kvr_engine_handle handle;
    int failed = kvr_engine_submit(&client->engine, client->now_ns,
                                   &(struct kvr_engine_request){
                                       .id = prompt_id,
                                       .blocks = client->tokens.blocks,
                                       .blocks_len = client->tokens.blocks_len,
                                       .prompt_tokens = prompt,
                                       .output_tokens = output,
                                   },
                                   &handle);
    KVR_CHECK(!failed);
}

static struct kvr_engine_event next(struct client *client)
{
    struct kvr_engine_event event;
    while (!kvr_engine_next_event(&client->engine, &event)) {
        client->now_ns = kvr_engine_next_time(&client->engine);
        kvr_engine_advance(&client->engine, client->now_ns);
    }
    client->now_ns = event.time_ns;
    return event;
}

static void drain(struct client *client)
{
    while (kvr_engine_next_time(&client->engine) != KVR_ENGINE_NEVER)
        next(client);
    struct kvr_engine_event event;
    while (kvr_engine_next_event(&client->engine, &event))
        continue;
}

static void note(struct client *client, struct kvr_timing timing)
{
    assert_true(client->len < TIMINGS);
    client->timings[client->len++] = timing;
}

static void time_first(struct client *client, uint32_t prompt, bool again)
{
    uint64_t id = again ? client->serial : ++client->serial;
    uint64_t sent_ns = client->now_ns;
    submit(client, id, prompt, 1);
    struct kvr_engine_event event = next(client);
    note(client,
         (struct kvr_timing){
             .kind = KVR_TIMING_FIRST,
             .prompt_tokens = prompt,
             .cached_tokens = event.cached_tokens,
             .ms = (double)(event.time_ns - sent_ns) * 1e-6 + client->engine.profile.overhead_ms,
         });
    drain(client);
}

static void time_gap(struct client *client, uint32_t streams, uint32_t prompt)
{
    for (uint32_t i = 0; i < streams; i++)
        submit(client, ++client->serial, prompt, 100);
    uint64_t marks[2] = {0, 0};
    uint64_t context = 0;
    while (marks[1] == 0) {
        struct kvr_engine_event event = next(client);
        if (event.request != client->serial || event.kind != KVR_ENGINE_TOKEN)
            continue;
        if (event.token == 50) { /* the gap after it: each stream has computed what it has told */
            marks[0] = event.time_ns;
            context = client->engine.scheduler.decode.context;
        } else if (event.token == 51) {
            marks[1] = event.time_ns;
        }
    }
    note(client, (struct kvr_timing){.kind = KVR_TIMING_GAP,
                                     .decoding = streams,
                                     .decode_context = context,
                                     .ms = (double)(marks[1] - marks[0]) * 1e-6});
    drain(client);
}

static void time_spike(struct client *client, uint32_t prompt)
{
    uint64_t stream = ++client->serial;
    submit(client, stream, 40, 200);
    struct kvr_engine_event event;
    do
        event = next(client);
    while (event.token != 20);
    uint64_t before_ns = event.time_ns;
    uint64_t longest_ns = 0;
    submit(client, ++client->serial, prompt, 1);
    while (event.request != client->serial) {
        event = next(client);
        if (event.request == stream && event.kind == KVR_ENGINE_TOKEN) {
            longest_ns =
                event.time_ns - before_ns > longest_ns ? event.time_ns - before_ns : longest_ns;
            before_ns = event.time_ns;
        }
    }
    note(client, (struct kvr_timing){.kind = KVR_TIMING_SPIKE,
                                     .prompt_tokens = prompt,
                                     .decoding = 1,
                                     .decode_context = 62,
                                     .ms = (double)longest_ns * 1e-6});
    drain(client);
}

static void time_all(struct client *client, const struct kvr_profile *profile)
{
    *client = (struct client){.now_ns = 0};
    int failed = kvr_engine_init(
        &client->engine, &(struct kvr_engine_options){.profile = profile, .token_events = true},
        NULL);
    assert_int_equal(failed, 0);
    kvr_tokens_init(&client->tokens, 4.0);
    for (size_t i = 0; i < LENGTHS; i++) {
        time_first(client, lengths[i], false);
        time_first(client, lengths[i], true);
        time_spike(client, lengths[i]);
    }
    for (uint32_t streams = 1; streams <= 32; streams *= 2) {
        time_gap(client, streams, 40);
        if (streams * 1300 <= profile->blocks * KVR_BLOCK_TOKENS) /* or some would wait */
            time_gap(client, streams, 1200);
    }
    kvr_tokens_deinit(&client->tokens);
    kvr_engine_deinit(&client->engine);
}

static void assert_near(const char *what, double value, double truth, double tolerance)
{
    if (!(fabs(value - truth) <= tolerance * truth + 1e-9))
        fail_msg("%s is %.6g, was %.6g", what, value, truth);
}

static void test_profiles_come_back(void **state)
{
    (void)state;
    static struct client client;
    const struct kvr_profile *built_in;
    for (size_t i = 0; (built_in = kvr_profile_at(i)); i++) {
        struct kvr_profile truth = *built_in;
        truth.jitter = 0;
        time_all(&client, &truth);
        struct kvr_profile found = {.name = "found"};
        struct kvr_calibration report;
        struct kvr_error error = {0};
        const struct kvr_calibration_options options = {0};
        if (kvr_calibrate(client.timings, client.len, &options, &found, &report, &error))
            fail_msg("%s", error.text);
        print_message("%s: worst error %.3f %%\n", truth.name, 100 * report.all.worst);
        assert_int_equal(found.max_num_batched_tokens, truth.max_num_batched_tokens);
        assert_int_equal(found.form, truth.form);
        assert_near("floor", found.step_floor_ms + found.weights_ms,
                    truth.step_floor_ms + truth.weights_ms, 0.01);
        assert_near("prefill step", found.prefill_step_ms, truth.prefill_step_ms, 0.02);
        assert_near("prefill token", found.prefill_token_ms, truth.prefill_token_ms, 0.01);
        assert_near("prefill context", found.prefill_context_ms, truth.prefill_context_ms, 0.03);
        assert_near("decode seq", found.decode_seq_ms, truth.decode_seq_ms, 0.03);
        assert_near("squared", found.decode_seq_squared_ms, truth.decode_seq_squared_ms, 0.03);
        assert_near("decode context", found.decode_context_ms, truth.decode_context_ms, 0.03);
        assert_near("overhead", found.overhead_ms, truth.overhead_ms, 0.02);
    }
}

/* Every fifth timing is too long, by a half or by five times, as when the machine had other things
 * to do. */
static void test_disturbed(void **state)
{
    (void)state;
    static struct client client;
    struct kvr_profile truth = *kvr_profile_find(kvr_slice_of("h100-8b-bf16"));
    truth.jitter = 0;
    time_all(&client, &truth);
    for (size_t i = 2; i < client.len; i += 5)
        client.timings[i].ms *= i % 2 ? 1.5 : 5;
    struct kvr_profile found = {.name = "found"};
    struct kvr_calibration report;
    const struct kvr_calibration_options options = {0};
    assert_int_equal(kvr_calibrate(client.timings, client.len, &options, &found, &report, NULL),
                     KVR_OK);
    assert_int_equal(found.max_num_batched_tokens, truth.max_num_batched_tokens);
    assert_near("floor", found.step_floor_ms, truth.step_floor_ms, 0.02);
    assert_near("prefill token", found.prefill_token_ms, truth.prefill_token_ms, 0.03);
    assert_near("decode context", found.decode_context_ms, truth.decode_context_ms, 0.1);
    assert_true(report.all.median < 0.01 && report.all.worst > 0.3); /* and the report says so */
}

static void test_refused(void **state)
{
    (void)state;
    const struct kvr_calibration_options options = {0};
    struct kvr_calibration report;
    struct kvr_profile profile = {0};
    struct kvr_error error = {0};
    struct kvr_timing timings[] = {
        {.kind = KVR_TIMING_FIRST, .prompt_tokens = 100, .ms = 30},
        {.kind = KVR_TIMING_GAP, .decoding = 1, .decode_context = 100, .ms = 10},
    };
    assert_int_equal(kvr_calibrate(timings, 2, &options, &profile, &report, &error), KVR_E_INVALID);
    assert_string_equal(error.text, "there is no timing of a gap during a prefill");
    timings[0].ms = 0;
    assert_int_equal(kvr_calibrate(timings, 2, &options, &profile, &report, &error), KVR_E_INVALID);
    assert_string_equal(error.text, "no such timing of a first token: 0 ms");
    timings[0] = (struct kvr_timing){
        .kind = KVR_TIMING_FIRST, .prompt_tokens = 100, .cached_tokens = 100, .ms = 1};
    assert_int_equal(kvr_calibrate(timings, 2, &options, &profile, &report, &error), KVR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles_come_back),
        cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
