/* core/engine at its edges: aborts, limits, KV events, restart, slow phases, jitter, profiles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bench.h"

static void test_abort_frees_at_once(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 40);
    struct kvr_engine_handle decoding, prefilling, waiting;
    assert_int_equal(submit_shared(&bench, 0, 1, 0, 100, 50, &decoding), KVR_OK);
    kvr_engine_advance(&bench.engine, MS(1.5));
    assert_int_equal(submit_shared(&bench, MS(1.5), 2, 0, 200, 50, &prefilling), KVR_OK);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 2.0);
    assert_int_equal(submit_shared(&bench, MS(2.5), 3, 0, 100, 50, &waiting), KVR_OK);
    assert_int_equal(kvr_engine_gauges(&bench.engine).blocks_used, 7 + 13);

    /* All three within the step that decodes the first and prefills the second. */
    assert_int_equal(kvr_engine_abort(&bench.engine, MS(3), prefilling), KVR_OK);
    assert_int_equal(kvr_engine_gauges(&bench.engine).blocks_used, 7);
    assert_int_equal(kvr_engine_abort(&bench.engine, MS(3), waiting), KVR_OK);
    assert_int_equal(kvr_engine_abort(&bench.engine, MS(3), decoding), KVR_OK);
    assert_int_equal(kvr_engine_abort(&bench.engine, MS(3), decoding), KVR_E_NOT_FOUND);
    struct kvr_engine_gauges gauges = kvr_engine_gauges(&bench.engine);
    assert_int_equal(gauges.blocks_used + gauges.running + gauges.waiting, 0);
    assert_int_equal(gauges.blocks_cached, 6 + 12); /* what they had is still found */
    assert_int_equal(bench.engine.counters.finished[KVR_FINISH_ABORT], 3);
    kvr_engine_verify(&bench.engine);

    /* The GPU is busy until the step ends; nothing comes of it. */
    assert_int_equal(kvr_engine_next_time(&bench.engine), MS(2 + 1 + 2 + 0.1));
    submit(&bench, MS(4), 1, 100, 1);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 5.1 + 1 + 0.04);
    expect(&bench, KVR_ENGINE_FINISHED, 1, 1, 6.14);
    expect_idle(&bench);
    close_bench(&bench);
}

/* Events that were on their way are dropped with the request; a finished one is past aborting. */
static void test_abort_and_unread_events(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 40);
    struct kvr_engine_handle first, second;
    assert_int_equal(submit_shared(&bench, 0, 1, 0, 100, 2, &first), KVR_OK);
    assert_int_equal(submit_shared(&bench, 0, 2, 0, 100, 20, &second), KVR_OK);
    kvr_engine_advance(&bench.engine, 0);
    kvr_engine_advance(&bench.engine, MS(10));
    assert_int_equal(kvr_engine_abort(&bench.engine, MS(10), second), KVR_OK);
    assert_int_equal(kvr_engine_abort(&bench.engine, MS(10), first), KVR_E_NOT_FOUND);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 3.0);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 1, 4.2);
    expect(&bench, KVR_ENGINE_FINISHED, 1, 2, 4.2);
    assert_int_equal(bench.engine.scheduler.pool.in_use, 0);
    drain_all(&bench);
    close_bench(&bench);
}

