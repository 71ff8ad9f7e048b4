/* For engine cases by hand: a profile whose times are easy to add up, prompts by name, and the
 * events that must come. Include after cmocka.h. */
#ifndef ENGINE_BENCH_H
#define ENGINE_BENCH_H

#include "engine_driver.h"

/* A step is 1 ms, a prefilled token 10 us, a decoding sequence 100 us: easy to add up. */
static inline struct kvr_profile plain(uint32_t blocks)
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

static inline void open_with(struct bench *bench, const struct kvr_engine_options *options)
{
    assert_int_equal(kvr_engine_init(&bench->engine, options, NULL), KVR_OK);
    kvr_tokens_init(&bench->tokens, 4.0);
}

static inline void open_plain(struct bench *bench, uint32_t blocks)
{
    struct kvr_profile profile = plain(blocks);
    open_with(bench, &(struct kvr_engine_options){.profile = &profile, .token_events = true});
}

static inline void close_bench(struct bench *bench)
{
    kvr_engine_verify(&bench->engine);
    kvr_tokens_deinit(&bench->tokens);
    kvr_engine_deinit(&bench->engine);
}

/* A prompt of `prompt` tokens of text `id`, whose first `shared` are those of text 0. The id names
 * the request too. */
static inline int submit_shared(struct bench *bench, uint64_t now_ns, uint64_t id, uint32_t shared,
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

static inline void submit(struct bench *bench, uint64_t now_ns, uint64_t id, uint32_t prompt,
                          uint32_t output)
{
    assert_int_equal(submit_shared(bench, now_ns, id, 0, prompt, output, NULL), KVR_OK);
}

/* Runs until there is an event; returns it. */
static inline struct kvr_engine_event next(struct bench *bench)
{
    struct kvr_engine_event event;
    while (!kvr_engine_next_event(&bench->engine, &event)) {
        uint64_t time_ns = kvr_engine_next_time(&bench->engine);
        assert_true(time_ns != KVR_ENGINE_NEVER);
        kvr_engine_advance(&bench->engine, time_ns);
    }
    return event;
}

static inline void expect(struct bench *bench, enum kvr_engine_event_kind kind, uint64_t request,
                          uint32_t token, double at_ms)
{
    struct kvr_engine_event event = next(bench);
    if (event.kind != kind || event.request != request || event.token != token ||
        event.time_ns != MS(at_ms))
        fail_msg("kind %d of request %d, token %u at %.4f ms; want %d, %d, %u, %.4f",
                 (int)event.kind, (int)event.request, event.token, (double)event.time_ns * 1e-6,
                 (int)kind, (int)request, token, at_ms);
}

static inline void expect_idle(struct bench *bench)
{
    struct kvr_engine_event event;
    assert_false(kvr_engine_next_event(&bench->engine, &event));
    assert_int_equal(kvr_engine_next_time(&bench->engine), KVR_ENGINE_NEVER);
}

static inline uint32_t cached_of_next_first_token(struct bench *bench)
{
    struct kvr_engine_event event;
    do
        event = next(bench);
    while (event.kind != KVR_ENGINE_TOKEN || event.token != 0);
    return event.cached_tokens;
}

static inline void drain_all(struct bench *bench)
{
    struct kvr_engine_event event;
    while (kvr_engine_next_time(&bench->engine) != KVR_ENGINE_NEVER)
        kvr_engine_advance(&bench->engine, kvr_engine_next_time(&bench->engine));
    while (kvr_engine_next_event(&bench->engine, &event)) {
    }
}

#endif
