/* core/engine: what becomes of requests in the batch, case by case and by hand; aborts, limits and
 * the like are in test_engine_edges.c, random schedules in test_engine_random.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_bench.h"

static void test_one_request(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 100);
    expect_idle(&bench);
    submit(&bench, MS(5), 1, 100, 3);
    assert_int_equal(kvr_engine_next_time(&bench.engine), MS(5)); /* its step is yet to start */
    kvr_engine_advance(&bench.engine, MS(5));
    assert_int_equal(kvr_engine_next_time(&bench.engine), MS(7));
    assert_int_equal(kvr_engine_gauges(&bench.engine).running, 1);
    assert_int_equal(kvr_engine_gauges(&bench.engine).blocks_used, 7);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 7.0); /* 1 + 100 * 0.01 */
    expect(&bench, KVR_ENGINE_TOKEN, 1, 1, 8.1);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 2, 9.2);
    struct kvr_engine_event end = next(&bench);
    assert_int_equal(end.kind, KVR_ENGINE_FINISHED);
    assert_int_equal(end.reason, KVR_FINISH_LENGTH);
    assert_int_equal(end.token, 3);
    assert_int_equal(end.prompt_tokens, 100);
    assert_int_equal(end.submitted_ns, MS(5));
    assert_int_equal(end.admitted_ns, MS(5));
    assert_int_equal(end.first_token_ns, MS(7));
    assert_int_equal(end.gap_p50_ns, MS(1.1));
    expect_idle(&bench);

    struct kvr_engine_gauges gauges = kvr_engine_gauges(&bench.engine);
    assert_int_equal(gauges.running + gauges.waiting + gauges.blocks_used, 0);
    assert_int_equal(gauges.blocks_cached, 6); /* idle, findable, and free as vLLM counts it */
    assert_true(gauges.kv_usage == 0.0);
    const struct kvr_engine_counters *counters = &bench.engine.counters;
    assert_int_equal(counters->prompt_tokens, 100);
    assert_int_equal(counters->generation_tokens, 3);
    assert_int_equal(counters->finished[KVR_FINISH_LENGTH], 1);
    assert_int_equal(counters->steps, 3);
    close_bench(&bench);
}

/* A late timer sees old times; the next step started when the one before ended. */
static void test_late_advance_changes_nothing(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 100);
    submit(&bench, 0, 1, 100, 3);
    kvr_engine_advance(&bench.engine, 0);
    kvr_engine_advance(&bench.engine, MS(500));
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 2.0);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 1, 3.1);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 2, 4.2);
    expect(&bench, KVR_ENGINE_FINISHED, 1, 3, 4.2);
    expect_idle(&bench);
    close_bench(&bench);
}

static void test_last_token_is_recomputed(void **state)
{
    (void)state;
    const uint32_t lengths[] = {64, 65, 79, 80, 81, 1, 16, 17};
    const uint32_t cached[] = {48, 64, 64, 64, 80, 0, 0, 16};
    for (int i = 0; i < 8; i++) {
        struct bench bench;
        open_plain(&bench, 100);
        submit(&bench, 0, 1, lengths[i], 1);
        assert_int_equal(cached_of_next_first_token(&bench), 0);
        drain_all(&bench);
        submit(&bench, MS(100), 1, lengths[i], 1);
        assert_int_equal(cached_of_next_first_token(&bench), cached[i]);
        assert_int_equal(bench.engine.counters.prefix_queries, 2 * lengths[i]);
        assert_int_equal(bench.engine.counters.prefix_hits, cached[i]);
        drain_all(&bench);
        close_bench(&bench);
    }
}

/* Blocks get their hashes when scheduled: two of one instant share already. */
static void test_same_step_shares(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 100);
    submit(&bench, 0, 1, 100, 2);
    submit(&bench, 0, 1, 100, 2);
    /* One step for both: 1 + (100 + 4) * 0.01. */
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 2.04);
    assert_int_equal(cached_of_next_first_token(&bench), 96);
    assert_int_equal(kvr_engine_gauges(&bench.engine).blocks_used, 6 + 1 + 1);
    drain_all(&bench);
    close_bench(&bench);
}

