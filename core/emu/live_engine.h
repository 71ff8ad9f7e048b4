/* An emulated engine on the wall clock: what the simulator does under virtual time, with a timer.
 *
 *   kvr_live_engine_submit(live, &request)   --(80 % of the overhead)-->  into the engine
 *                                                on_accepted, or on_refused and it is over
 *   step by step                             --(20 % of the overhead)-->  on_token ..., on_finished
 *
 * Engine time runs `time_scale` times as fast as the wall, from 0 at the start; every time in an
 * event is engine time. The overhead is that of the profile: HTTP, template and tokenizer before,
 * and the way back after. A late timer delays what is seen, never what the engine does: a request
 * is submitted at the instant it was due, and its events carry the times of their steps.
 *
 * A request is embedded in its owner and stays at one address until on_refused, on_finished or
 * kvr_live_engine_abort, after which nothing here knows it. Callbacks come from the loop only. They
 * may submit and abort. */
#ifndef KVR_LIVE_ENGINE_H
#define KVR_LIVE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "alarm.h"
#include "engine.h"
#include "histogram.h"
#include "list.h"

struct kvr_live_request {
    struct kvr_list link;             /* while on its way to the engine */
    struct kvr_engine_request engine; /* the caller's, but for its id; blocks until on_accepted */
    struct kvr_engine_handle handle;
    uint64_t arrived_ns; /* engine time */
    uint64_t due_ns;     /* when it reaches the engine */
    uint32_t slot;       /* in live->slots; UINT32_MAX: not known there */
};

struct kvr_live_handler {
    void *context;
    void (*on_accepted)(void *context, struct kvr_live_request *request);
    /* KVR_E_LIMIT: the queue is full; KVR_E_STATE: it is starting; KVR_E_INVALID: too long. */
    void (*on_refused)(void *context, struct kvr_live_request *request, int code);
    void (*on_token)(void *context, struct kvr_live_request *request,
                     const struct kvr_engine_event *event);
    /* Reason ERROR: the engine was restarted. */
    void (*on_finished)(void *context, struct kvr_live_request *request,
                        const struct kvr_engine_event *event);
    /* Of thousands of streams nothing is in the cache when their next event comes. Optional: how
     * many bytes, from the request on, an event needs; they are fetched a little ahead. Once they
     * are there on_soon can fetch what they point to. */
    size_t owner_bytes;
    void (*on_soon)(void *context, const struct kvr_live_request *request);
};

struct kvr_live_options {
    const struct kvr_profile *profile;
    double time_scale; /* engine seconds a wall second; 0 = 1 */
    uint64_t seed;
    uint32_t max_waiting;        /* as of the engine */
    uint64_t max_waiting_tokens; /* as of the engine */
};

struct kvr_live_slot; /* who an event belongs to */
struct kvr_live_delivery;

struct kvr_live_engine {
    struct kvr_engine engine;
    struct kvr_alarm alarm;
    struct kvr_live_handler handler;
    uint64_t origin_ns; /* wall time at engine time 0 */
    double time_scale;
    uint64_t before_ns; /* engine time from arrival to submission */
    uint64_t after_ns;  /* engine time from an event to its delivery */
    struct kvr_list arrivals;
    struct kvr_live_slot *slots; /* owned */
    uint32_t slots_len;
    uint32_t first_free;                  /* UINT32_MAX: none */
    struct kvr_live_delivery *deliveries; /* owned; ring, in order of time */
    uint32_t deliveries_first;
    uint32_t deliveries_len;
    uint32_t deliveries_mask;
    uint64_t started_ns;          /* engine time of the latest start */
    uint64_t delivered;           /* counter: events handed out */
    struct kvr_histogram late_ns; /* wall time by which each was late */
};

/* KVR_E_INVALID: the profile; KVR_E_IO: no timer. */
int kvr_live_engine_init(struct kvr_live_engine *live, uv_loop_t *uv,
                         const struct kvr_live_options *options,
                         const struct kvr_live_handler *handler,
                         struct kvr_error *error) KVR_MUST_USE;
/* No request may be left. The loop must turn once more before the memory goes. */
void kvr_live_engine_deinit(struct kvr_live_engine *live);

/* Engine time now. */
uint64_t kvr_live_engine_now(const struct kvr_live_engine *live);

/* A request that has not been submitted. */
static inline void kvr_live_request_init(struct kvr_live_request *request)
{
    *request = (struct kvr_live_request){.slot = UINT32_MAX};
    kvr_list_init(&request->link);
}

void kvr_live_engine_submit(struct kvr_live_engine *live, struct kvr_live_request *request);
/* Ends a request wherever it is; no callback follows. Harmless for one that is over. */
void kvr_live_engine_abort(struct kvr_live_engine *live, struct kvr_live_request *request);

/* The engine's process dies and comes back: every request ends at once, with on_refused while it
 * was on its way and with on_finished and reason ERROR otherwise. */
void kvr_live_engine_restart(struct kvr_live_engine *live);
bool kvr_live_engine_ready(const struct kvr_live_engine *live);
void kvr_live_engine_slow_down(struct kvr_live_engine *live, double factor);
/* KVR_E_STATE while requests hold blocks. */
int kvr_live_engine_reset_cache(struct kvr_live_engine *live) KVR_MUST_USE;

#endif
