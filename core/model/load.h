/* What each replica has to do: counts made here, exactly, and signals the engine reports, with
 * their age. Only the ledger writes the counts; only a scrape writes the signals. */
#ifndef KVR_LOAD_H
#define KVR_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "ewma.h"

/* One reading of an engine's metrics page. NaN: the page does not say. */
struct kvr_engine_signals {
    double running;             /* requests in the batch */
    double waiting;             /* requests queued */
    double kv_usage;            /* share of the KV cache in use, 0..1 */
    double prefix_hit_tokens;   /* counter */
    double prefix_query_tokens; /* counter */
    double prefix_hit_rate;     /* gauge of some engines, 0..1, over a window of theirs */
    double prompt_tokens;       /* counter */
    double cached_tokens;       /* counter */
    double generation_tokens;   /* counter */
    double preemptions;         /* counter */
    double kv_blocks;           /* capacity */
    double block_size;          /* tokens */
    double process_start_s;     /* Unix time of the engine process's start */
};

/* All NaN. */
struct kvr_engine_signals kvr_engine_signals_unread(void);

struct kvr_load {
    uint32_t in_flight;       /* open tickets */
    uint64_t uncached_tokens; /* of open tickets before their first token */
    uint64_t prompt_tokens;   /* of open tickets */
    uint64_t dispatched;      /* tickets ever opened */
    struct kvr_ewma ttft_ms;
    struct kvr_ewma error_rate; /* 1 a failure, 0 a success */
    struct kvr_ewma prefill_tokens_per_s;
    struct kvr_ewma output_tokens; /* of an answer */
    struct kvr_ewma token_ms;      /* between two tokens of an answer, after its first */
    struct kvr_engine_signals signals;
    uint64_t signals_ns;      /* when read; 0 never */
    double hit_rate;          /* of the window below, else the engine's own; NaN unread */
    double window_hit_tokens; /* counters at the start of the window */
    double window_query_tokens;
    uint64_t window_ns;
};

void kvr_load_init(struct kvr_load *load);

/* Takes a reading. Returns true when the engine restarted since the last one: its process start
 * changed, or a counter went backwards. The window of hit_rate is `window_ns` long and is unread
 * below 100 queried blocks of 16 tokens; an engine without counters of them is taken at its word.
 */
bool kvr_load_read_signals(struct kvr_load *load, const struct kvr_engine_signals *signals,
                           uint64_t now_ns, uint64_t window_ns);

#endif
