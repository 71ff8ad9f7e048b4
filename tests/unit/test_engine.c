/* core/engine: what one engine does, case by case and by hand; test_engine_random.c has the rest.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_driver.h"

/* A step is 1 ms, a prefilled token 10 us, a decoding sequence 100 us: easy to add up. */
static struct kvr_profile plain(uint32_t blocks)
{
    return (struct kvr_profile){
        .name = "plain",
        .step_floor_ms = 1.0,
        .prefill_token_ms = 0.01,
        .decode_seq_ms = 0.1,
        .bytes_per_token = 4.0,
        .blocks = blocks,
        .max_num_batched_tokens = 1000,
        .max_num_seqs = 8,
        .max_model_len = 8000,
        .replicas = 1,
        .cache_generated = true,
    };
}

struct bench {
    struct kvr_engine engine;
    struct kvr_tokens tokens;
};

static void open_with(struct bench *bench, const struct kvr_engine_options *options)
{
    assert_int_equal(kvr_engine_init(&bench->engine, options, NULL), KVR_OK);
    kvr_tokens_init(&bench->tokens, 4.0);
}

static void open_plain(struct bench *bench, uint32_t blocks)
{
    struct kvr_profile profile = plain(blocks);
    open_with(bench, &(struct kvr_engine_options){.profile = &profile, .token_events = true});
}

static void close_bench(struct bench *bench)
{
    kvr_engine_verify(&bench->engine);
    kvr_tokens_deinit(&bench->tokens);
    kvr_engine_deinit(&bench->engine);
}

/* A prompt of `prompt` tokens of text `id`, whose first `shared` are those of text 0. The id names
 * the request too. */
static int submit_shared(struct bench *bench, uint64_t now_ns, uint64_t id, uint32_t shared,
                         uint32_t prompt, uint32_t output, struct kvr_engine_handle *handle)
{
    kvr_tokens_begin(&bench->tokens, 0, false);
    kvr_tokens_segment(&bench->tokens, 0, shared);
    kvr_tokens_segment(&bench->tokens, id, prompt - shared);
    kvr_tokens_segment(&bench->tokens, 1000 + id, output);
    struct kvr_engine_handle ignored;
    return kvr_engine_submit(&bench->engine, now_ns,
                             &(struct kvr_engine_request){
                                 .id = id,
                                 .blocks = bench->tokens.blocks,
                                 .blocks_len = bench->tokens.blocks_len,
                                 .prompt_tokens = prompt,
                                 .output_tokens = output,
                                 .reason = KVR_FINISH_LENGTH,
                             },
                             handle ? handle : &ignored);
}

static void submit(struct bench *bench, uint64_t now_ns, uint64_t id, uint32_t prompt,
                   uint32_t output)
{
    assert_int_equal(submit_shared(bench, now_ns, id, 0, prompt, output, NULL), KVR_OK);
}

/* Runs until there is an event; returns it. */
static struct kvr_engine_event next(struct bench *bench)
{
    struct kvr_engine_event event;
    while (!kvr_engine_next_event(&bench->engine, &event)) {
        uint64_t time_ns = kvr_engine_next_time(&bench->engine);
        assert_true(time_ns != KVR_ENGINE_NEVER);
        kvr_engine_advance(&bench->engine, time_ns);
    }
    return event;
}

static void expect(struct bench *bench, enum kvr_engine_event_kind kind, uint64_t request,
                   uint32_t token, double at_ms)
{
    struct kvr_engine_event event = next(bench);
    if (event.kind != kind || event.request != request || event.token != token ||
        event.time_ns != MS(at_ms))
        fail_msg("kind %d of request %d, token %u at %.4f ms; want %d, %d, %u, %.4f",
                 (int)event.kind, (int)event.request, event.token, (double)event.time_ns * 1e-6,
                 (int)kind, (int)request, token, at_ms);
}

static void expect_idle(struct bench *bench)
{
    struct kvr_engine_event event;
    assert_false(kvr_engine_next_event(&bench->engine, &event));
    assert_int_equal(kvr_engine_next_time(&bench->engine), KVR_ENGINE_NEVER);
}

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

static uint32_t cached_of_next_first_token(struct bench *bench)
{
    struct kvr_engine_event event;
    do
        event = next(bench);
    while (event.kind != KVR_ENGINE_TOKEN || event.token != 0);
    return event.cached_tokens;
}

static void drain_all(struct bench *bench)
{
    struct kvr_engine_event event;
    while (kvr_engine_next_time(&bench->engine) != KVR_ENGINE_NEVER)
        kvr_engine_advance(&bench->engine, kvr_engine_next_time(&bench->engine));
    while (kvr_engine_next_event(&bench->engine, &event)) {
    }
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
    assert_int_equal(count, 8);
    assert_null(kvr_profile_find(kvr_slice_of("tpu")));

    struct kvr_profile bad = plain(10);
    struct kvr_error error = {0};
    bad.jitter = (double)NAN;
    assert_int_equal(kvr_profile_check(&bad, &error), KVR_E_INVALID);
    assert_non_null(strstr(error.text, "jitter"));
    bad = plain(10);
    bad.max_num_batched_tokens = 7;
    assert_int_equal(kvr_profile_check(&bad, &error), KVR_E_INVALID);
    assert_non_null(strstr(error.text, "max_num_batched_tokens is 7"));
    struct kvr_engine engine;
    assert_int_equal(
        kvr_engine_init(&engine, &(struct kvr_engine_options){.profile = &bad}, &error),
        KVR_E_INVALID);
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
