/* One emulated inference engine: requests and times go in, tokens and KV events come out. It keeps
 * no clock, does no I/O and draws no randomness but from its seed, so it serves behind real sockets
 * and under virtual time alike. It points into itself: it stays where it was initialised.
 *
 *   kvr_engine_submit(engine, now, &request, &handle)
 *   for (;;) {
 *       wait until kvr_engine_next_time(engine)          (a timer, or the event queue)
 *       kvr_engine_advance(engine, now)                  (steps that ended by now)
 *       while (kvr_engine_next_event(engine, &event))    (drain, or they pile up)
 *           ...
 *   }
 *
 * Time. The engine works in steps (scheduler.h). A step starts the instant the one before ends,
 * even if `advance` is called later: a late timer delays what the caller sees, never what the
 * engine does. When the engine is idle, a submitted request waits for the next `advance`, so that
 * all requests of one instant share the first step; `next_time` is then the time of submission. A
 * request that comes exactly when a step ends misses the step that starts there. `now` never goes
 * backwards between calls.
 *
 * Every call that takes a time first runs the engine up to it, so events may be waiting after any
 * of them; their own time is in them.
 *
 * Steps that nobody could tell apart are not reported one by one: while the batch only decodes,
 * `next_time` is the end of the next step that finishes a request (or that might change the plan),
 * which makes a simulated request about as cheap as its blocks. With `token_events`, or with
 * `every_step`, it is the end of the running step. Results are equal to the nanosecond.
 *
 * A request is named by the caller's 64-bit id in every event, and by a handle for aborting. Its
 * output length is an input: the model's decision is the caller's business (answer.h). */
#ifndef KVR_ENGINE_H
#define KVR_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "profile.h"
#include "report.h"
#include "scheduler.h"

#define KVR_ENGINE_NEVER KVR_NEVER /* UINT64_MAX */

struct kvr_engine_options {
    const struct kvr_profile *profile; /* valid by kvr_profile_check; copied */
    uint64_t seed;                     /* of the jitter */
    bool token_events;                 /* report every token, not only each request's first */
    bool kv_events;                    /* report blocks stored and removed, at step end */
    bool every_step;                   /* wake at every step's end */
    uint32_t max_waiting;              /* most requests queued; 0 = 65,536 */
    uint64_t max_waiting_tokens;       /* most prompt tokens queued; 0 = unlimited */
};

struct kvr_engine_request {
    uint64_t id;            /* the caller's; not looked at */
    const uint64_t *blocks; /* chained hashes of its full blocks, never 0; copied */
    uint32_t blocks_len; /* prompt_tokens / 16; fewer: the rest is not cached; more: blocks of the
                            output follow, cached as they fill if the profile says
                            cache_generated */
    uint32_t prompt_tokens;        /* > 0 */
    uint32_t output_tokens;        /* > 0; how many it will generate */
    enum kvr_finish_reason reason; /* to report at its end: STOP or LENGTH */
};

/* generation 0: no request. */
struct kvr_engine_handle {
    uint32_t slot;
    uint32_t generation;
};

/* At equal time: STORED and REMOVED in their order, then TOKEN and FINISHED in batch order. */
struct kvr_engine_event {
    enum kvr_engine_event_kind kind;
    enum kvr_finish_reason reason; /* FINISHED */
    uint64_t time_ns;              /* end of its step */

    /* TOKEN, FINISHED; of STORED only `request` */
    uint64_t request; /* the caller's id */
    struct kvr_engine_handle handle;
    uint32_t token; /* TOKEN: its index, 0 first; FINISHED: tokens generated */
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* prompt tokens found in the cache when first admitted */
    uint64_t submitted_ns;
    uint64_t admitted_ns;    /* first scheduled; KVR_ENGINE_NEVER before */
    uint64_t first_token_ns; /* KVR_ENGINE_NEVER before */

