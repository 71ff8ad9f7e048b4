/* The emulated engine written a second time, as plainly as its rules read: every request is looked
 * at in every step, the free queue is an array, hashes are found by looking at every block. Slow
 * and small; engine_schedule.h holds the real engine against it. */
#ifndef NAIVE_ENGINE_H
#define NAIVE_ENGINE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine.h"
#include "real.h"
#include "rng.h"

#define NAIVE_BLOCKS   64
#define NAIVE_REQUESTS 64
#define NAIVE_HASHES   20
#define NAIVE_EVENTS   20000

struct naive_request {
    uint64_t id;
    uint32_t prompt;
    uint32_t output;
    enum kvr_finish_reason reason;
    uint64_t hashes[NAIVE_HASHES];
    uint32_t hashes_len;

    bool running;
    bool done; /* finished, failed or aborted */
    uint32_t computed;
    uint32_t generated;
    uint32_t scheduled; /* tokens in the running step */
    uint32_t blocks[NAIVE_HASHES];
    uint32_t blocks_len;
    uint32_t cached;
    uint32_t preemptions;
    bool admitted;
    uint64_t last_token_ns;
    uint64_t gaps[512];
    uint32_t gaps_len;
};

struct naive_engine {
    struct kvr_profile profile;
    uint64_t seed;
    double slowdown;

    uint64_t hash[NAIVE_BLOCKS];
    uint32_t refs[NAIVE_BLOCKS];
    uint32_t queue[NAIVE_BLOCKS]; /* head first */
    uint32_t queue_len;

    struct naive_request requests[NAIVE_REQUESTS];
    uint32_t requests_len;
    struct naive_request *running[NAIVE_REQUESTS];
    uint32_t running_len;
    struct naive_request *waiting[NAIVE_REQUESTS];
    uint32_t waiting_len;

    uint64_t step;
    bool stepping;
    uint64_t end_ns;
    uint32_t preemptions;

    struct kvr_engine_event changes[4096]; /* of the running step */
    uint32_t changes_len;
    struct kvr_engine_event events[NAIVE_EVENTS];
    uint32_t events_len;
};

static inline void naive_init(struct naive_engine *e, const struct kvr_profile *profile,
                              uint64_t seed)
{
    memset(e, 0, sizeof *e);
    e->profile = *profile;
    e->seed = seed;
    e->slowdown = 1.0;
    e->queue_len = profile->blocks;
    for (uint32_t i = 0; i < profile->blocks; i++)
        e->queue[i] = i;
}

static inline uint32_t naive_find(const struct naive_engine *e, uint64_t hash)
{
    for (uint32_t i = 0; i < e->profile.blocks; i++)
        if (e->hash[i] == hash)
            return i;
    return UINT32_MAX;
}

static inline void naive_change(struct naive_engine *e, struct kvr_engine_event event)
{
    e->changes[e->changes_len++] = event;
}

static inline void naive_dequeue(struct naive_engine *e, uint32_t block)
{
    uint32_t at = 0;
    while (e->queue[at] != block)
        at++;
    memmove(&e->queue[at], &e->queue[at + 1], (e->queue_len - at - 1) * sizeof e->queue[0]);
    e->queue_len--;
}

static inline uint32_t naive_allocate(struct naive_engine *e)
{
    uint32_t block = e->queue[0];
    naive_dequeue(e, block);
    if (e->hash[block])
        naive_change(
            e, (struct kvr_engine_event){.kind = KVR_ENGINE_REMOVED, .block = e->hash[block]});
    e->hash[block] = 0;
    e->refs[block] = 1;
    return block;
}

static inline void naive_free(struct naive_engine *e, struct naive_request *q)
{
    while (q->blocks_len) {
        uint32_t block = q->blocks[--q->blocks_len];
        if (--e->refs[block])
            continue;
        if (!e->hash[block]) {
            memmove(&e->queue[1], &e->queue[0], e->queue_len * sizeof e->queue[0]);
            e->queue[0] = block;
        } else {
            e->queue[e->queue_len] = block;
        }
        e->queue_len++;
    }
}

static inline void naive_remove(struct naive_request **list, uint32_t *len,
                                const struct naive_request *q)
{
    uint32_t at = 0;
    while (list[at] != q)
        at++;
    memmove(&list[at], &list[at + 1], (*len - at - 1) * sizeof list[0]);
    (*len)--;
}

static inline uint32_t naive_goal(const struct naive_request *q)
{
    return q->prompt + q->generated;
}

static inline void naive_register(struct naive_engine *e, struct naive_request *q, uint32_t upto)
{
    for (uint32_t i = 0; i < q->hashes_len && (i + 1) * 16 <= upto; i++) {
        if ((i + 1) * 16 <= q->computed || naive_find(e, q->hashes[i]) != UINT32_MAX)
            continue;
        e->hash[q->blocks[i]] = q->hashes[i];
        naive_change(e, (struct kvr_engine_event){.kind = KVR_ENGINE_STORED,
                                                  .request = q->id,
                                                  .block = q->hashes[i],
                                                  .parent = i ? q->hashes[i - 1] : 0,
                                                  .block_index = i});
    }
}

