/* Drives one engine in tests: prompts as segments, and a closed loop of users under virtual time
 * with the path overhead that a profile states (80 % before the engine, 20 % after each event). */
#ifndef ENGINE_DRIVER_H
#define ENGINE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "engine.h"
#include "memory.h"
#include "tokens.h"

#define MS(x) ((uint64_t)((x)*1e6 + 0.5))

#define LOOP_USERS_MAX 128

/* One finished request as its user saw it. */
struct loop_row {
    uint64_t sent_ns;
    uint64_t ttft_ns;
    uint64_t itl_p50_ns;
    uint64_t itl_mean_ns;
    uint32_t output_tokens;
    uint32_t cached_tokens;
};

struct loop {
    struct kvr_engine engine;
    uint32_t users;
    double early_share; /* of answers that stop by themselves */
    uint32_t max_tokens;
    uint32_t prompt_bytes;
    uint32_t turns; /* the same prompt is sent so many times by a user before a new one */
    /* state */
    uint64_t seed;
    uint64_t next_prompt;
    uint64_t now_ns;
    struct {
        uint64_t arrives_ns; /* at the engine; KVR_NEVER while served */
        uint64_t sent_ns;
        uint64_t first_ns;
        uint64_t prompt; /* segment id */
        uint32_t turn;
    } user[LOOP_USERS_MAX];
    struct loop_row *rows; /* owned */
    uint32_t rows_len;
    uint32_t rows_capacity;
    uint64_t digest; /* of every event, in order */
};

static inline uint64_t loop_before_ns(const struct loop *loop)
{
    return MS(loop->engine.profile.overhead_ms * 0.8);
}

static inline uint64_t loop_after_ns(const struct loop *loop)
{
    return MS(loop->engine.profile.overhead_ms * 0.2);
}

static inline void loop_send(struct loop *loop, uint32_t user, uint64_t now_ns)
{
    if (loop->user[user].turn++ % loop->turns == 0)
        loop->user[user].prompt = ++loop->next_prompt;
    loop->user[user].sent_ns = now_ns;
    loop->user[user].arrives_ns = now_ns + loop_before_ns(loop);
}

/* With the study's fixed request unless changed: 2,048 bytes in, at most 64 tokens out. */
static inline void loop_init(struct loop *loop, const struct kvr_engine_options *options,
                             uint32_t users)
{
    *loop = (struct loop){.users = users,
                          .prompt_bytes = 2048,
                          .max_tokens = 64,
                          .early_share = 0.2,
                          .turns = 1,
                          .seed = options->seed};
    int failed = kvr_engine_init(&loop->engine, options, NULL);
    KVR_CHECK(!failed && users <= LOOP_USERS_MAX);
}

static inline void loop_deinit(struct loop *loop)
{
    kvr_engine_deinit(&loop->engine);
    kvr_free(loop->rows);
}

/* A request with text of its own after the shared chat head. */
static inline void loop_submit(struct loop *loop, struct kvr_tokens *tokens, uint32_t user)
{
    kvr_tokens_begin(tokens, 0, false);
    kvr_tokens_markup(tokens, KVR_MARKUP_HEAD, loop->engine.profile.chat_head_tokens);
    kvr_tokens_markup(tokens, KVR_MARKUP_USER, KVR_MARKUP_OPEN_TOKENS);
    kvr_tokens_segment(tokens, loop->user[user].prompt,
                       kvr_tokens_of_bytes(tokens, loop->prompt_bytes));
    kvr_tokens_markup(tokens, KVR_MARKUP_END, 1);
    kvr_tokens_markup(tokens, KVR_MARKUP_ASSISTANT, KVR_MARKUP_OPEN_TOKENS);
    struct kvr_engine_request request = {.id = user, .prompt_tokens = tokens->count};
    struct kvr_answer_length answer = kvr_answer_length(loop->seed ^ kvr_tokens_digest(tokens),
                                                        loop->max_tokens, loop->early_share);
    kvr_tokens_segment(tokens, ~loop->user[user].prompt, answer.tokens);
    request.output_tokens = answer.tokens;
    request.reason = answer.stopped ? KVR_FINISH_STOP : KVR_FINISH_LENGTH;
    request.blocks = tokens->blocks;
    request.blocks_len = tokens->blocks_len;
    struct kvr_engine_handle handle;
    int failed = kvr_engine_submit(&loop->engine, loop->now_ns, &request, &handle);
    KVR_CHECK(!failed);
    loop->user[user].arrives_ns = KVR_NEVER;
}

