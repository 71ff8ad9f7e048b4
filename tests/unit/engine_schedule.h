/* Random orders to the engine and to naive_engine.h: requests, aborts, restarts, resets and slow
 * phases on small caches, where blocks run out, the queue blocks at its head and batches are
 * preempted. The engine runs in four ways at once; each must bring the same events to the
 * nanosecond and end with the same blocks in the same order, or the process dies.
 *
 * What is drawn comes from the caller: random numbers, or a fuzzer's input. */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H

#include <stdio.h>

#include "naive_engine.h"

#define WAYS 4

/* How one of the engines is driven, and what it must bring. */
struct way {
    struct kvr_engine engine;
    bool tokens;       /* reports every token */
    bool kv_events;    /* reports blocks */
    bool by_the_hour;  /* advanced only when an input comes, not at next_time */
    uint32_t compared; /* events of the naive engine compared so far */
    struct kvr_engine_handle handles[NAIVE_REQUESTS];
};

struct schedule {
    uint32_t (*draw)(void *dice, uint32_t bound); /* 0..bound-1 */
    void *dice;
    struct naive_engine naive;
    struct way ways[WAYS];
    uint64_t now_ns;
    uint32_t max_waiting; /* 0: no limit that is ever reached */
    struct {
        uint64_t refusals, preemptions, restarts, resets, refused_resets, aborts, hits;
    } seen; /* over all schedules: that the cases did occur */
};

static inline uint32_t below(struct schedule *s, uint32_t bound)
{
    return s->draw(s->dice, bound);
}

static inline struct kvr_profile random_profile(struct schedule *s)
{
    struct kvr_profile profile = {
        .name = "random",
        .form = below(s, 3) ? KVR_STEP_LINEAR : KVR_STEP_ROOFLINE,
        .weights_ms = 0.001 * below(s, 3000),
        .step_floor_ms = 0.001 * below(s, 5000),
        .prefill_step_ms = 0.5 * below(s, 3),
        .prefill_token_ms = 0.001 * below(s, 300),
        .prefill_context_ms = 1e-6 * below(s, 50),
        .decode_seq_ms = 0.0101 * below(s, 30),
        .decode_seq_squared_ms = 0.001 * below(s, 30),
        .decode_context_ms = 0.7e-6 * below(s, 300),
        .jitter = below(s, 2) ? 0.05 : 0.0,
        .startup_ms = 1.0,
        .bytes_per_token = 4.0,
        .blocks = 6 + below(s, NAIVE_BLOCKS - 6),
        .max_num_seqs = 1 + below(s, 9),
        .max_model_len = 300,
        .replicas = 1,
        .cache_generated = below(s, 2),
    };
    profile.max_num_batched_tokens = profile.max_num_seqs + below(s, 120);
    return profile;
}

static inline bool same_event(const struct kvr_engine_event *a, const struct kvr_engine_event *b)
{
    return a->kind == b->kind && a->time_ns == b->time_ns && a->request == b->request &&
           a->token == b->token && a->reason == b->reason && a->cached_tokens == b->cached_tokens &&
           a->preemptions == b->preemptions && a->gap_p50_ns == b->gap_p50_ns &&
           a->gap_max_ns == b->gap_max_ns && a->block == b->block && a->parent == b->parent &&
           a->block_index == b->block_index;
}

static inline bool is_shown(const struct way *way, const struct kvr_engine_event *event)
{
    if (event->kind == KVR_ENGINE_TOKEN)
        return way->tokens || event->token == 0;
    return event->kind == KVR_ENGINE_FINISHED || way->kv_events;
}

/* Reads everything the engine has to tell; each event must be the naive engine's next, and none
 * older than `since_ns`. */
static inline void drain(struct schedule *s, struct way *way, uint64_t since_ns)
{
    struct kvr_engine_event event;
    while (kvr_engine_next_event(&way->engine, &event)) {
        KVR_CHECK(event.time_ns >= since_ns);
        while (way->compared < s->naive.events_len &&
               !is_shown(way, &s->naive.events[way->compared]))
            way->compared++;
        KVR_CHECK(way->compared < s->naive.events_len);
        const struct kvr_engine_event *want = &s->naive.events[way->compared++];
        if (!same_event(&event, want))
            fprintf(stderr,
                    "kind %d time %lu request %lu token %u block %lx, want %d %lu %lu %u %lx\n",
                    (int)event.kind, event.time_ns, event.request, event.token, event.block,
                    (int)want->kind, want->time_ns, want->request, want->token, want->block);
        KVR_CHECK(same_event(&event, want));
    }
}