static inline void naive_preempt_last(struct naive_engine *e)
{
    struct naive_request *q = e->running[--e->running_len];
    naive_free(e, q);
    q->computed = 0;
    q->scheduled = 0;
    q->running = false;
    q->preemptions++;
    memmove(&e->waiting[1], &e->waiting[0], e->waiting_len * sizeof e->waiting[0]);
    e->waiting[0] = q;
    e->waiting_len++;
    e->preemptions++;
}

static inline bool naive_grow(struct naive_engine *e, struct naive_request *q, uint32_t n)
{
    while (q->blocks_len * 16 < q->computed + n) {
        uint32_t need = (q->computed + n + 15) / 16 - q->blocks_len;
        if (need > e->queue_len) {
            bool self = e->running[e->running_len - 1] == q;
            naive_preempt_last(e);
            if (self)
                return false;
            continue;
        }
        q->blocks[q->blocks_len++] = naive_allocate(e);
    }
    return true;
}

static inline uint64_t naive_step_ns(const struct naive_engine *e)
{
    const struct kvr_profile *p = &e->profile;
    uint64_t prefill = 0, twice_q = 0, decoding = 0, context = 0;
    for (uint32_t i = 0; i < e->running_len; i++) {
        const struct naive_request *q = e->running[i];
        if (q->scheduled == 0)
            continue;
        if (q->generated > 0 && naive_goal(q) - q->computed == 1 && q->running) {
            decoding++;
            context += q->computed;
        } else {
            prefill += q->scheduled;
            twice_q += (uint64_t)q->scheduled * (2 * q->computed + q->scheduled);
        }
    }
    uint64_t token_ps = (uint64_t)llround(p->prefill_token_ms * 1e9);
    uint64_t reading = (uint64_t)llround(p->weights_ms * 1e9) +
                       (uint64_t)llround(p->decode_context_ms * 1e9) * context;
    uint64_t computing = token_ps * (prefill + decoding);
    uint64_t ps = (uint64_t)llround(p->step_floor_ms * 1e9) +
                  (prefill ? (uint64_t)llround(p->prefill_step_ms * 1e9) : 0) +
                  (uint64_t)llround(p->prefill_context_ms * 1e9) * twice_q / 2 +
                  (uint64_t)llround(p->decode_seq_ms * 1e9) * decoding +
                  (uint64_t)llround(p->decode_seq_squared_ms * 1e9) * decoding * decoding;
    if (p->form == KVR_STEP_LINEAR)
        ps += reading + token_ps * prefill;
    else
        ps += reading > computing ? reading : computing;
    uint64_t ns = (ps + 500) / 1000;
    if (p->jitter == 0.0 && e->slowdown == 1.0)
        return ns ? ns : 1;
    double factor = 1.0;
    if (p->jitter != 0.0) {
        uint64_t base = kvr_mix64(e->seed ^ 0x6a69747465720000u);
        factor = kvr_real_exp(p->jitter *
                              kvr_real_normal(kvr_mix64(base + e->step * 0x9e3779b97f4a7c15u)));
    }
    ns = (uint64_t)((double)ps * (factor * e->slowdown) / 1000.0 + 0.5);
    return ns ? ns : 1;
}

static inline void naive_admit(struct naive_engine *e, uint32_t budget)
{
    while (e->waiting_len && budget && e->running_len < e->profile.max_num_seqs) {
        struct naive_request *q = e->waiting[0];
        uint32_t hit = 0, idle = 0;
        while (hit < (naive_goal(q) - 1) / 16 && hit < q->hashes_len &&
               naive_find(e, q->hashes[hit]) != UINT32_MAX) {
            idle += e->refs[naive_find(e, q->hashes[hit])] == 0;
            hit++;
        }
        uint32_t n = naive_goal(q) - hit * 16;
        n = n < budget ? n : budget;
        if ((hit * 16 + n + 15) / 16 - hit + idle > e->queue_len)
            return;
        naive_remove(e->waiting, &e->waiting_len, q);
        e->running[e->running_len++] = q;
        for (uint32_t i = 0; i < hit; i++) {
            uint32_t block = naive_find(e, q->hashes[i]);
            if (e->refs[block]++ == 0)
                naive_dequeue(e, block);
            q->blocks[q->blocks_len++] = block;
        }
        q->computed = hit * 16;
        naive_grow(e, q, n);
        naive_register(e, q, q->computed + n);
        q->scheduled = n;
        if (!q->admitted)
            q->cached = hit * 16;
        q->admitted = true;
        budget -= n;
    }
}