    /* FINISHED */
    uint32_t preemptions;
    uint64_t gap_p50_ns; /* between its tokens: lower median; 0 with fewer than two */
    uint64_t gap_max_ns;

    /* STORED, REMOVED */
    uint64_t block;       /* its hash */
    uint64_t parent;      /* STORED: hash of the block before it; 0 = none */
    uint32_t block_index; /* STORED: which block of its request */
};

struct kvr_engine_gauges {
    uint32_t running;        /* in the batch */
    uint32_t waiting;        /* queued; preempted ones too */
    uint64_t waiting_tokens; /* prompt tokens of those */
    uint32_t blocks;         /* of the cache */
    uint32_t blocks_used;    /* by running requests; idle cached blocks count as free */
    uint32_t blocks_cached;  /* that hold a findable prefix, used or idle */
    double kv_usage;         /* blocks_used / blocks */
};

struct kvr_engine {
    struct kvr_profile profile;
    struct kvr_engine_options options; /* its profile points at the copy above */
    struct kvr_scheduler scheduler;    /* the batch, the queue, the cache */
    uint64_t now_ns;                   /* latest time seen */
    uint64_t ready_ns;                 /* no requests are taken before; 0 unless restarted */
    uint64_t start_ns; /* when idle with requests queued: when the first step starts */
    uint64_t quiet_ns; /* memo of next_time while quiet_known */
    bool quiet_known;
    struct kvr_report_queue reports;     /* events not yet read */
    struct kvr_engine_counters counters; /* read by anyone */
};

/* KVR_E_INVALID when the profile is not valid. */
int kvr_engine_init(struct kvr_engine *engine, const struct kvr_engine_options *options,
                    struct kvr_error *error) KVR_MUST_USE;
void kvr_engine_deinit(struct kvr_engine *engine);

/* KVR_E_INVALID: empty, longer than max_model_len, or more than the whole cache can hold.
 * KVR_E_LIMIT: the queue is full (an engine answers 503). KVR_E_STATE: still starting. */
int kvr_engine_submit(struct kvr_engine *engine, uint64_t now_ns,
                      const struct kvr_engine_request *request,
                      struct kvr_engine_handle *handle) KVR_MUST_USE;
/* Ends a request at once, wherever it is, and frees its blocks, which stay findable. No event
 * follows; events of it that nobody has read are dropped. KVR_E_NOT_FOUND when it has finished. */
int kvr_engine_abort(struct kvr_engine *engine, uint64_t now_ns,
                     struct kvr_engine_handle handle) KVR_MUST_USE;

/* When `advance` will next have something to do; KVR_ENGINE_NEVER when idle. */
uint64_t kvr_engine_next_time(struct kvr_engine *engine);
/* Runs all steps up to now. */
void kvr_engine_advance(struct kvr_engine *engine, uint64_t now_ns);
/* Takes the oldest event; false when there is none. */
bool kvr_engine_next_event(struct kvr_engine *engine, struct kvr_engine_event *event);

/* As of the last advance. */
struct kvr_engine_gauges kvr_engine_gauges(const struct kvr_engine *engine);
/* Forgets all prefixes (a CLEARED event). KVR_E_STATE while requests hold blocks, as in vLLM. */
int kvr_engine_reset_prefix_cache(struct kvr_engine *engine, uint64_t now_ns) KVR_MUST_USE;
/* The process dies and comes back: every request ends with FINISHED and reason ERROR, the cache is
 * empty, requests are refused until the profile's startup_ms have passed. */
void kvr_engine_restart(struct kvr_engine *engine, uint64_t now_ns);
bool kvr_engine_ready(const struct kvr_engine *engine, uint64_t now_ns);
/* Steps that start from now on take `factor` times as long (a throttled GPU). factor > 0. */
void kvr_engine_set_slowdown(struct kvr_engine *engine, uint64_t now_ns, double factor);
/* Dies unless every request is accounted for and no block is lost. For tests; walks everything. */
void kvr_engine_verify(const struct kvr_engine *engine);

#endif