static inline void advance(struct schedule *s, struct way *way, uint64_t now_ns)
{
    /* Who follows next_time must miss nothing: no event is older than the time of its advance. */
    drain(s, way, 0); /* what an input may have brought */
    while (!way->by_the_hour && kvr_engine_next_time(&way->engine) <= now_ns) {
        uint64_t next_ns = kvr_engine_next_time(&way->engine);
        kvr_engine_advance(&way->engine, next_ns);
        drain(s, way, next_ns);
    }
    kvr_engine_advance(&way->engine, now_ns);
    drain(s, way, way->by_the_hour ? 0 : UINT64_MAX);
    while (way->compared < s->naive.events_len && !is_shown(way, &s->naive.events[way->compared]))
        way->compared++;
    KVR_CHECK(way->compared == s->naive.events_len); /* nothing is missing */
}

static inline void submit(struct schedule *s)
{
    struct naive_engine *naive = &s->naive;
    struct naive_request *q = &naive->requests[naive->requests_len];
    *q = (struct naive_request){
        .id = naive->requests_len + 1000,
        .prompt = 1 + below(s, below(s, 3) ? 60 : 200),
        .output = 1 + below(s, below(s, 2) ? 4 : 50),
        .reason = below(s, 2) ? KVR_FINISH_STOP : KVR_FINISH_LENGTH,
    };
    uint32_t family = below(s, 4);
    uint32_t own_from = below(s, 12); /* block from which on it is nobody else's */
    uint32_t hashes = (q->prompt + q->output) / 16;
    uint64_t given[NAIVE_HASHES];
    for (uint32_t i = 0; i < hashes; i++)
        given[i] = i < own_from ? 1 + family * 100 + i : 1000 * q->id + i;
    bool fits = q->prompt + q->output - 1 <= naive->profile.blocks * 16;
    bool full = s->max_waiting && naive->waiting_len >= s->max_waiting;
    int code = !fits ? KVR_E_INVALID : full ? KVR_E_LIMIT : KVR_OK;
    q->hashes_len = q->prompt / 16;
    if (naive->profile.cache_generated)
        q->hashes_len = (q->prompt + q->output - 1) / 16;
    memcpy(q->hashes, given, sizeof given);
    struct kvr_engine_request request = {
        .id = q->id,
        .blocks = given,
        .blocks_len = hashes,
        .prompt_tokens = q->prompt,
        .output_tokens = q->output,
        .reason = q->reason,
    };
    for (int i = 0; i < WAYS; i++)
        KVR_CHECK(kvr_engine_submit(&s->ways[i].engine, s->now_ns, &request,
                                    &s->ways[i].handles[naive->requests_len]) == code);
    s->seen.refusals += code == KVR_E_LIMIT;
    if (code)
        return;
    naive->requests_len++;
    naive->waiting[naive->waiting_len++] = q;
}

static inline void abort_one(struct schedule *s)
{
    struct naive_engine *naive = &s->naive;
    if (!naive->requests_len)
        return;
    uint32_t which = below(s, naive->requests_len);
    bool done = naive->requests[which].done;
    if (!done)
        naive_abort(naive, &naive->requests[which]);
    s->seen.aborts += !done;
    for (int i = 0; i < WAYS; i++)
        KVR_CHECK(kvr_engine_abort(&s->ways[i].engine, s->now_ns, s->ways[i].handles[which]) ==
                  (done ? KVR_E_NOT_FOUND : KVR_OK));
}

static inline void reset(struct schedule *s)
{
    bool done = naive_reset(&s->naive, s->now_ns);
    s->seen.resets += done;
    s->seen.refused_resets += !done;
    for (int i = 0; i < WAYS; i++)
        KVR_CHECK(kvr_engine_reset_prefix_cache(&s->ways[i].engine, s->now_ns) ==
                  (done ? KVR_OK : KVR_E_STATE));
}

static inline void restart(struct schedule *s)
{
    naive_restart(&s->naive, s->now_ns);
    s->seen.restarts++;
    for (int i = 0; i < WAYS; i++)
        kvr_engine_restart(&s->ways[i].engine, s->now_ns);
    s->now_ns += 1000000; /* startup_ms; nothing happens meanwhile */
    KVR_CHECK(kvr_engine_ready(&s->ways[0].engine, s->now_ns));
}

static inline void slow_down(struct schedule *s)
{
    double factor = below(s, 2) ? 1.0 : 1.5;
    s->naive.slowdown = factor;
    for (int i = 0; i < WAYS; i++)
        kvr_engine_set_slowdown(&s->ways[i].engine, s->now_ns, factor);
}