static void test_limits(void **state)
{
    (void)state;
    struct kvr_profile profile = plain(20);
    struct bench bench;
    open_with(&bench, &(struct kvr_engine_options){
                          .profile = &profile, .max_waiting = 2, .max_waiting_tokens = 500});
    assert_int_equal(submit_shared(&bench, 0, 1, 0, 0, 5, NULL), KVR_E_INVALID);
    assert_int_equal(submit_shared(&bench, 0, 1, 0, 5, 0, NULL), KVR_E_INVALID);
    assert_int_equal(submit_shared(&bench, 0, 1, 0, 7999, 2, NULL), KVR_E_INVALID);
    assert_int_equal(submit_shared(&bench, 0, 1, 0, 320, 2, NULL), KVR_E_INVALID);
    submit(&bench, 0, 1, 320, 1); /* the last token's KV is never computed: it just fits */
    kvr_engine_advance(&bench.engine, 0);
    submit(&bench, 1, 2, 100, 1);
    assert_int_equal(submit_shared(&bench, 1, 3, 0, 320, 1, NULL), KVR_OK);
    assert_int_equal(submit_shared(&bench, 1, 4, 0, 100, 1, NULL), KVR_E_LIMIT);
    assert_int_equal(bench.engine.counters.rejected_requests, 1);
    kvr_engine_advance(&bench.engine, MS(5)); /* the first ends, the second starts */
    assert_int_equal(submit_shared(&bench, MS(5), 5, 0, 200, 1, NULL), KVR_E_LIMIT);
    assert_int_equal(bench.engine.counters.rejected_tokens, 1);
    drain_all(&bench);
    assert_int_equal(bench.engine.counters.finished[KVR_FINISH_LENGTH], 3);
    close_bench(&bench);
}

static void test_kv_events(void **state)
{
    (void)state;
    struct kvr_profile profile = plain(7);
    struct bench bench;
    open_with(&bench, &(struct kvr_engine_options){.profile = &profile, .kv_events = true});
    submit(&bench, 0, 1, 50, 1);
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++)
        hashes[i] = bench.tokens.blocks[i];
    kvr_engine_advance(&bench.engine, 0);
    struct kvr_engine_event event;
    assert_false(kvr_engine_next_event(&bench.engine, &event)); /* not before the step's end */
    for (uint32_t i = 0; i < 3; i++) {
        event = next(&bench);
        assert_int_equal(event.kind, KVR_ENGINE_STORED);
        assert_int_equal(event.time_ns, MS(1.5));
        assert_int_equal(event.request, 1);
        assert_int_equal(event.block, hashes[i]);
        assert_int_equal(event.parent, i ? hashes[i - 1] : 0);
        assert_int_equal(event.block_index, i);
    }
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 1.5);
    expect(&bench, KVR_ENGINE_FINISHED, 1, 1, 1.5);

    /* Six more blocks: four that hold nothing, then the first prompt's last two. */
    submit(&bench, MS(10), 2, 90, 1);
    int stored = 0;
    int removed = 0;
    while ((event = next(&bench)).kind != KVR_ENGINE_TOKEN) {
        stored += event.kind == KVR_ENGINE_STORED;
        if (event.kind == KVR_ENGINE_REMOVED)
            assert_int_equal(event.block, hashes[2 - removed++]);
    }
    assert_int_equal(stored, 5);
    assert_int_equal(removed, 2);
    expect(&bench, KVR_ENGINE_FINISHED, 2, 1, 11.9);
    assert_int_equal(kvr_engine_reset_prefix_cache(&bench.engine, MS(12)), KVR_OK);
    assert_int_equal(next(&bench).kind, KVR_ENGINE_CLEARED);
    assert_int_equal(kvr_engine_gauges(&bench.engine).blocks_cached, 0);
    submit(&bench, MS(13), 2, 90, 1);
    assert_int_equal(kvr_engine_reset_prefix_cache(&bench.engine, MS(14)), KVR_E_STATE);
    drain_all(&bench);
    close_bench(&bench);
}