static inline void naive_start(struct naive_engine *e, uint64_t now_ns)
{
    if (!e->running_len && !e->waiting_len)
        return;
    uint32_t budget = e->profile.max_num_batched_tokens, preemptions = e->preemptions;
    for (uint32_t i = 0; i < e->running_len; i++)
        e->running[i]->scheduled = 0;
    for (uint32_t i = 0; i < e->running_len; i++) {
        struct naive_request *q = e->running[i];
        q->running = true;
        uint32_t n = naive_goal(q) - q->computed;
        n = n < budget ? n : budget;
        if (!naive_grow(e, q, n))
            break;
        naive_register(e, q, q->computed + n);
        q->scheduled = n;
        budget -= n;
    }
    if (preemptions == e->preemptions)
        naive_admit(e, budget);
    e->stepping = true;
    e->end_ns = now_ns + naive_step_ns(e);
}

static inline void naive_event(struct naive_engine *e, struct kvr_engine_event event,
                               uint64_t time_ns)
{
    event.time_ns = time_ns;
    e->events[e->events_len++] = event;
}

static inline void naive_flush(struct naive_engine *e, uint64_t time_ns)
{
    for (uint32_t i = 0; i < e->changes_len; i++)
        naive_event(e, e->changes[i], time_ns);
    e->changes_len = 0;
}

static inline void naive_finished(struct naive_engine *e, struct naive_request *q,
                                  enum kvr_finish_reason reason, uint64_t time_ns)
{
    struct kvr_engine_event event = {
        .kind = KVR_ENGINE_FINISHED,
        .reason = reason,
        .request = q->id,
        .token = q->generated,
        .cached_tokens = q->cached,
        .preemptions = q->preemptions,
    };
    if (reason != KVR_FINISH_ERROR)
        for (uint32_t i = 0; i < q->gaps_len; i++) {
            uint32_t below = 0, equal = 0;
            for (uint32_t j = 0; j < q->gaps_len; j++) {
                below += q->gaps[j] < q->gaps[i];
                equal += q->gaps[j] == q->gaps[i];
            }
            uint32_t rank = (q->gaps_len - 1) / 2;
            if (below <= rank && rank < below + equal)
                event.gap_p50_ns = q->gaps[i];
            event.gap_max_ns = q->gaps[i] > event.gap_max_ns ? q->gaps[i] : event.gap_max_ns;
        }
    naive_event(e, event, time_ns);
    naive_free(e, q);
    q->done = true;
}

static inline void naive_finish(struct naive_engine *e)
{
    e->stepping = false;
    e->step++;
    naive_flush(e, e->end_ns);
    struct naive_request *batch[NAIVE_REQUESTS];
    uint32_t batch_len = e->running_len;
    memcpy(batch, e->running, sizeof batch);
    for (uint32_t i = 0; i < batch_len; i++) {
        struct naive_request *q = batch[i];
        q->computed += q->scheduled;
        bool all = q->scheduled && q->computed == naive_goal(q);
        q->scheduled = 0;
        if (!all)
            continue;
        if (q->generated)
            q->gaps[q->gaps_len++] = e->end_ns - q->last_token_ns;
        q->last_token_ns = e->end_ns;
        naive_event(e,
                    (struct kvr_engine_event){.kind = KVR_ENGINE_TOKEN,
                                              .request = q->id,
                                              .token = q->generated,
                                              .cached_tokens = q->cached},
                    e->end_ns);
        if (++q->generated == q->output) {
            naive_remove(e->running, &e->running_len, q);
            naive_finished(e, q, q->reason, e->end_ns);
        }
    }
}

/* Everything up to `now_ns`; the caller starts an idle engine. */
static inline void naive_run(struct naive_engine *e, uint64_t now_ns)
{
    while (e->stepping && e->end_ns <= now_ns) {
        naive_finish(e);
        naive_start(e, e->end_ns);
    }
}

static inline void naive_abort(struct naive_engine *e, struct naive_request *q)
{
    uint32_t at = 0;
    while (at < e->waiting_len && e->waiting[at] != q)
        at++;
    bool waits = at < e->waiting_len;
    naive_remove(waits ? e->waiting : e->running, waits ? &e->waiting_len : &e->running_len, q);
    naive_free(e, q);
    q->done = true;
}

static inline bool naive_reset(struct naive_engine *e, uint64_t now_ns)
{
    if (e->queue_len != e->profile.blocks)
        return false;
    memset(e->hash, 0, sizeof e->hash);
    naive_change(e, (struct kvr_engine_event){.kind = KVR_ENGINE_CLEARED});
    naive_flush(e, now_ns);
    return true;
}

static inline void naive_restart(struct naive_engine *e, uint64_t now_ns)
{
    for (uint32_t i = 0; i < e->running_len; i++)
        naive_finished(e, e->running[i], KVR_FINISH_ERROR, now_ns);
    for (uint32_t i = 0; i < e->waiting_len; i++)
        naive_finished(e, e->waiting[i], KVR_FINISH_ERROR, now_ns);
    e->running_len = 0;
    e->waiting_len = 0;
    e->step += e->stepping;
    e->stepping = false;
    naive_reset(e, now_ns);
}

#endif
