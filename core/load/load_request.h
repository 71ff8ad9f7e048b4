/* One request of a driver: which it is, when it was due, its call, and what that measured. */
#ifndef KVR_LOAD_REQUEST_H
#define KVR_LOAD_REQUEST_H

#include "load_call.h"
#include "load_goodput.h"

/* Simulated time: wall time since the run began, times the scale. */
struct kvr_load_clock {
    uint64_t origin_ns; /* of kvr_loop_now */
    double scale;       /* simulated seconds a wall second */
};

struct kvr_load_request {
    struct kvr_load_call call; /* its times are the wall's */
    struct kvr_load_request *next_free;
    uint64_t user;
    uint64_t turn; /* of that user */
    uint64_t session;
    uint64_t tag; /* of the workload: names this request */
    uint32_t session_turn;
    uint32_t prompt_bytes;
    uint32_t max_tokens;
    uint64_t due_ns;    /* wall: when it was to be sent */
    uint64_t before_ns; /* closed: when the answer before it ended; 0: it is the user's first */
    uint64_t body_hash; /* of the bytes that were sent; 0: none were */
    bool warmup;        /* it began before the warm-up ended */
};

/* What an answer measured, in simulated time. Of a failed one only e2el means something. */
struct kvr_load_measure {
    double ms[KVR_LOAD_METRICS];
    double first_byte_ms; /* NaN: none came */
    uint32_t output_tokens;
};

static inline double kvr_load_ms(const struct kvr_load_clock *clock, uint64_t from_ns,
                                 uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * clock->scale * 1e-6 : 0;
}

/* Since the run began. */
static inline double kvr_load_at_ms(const struct kvr_load_clock *clock, uint64_t wall_ns)
{
    return kvr_load_ms(clock, clock->origin_ns, wall_ns);
}

/* How late it went out: after it was due; an answer that ends makes the next request due. */
static inline double kvr_load_late_ms(const struct kvr_load_clock *clock,
                                      const struct kvr_load_request *request)
{
    return kvr_load_ms(clock, request->due_ns, request->call.started_ns);
}

/* As `vllm bench serve` defines them: ttft to the first content, tpot = (e2el - ttft) / (tokens -
 * 1), 0 for one token; e2el to the last byte. Of an answer that is no stream, ttft is to the first
 * byte of the body. */
void kvr_load_measure(struct kvr_load_request *request, const struct kvr_load_clock *clock,
                      struct kvr_load_measure *measure);

#endif