static void test_generated_blocks(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        struct kvr_profile profile = plain(100);
        profile.cache_generated = cached;
        struct bench bench;
        open_with(&bench, &(struct kvr_engine_options){.profile = &profile});
        submit(&bench, 0, 1, 30, 50);
        drain_all(&bench);
        /* 79 of the 80 tokens were computed: four full blocks, one of them all prompt. */
        assert_int_equal(kvr_engine_gauges(&bench.engine).blocks_cached, cached ? 4 : 1);
        /* The next turn: the same prompt and answer, and then more. */
        kvr_tokens_begin(&bench.tokens, 0, false);
        kvr_tokens_segment(&bench.tokens, 1, 30);
        kvr_tokens_segment(&bench.tokens, 1001, 50);
        kvr_tokens_segment(&bench.tokens, 77, 40);
        struct kvr_engine_handle handle;
        struct kvr_engine_request request = {.id = 2,
                                             .blocks = bench.tokens.blocks,
                                             .blocks_len = bench.tokens.blocks_len,
                                             .prompt_tokens = bench.tokens.count,
                                             .output_tokens = 1};
        assert_int_equal(kvr_engine_submit(&bench.engine, MS(500), &request, &handle), KVR_OK);
        assert_int_equal(cached_of_next_first_token(&bench), cached ? 64 : 16);
        drain_all(&bench);
        close_bench(&bench);
    }
}

static void test_chunked_prefill_beside_decode(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 400);
    submit(&bench, 0, 1, 100, 5);
    kvr_engine_advance(&bench.engine, 0);
    submit(&bench, MS(1), 2, 2500, 1);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 2.0);
    /* 999 tokens beside one decode: 1 + 9.99 + 0.1; twice; then the last 502. */
    expect(&bench, KVR_ENGINE_TOKEN, 1, 1, 13.09);
    assert_int_equal(kvr_engine_gauges(&bench.engine).running, 2);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 2, 24.18);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 3, 30.30);
    expect(&bench, KVR_ENGINE_TOKEN, 2, 0, 30.30);
    expect(&bench, KVR_ENGINE_FINISHED, 2, 1, 30.30);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 4, 31.40);
    struct kvr_engine_event end = next(&bench);
    assert_int_equal(end.gap_max_ns, MS(11.09));
    assert_int_equal(end.gap_p50_ns, MS(6.12)); /* of 1.1, 6.12, 11.09, 11.09 the lower */
    close_bench(&bench);
}

static void test_head_of_line_blocks(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 20);
    submit(&bench, 0, 1, 10 * 16, 5);
    kvr_engine_advance(&bench.engine, 0);
    submit(&bench, MS(1), 2, 15 * 16, 1); /* does not fit beside the first */
    submit(&bench, MS(1), 3, 16, 1);      /* would, but waits its turn */
    expect(&bench, KVR_ENGINE_TOKEN, 1, 0, 2.6);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 1, 3.7);
    assert_int_equal(kvr_engine_gauges(&bench.engine).waiting, 2);
    assert_int_equal(kvr_engine_gauges(&bench.engine).waiting_tokens, 16 * 16);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 2, 4.8);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 3, 5.9);
    expect(&bench, KVR_ENGINE_TOKEN, 1, 4, 7.0);
    expect(&bench, KVR_ENGINE_FINISHED, 1, 5, 7.0);
    expect(&bench, KVR_ENGINE_TOKEN, 2, 0, 7.0 + 1 + 2.56);
    expect(&bench, KVR_ENGINE_FINISHED, 2, 1, 10.56);
    expect(&bench, KVR_ENGINE_TOKEN, 3, 0, 10.56);
    drain_all(&bench);
    close_bench(&bench);
}

/* Two grow until no block is free; the later one starts over and loses no token. */
static void test_preemption(void **state)
{
    (void)state;
    struct bench bench;
    open_plain(&bench, 8);
    submit(&bench, 0, 1, 48, 40);
    submit(&bench, 0, 2, 48, 40);
    uint32_t tokens[3] = {0, 0, 0};
    uint64_t ends[3] = {0, 0, 0};
    struct kvr_engine_event event;
    while (!ends[1] || !ends[2]) {
        event = next(&bench);
        if (event.kind == KVR_ENGINE_TOKEN) {
            assert_int_equal(event.token, tokens[event.request]++); /* each once, in order */
        } else {
            ends[event.request] = event.time_ns;
            assert_int_equal(event.preemptions, event.request == 2);
            if (event.request == 2) /* its gap spans the time it was out */
                assert_true(event.gap_max_ns > MS(20) && event.gap_p50_ns < MS(2));
        }
        kvr_engine_verify(&bench.engine);
    }
    assert_int_equal(tokens[1], 40);
    assert_int_equal(tokens[2], 40);
    assert_true(ends[1] < ends[2]);
    assert_int_equal(bench.engine.counters.preemptions, 1);
    assert_int_equal(bench.engine.counters.generation_tokens, 80);
    assert_int_equal(bench.engine.counters.prompt_tokens, 96); /* counted once */
    expect_idle(&bench);
    close_bench(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_late_advance_changes_nothing),
        cmocka_unit_test(test_last_token_is_recomputed),
        cmocka_unit_test(test_same_step_shares),
        cmocka_unit_test(test_generated_blocks),
        cmocka_unit_test(test_chunked_prefill_beside_decode),
        cmocka_unit_test(test_head_of_line_blocks),
        cmocka_unit_test(test_preemption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