static void test_restart(void **state)
{
    (void)state;
    struct kvr_profile profile = plain(100);
    profile.startup_ms = 40.0;
    struct bench bench;
    open_with(&bench, &(struct kvr_engine_options){.profile = &profile});
    submit(&bench, 0, 1, 100, 50);
    kvr_engine_advance(&bench.engine, 0);
    submit(&bench, MS(1), 2, 100, 50);
    kvr_engine_restart(&bench.engine, MS(1.5));
    for (uint64_t id = 1; id <= 2; id++) {
        struct kvr_engine_event event = next(&bench);
        assert_int_equal(event.kind, KVR_ENGINE_FINISHED);
        assert_int_equal(event.reason, KVR_FINISH_ERROR);
        assert_int_equal(event.request, id);
        assert_int_equal(event.first_token_ns, KVR_ENGINE_NEVER);
    }
    expect_idle(&bench);
    assert_false(kvr_engine_ready(&bench.engine, MS(41.4)));
    assert_int_equal(submit_shared(&bench, MS(41.4), 3, 0, 10, 1, NULL), KVR_E_STATE);
    assert_true(kvr_engine_ready(&bench.engine, MS(41.5)));
    submit(&bench, MS(41.5), 1, 100, 1);
    assert_int_equal(cached_of_next_first_token(&bench), 0);
    drain_all(&bench);
    close_bench(&bench);
}

static void test_slowdown(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 100);
    submit(&bench, 0, 1, 100, 4);
    kvr_engine_advance(&bench.engine, 0);
    kvr_engine_set_slowdown(&bench.engine, MS(1), 2.0); /* steps that start from now on */
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 2.0);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 1, 4.2);
    kvr_engine_set_slowdown(&bench.engine, MS(5), 1.0);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 2, 6.4);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 3, 7.5);
    drain_all(&bench);
    close_bench(&bench);
}

/* The factor on a step is lognormal with the profile's sigma, and a function of the seed. */
static void test_jitter(void **state)
{
    (void)state;
    struct kvr_profile profile = plain(4000);
    profile.jitter = 0.05;
    profile.max_model_len = 60000;
    double sum = 0.0, squares = 0.0;
    uint64_t ends[3];
    for (int run = 0; run < 3; run++) {
        struct bench bench;
        open_with(&bench, &(struct kvr_engine_options){
                              .profile = &profile, .seed = run == 2, .token_events = true});
        submit(&bench, 0, 1, 1, 50001);
        uint64_t before = next(&bench).time_ns;
        struct kvr_engine_event event;
        while ((event = next(&bench)).kind == KVR_ENGINE_TOKEN) {
            double z = log((double)(event.time_ns - before) / 1.1e6);
            before = event.time_ns;
            sum += run ? 0.0 : z;
            squares += run ? 0.0 : z * z;
        }
        ends[run] = event.time_ns;
        close_bench(&bench);
    }
    assert_true(fabs(sum / 50000) < 0.001);
    assert_true(fabs(sqrt(squares / 50000) - 0.05) < 0.001);
    assert_int_equal(ends[0], ends[1]);
    assert_int_not_equal(ends[0], ends[2]);
}

static void test_profiles(void **state)
{
    (void)state;
    size_t count = 0;
    for (const struct kvr_profile *p; (p = kvr_profile_at(count)) != NULL; count++) {
        struct kvr_error error = {0};
        assert_int_equal(kvr_profile_check(p, &error), KVR_OK);
        assert_ptr_equal(kvr_profile_find(kvr_slice_of(p->name)), p);
    }
    assert_true(count >= 8);
    assert_null(kvr_profile_find(kvr_slice_of("tpu")));

    struct kvr_profile bad = plain(10);
    struct kvr_error error = {0};
    bad.jitter = (double)NAN;
    assert_int_equal(kvr_profile_check(&bad, &error), KVR_E_INVALID);
    assert_non_null(strstr(error.text, "jitter"));
    bad = plain(10);
    bad.max_num_batched_tokens = 7;
    assert_int_equal(kvr_profile_check(&bad, &error), KVR_E_INVALID);
    assert_non_null(strstr(error.text, "max_num_batched_tokens must be between 8 and"));
    struct kvr_engine engine;
    assert_int_equal(
        kvr_engine_init(&engine, &(struct kvr_engine_options){.profile = &bad}, &error),
        KVR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_frees_at_once),
        cmocka_unit_test(test_abort_and_unread_events),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_kv_events),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_slowdown),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_profiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