static inline void order(struct schedule *s)
{
    uint32_t dice = below(s, 100);
    if (dice < 70)
        submit(s);
    else if (dice < 90)
        abort_one(s);
    else if (dice < 96)
        slow_down(s);
    else if (dice < 99)
        reset(s);
    else
        restart(s);
}

/* Sometimes exactly when a step ends, or when nothing happens for long. */
static inline uint64_t next_input_time(struct schedule *s)
{
    if (s->naive.stepping && below(s, 4) == 0)
        return s->naive.end_ns;
    if (below(s, 12) == 0)
        return s->now_ns + 2000000000u;
    return s->now_ns + below(s, 1u << (10 + below(s, 16)));
}

static inline void assert_same_cache(struct schedule *s, const struct way *way)
{
    const struct kvr_kv_cache *cache = &way->engine.scheduler.cache;
    KVR_CHECK(cache->free == s->naive.queue_len);
    uint32_t at = cache->count;
    for (uint32_t i = 0; i < s->naive.queue_len; i++) {
        at = cache->blocks[at].next;
        KVR_CHECK(at == s->naive.queue[i]);
    }
    for (uint32_t i = 0; i < cache->count; i++) {
        KVR_CHECK(cache->blocks[i].hash == s->naive.hash[i]);
        KVR_CHECK(cache->blocks[i].refs == s->naive.refs[i]);
    }
}

static inline void check_end(struct schedule *s)
{
    for (int i = 0; i < WAYS; i++) {
        struct way *way = &s->ways[i];
        KVR_CHECK(kvr_engine_next_time(&way->engine) == KVR_ENGINE_NEVER);
        KVR_CHECK(way->engine.scheduler.cache.free == s->naive.profile.blocks);
        KVR_CHECK(way->engine.scheduler.pool.in_use == 0);
        KVR_CHECK(way->engine.counters.preemptions == s->naive.preemptions);
        const struct kvr_engine_counters *counters = &way->engine.counters;
        uint64_t ended = 0;
        for (int reason = 0; reason < KVR_FINISH_REASONS; reason++)
            ended += counters->finished[reason];
        KVR_CHECK(counters->submitted == s->naive.requests_len);
        KVR_CHECK(ended == s->naive.requests_len);
    }
    for (uint32_t i = 0; i < s->naive.requests_len; i++) {
        KVR_CHECK(s->naive.requests[i].done);
        s->seen.hits += s->naive.requests[i].cached;
    }
    s->seen.preemptions += s->naive.preemptions;
}

static inline void run_schedule(struct schedule *s, uint64_t seed)
{
    s->now_ns = 0;
    struct kvr_profile profile = random_profile(s);
    s->max_waiting = below(s, 4) ? 0 : 1 + below(s, 5);
    naive_init(&s->naive, &profile, seed);
    for (int i = 0; i < WAYS; i++) {
        struct way *way = &s->ways[i];
        *way = (struct way){.tokens = i == 0, .kv_events = i < 2, .by_the_hour = i == 3};
        struct kvr_engine_options options = {
            .profile = &profile,
            .seed = seed,
            .token_events = way->tokens,
            .kv_events = way->kv_events,
            .every_step = i == 0,
            .max_waiting = s->max_waiting,
        };
        KVR_CHECK(kvr_engine_init(&way->engine, &options, NULL) == KVR_OK);
    }
    while (s->naive.requests_len < 20 + seed % 20) {
        s->now_ns = next_input_time(s);
        naive_run(&s->naive, s->now_ns);
        for (int i = 0; i < WAYS; i++)
            advance(s, &s->ways[i], s->now_ns);
        for (uint32_t inputs = 1 + below(s, 3); inputs > 0; inputs--)
            order(s);
        if (!s->naive.stepping)
            naive_start(&s->naive, s->now_ns);
        for (int i = 0; i < WAYS; i++) {
            if (below(s, 3)) /* or else it starts by itself with the next call */
                advance(s, &s->ways[i], s->now_ns);
            kvr_engine_verify(&s->ways[i].engine);
            if (s->ways[i].engine.scheduler.stepping)
                assert_same_cache(s, &s->ways[i]);
        }
    }
    s->now_ns += 1000000000000u;
    naive_run(&s->naive, s->now_ns);
    for (int i = 0; i < WAYS; i++) {
        advance(s, &s->ways[i], s->now_ns);
        assert_same_cache(s, &s->ways[i]);
    }
    check_end(s);
    for (int i = 0; i < WAYS; i++)
        kvr_engine_deinit(&s->ways[i].engine);
}

#endif