static inline void loop_event(struct loop *loop, const struct kvr_engine_event *event)
{
    if (event->kind != KVR_ENGINE_FINISHED && (event->kind != KVR_ENGINE_TOKEN || event->token))
        return; /* what every way of running reports */
    const uint64_t parts[] = {event->kind, event->time_ns, event->request, event->token,
                              event->gap_p50_ns};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        loop->digest = (loop->digest ^ parts[i]) * 0x9e3779b97f4a7c15u + (loop->digest >> 29);
    uint32_t user = (uint32_t)event->request;
    if (event->kind == KVR_ENGINE_TOKEN) {
        loop->user[user].first_ns = event->time_ns + loop_after_ns(loop);
        return;
    }
    if (loop->rows_len == loop->rows_capacity) {
        loop->rows_capacity = loop->rows_capacity ? 2 * loop->rows_capacity : 1024;
        loop->rows = kvr_realloc(loop->rows, loop->rows_capacity * sizeof *loop->rows);
    }
    loop->rows[loop->rows_len++] = (struct loop_row){
        .sent_ns = loop->user[user].sent_ns,
        .ttft_ns = loop->user[user].first_ns - loop->user[user].sent_ns,
        .itl_p50_ns = event->gap_p50_ns,
        .itl_mean_ns =
            event->token > 1 ? (event->time_ns - event->first_token_ns) / (event->token - 1) : 0,
        .output_tokens = event->token,
        .cached_tokens = event->cached_tokens,
    };
    loop_send(loop, user, event->time_ns + loop_after_ns(loop) + MS(1));
}

static inline uint32_t loop_next_user(const struct loop *loop)
{
    uint32_t next = 0;
    for (uint32_t user = 1; user < loop->users; user++)
        if (loop->user[user].arrives_ns < loop->user[next].arrives_ns)
            next = user;
    return next;
}

/* Goes on until nothing older than `until_ns` is left to do. */
static inline void loop_go(struct loop *loop, struct kvr_tokens *tokens, uint64_t until_ns)
{
    for (;;) {
        uint32_t user = loop_next_user(loop);
        uint64_t arrives_ns = loop->user[user].arrives_ns;
        uint64_t engine_ns = kvr_engine_next_time(&loop->engine);
        uint64_t next_ns = arrives_ns <= engine_ns ? arrives_ns : engine_ns;
        if (next_ns > until_ns)
            break;
        loop->now_ns = next_ns;
        if (arrives_ns <= engine_ns) {
            loop_submit(loop, tokens, user);
            continue;
        }
        kvr_engine_advance(&loop->engine, loop->now_ns);
        struct kvr_engine_event event;
        while (kvr_engine_next_event(&loop->engine, &event))
            loop_event(loop, &event);
    }
    kvr_engine_advance(&loop->engine, until_ns);
}

/* From a fresh start. */
static inline void loop_run(struct loop *loop, uint64_t until_ns)
{
    struct kvr_tokens tokens;
    kvr_tokens_init(&tokens, loop->engine.profile.bytes_per_token);
    for (uint32_t user = 0; user < loop->users; user++)
        loop_send(loop, user, 0);
    loop_go(loop, &tokens, until_ns);
    kvr_tokens_deinit(&tokens);
}

static inline int loop_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Median over rows sent at or after `from_ns` of the field at `offset`, ms. */
static inline double loop_median_ms(const struct loop *loop, uint64_t from_ns, size_t offset)
{
    uint64_t *values = kvr_alloc(loop->rows_len * sizeof *values);
    uint32_t len = 0;
    for (uint32_t i = 0; i < loop->rows_len; i++)
        if (loop->rows[i].sent_ns >= from_ns)
            memcpy(&values[len++], (const char *)&loop->rows[i] + offset, sizeof *values);
    qsort(values, len, sizeof *values, loop_compare);
    double median = len ? (double)values[(len - 1) / 2] * 1e-6 : 0.0;
    kvr_free(values);
    return median;
}

#endif
