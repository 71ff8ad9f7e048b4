/* What Lua may read. This text is compiled by C as it stands (KVR_RO is empty) and handed to
 * LuaJIT's ffi.cdef with KVR_RO = const, so both sides see one layout; sizes are compared when a VM
 * starts, and a VM with another layout refuses to load. Bump KVR_ABI_VERSION with every change.
 *
 * Only double, uint32_t and bool: 64-bit integers box in Lua. Identities travel as 32-bit hashes
 * (0 = none). Times are milliseconds. A number nobody has read yet is NaN, never 0.
 *
 * Lines that start with '#' are dropped before ffi.cdef, and KVR_PTR(T) becomes an opaque pointer:
 * rows and keys are read through checked accessors, never by raw index. */
#ifndef KVR_ABI_H
#define KVR_ABI_H

#include <stdbool.h>
#include <stdint.h>

#ifndef KVR_RO
#define KVR_RO
#endif
#define KVR_PTR(type) const type *

#define KVR_ABI_VERSION 3

/* One 64-bit block key of a prompt, as its two halves. Equal `key`: equal whole prefix, as far as
 * 32 bits tell. */
struct kvr_block_key {
    KVR_RO uint32_t key;
    KVR_RO uint32_t high;
};

/* The request that waits for a decision. */
struct kvr_request_view {
    KVR_RO double now_ms;        /* router time of this decision */
    KVR_RO double prompt_bytes;  /* canonical prompt bytes; 0 when there is no prompt */
    KVR_RO double prompt_tokens; /* estimated: prompt_bytes over the model's bytes a token */
    KVR_RO double max_tokens;    /* as asked for; NaN when not stated */
    KVR_RO double priority;      /* body field `priority`, lower first; 0 when not stated */
    KVR_RO double slo_ttft_ms;   /* first-token target; NaN when there is none */
    KVR_PTR(struct kvr_block_key) KVR_RO chain; /* block keys, read by request:block(i) */
    KVR_RO uint32_t chain_len;   /* blocks in the chain */
    KVR_RO uint32_t block_bytes; /* canonical bytes of one block */
    KVR_RO uint32_t serial;      /* counts requests of this model; survives reloads: rotate by it */
    KVR_RO uint32_t model;
    KVR_RO uint32_t session;
    KVR_RO uint32_t tenant;
    KVR_RO uint32_t routing_key; /* the key that a plan places; the session unless configured */
    KVR_RO uint32_t turn;        /* 1-based user turn in the conversation; 0 = unknown */
    KVR_RO uint32_t attempt;     /* 0 first, 1 after one replica failed this request, ... */
    KVR_RO uint32_t stream;      /* 1: the client asked for a stream */
};

/* One replica as this decision sees it. Rows are in ascending `id` order; the index of a row is
 * what a policy returns. */
struct kvr_replica_view {
    KVR_RO double weight;             /* > 0 */
    KVR_RO double ramp;               /* (0, 1]: share of its weight after a return */
    KVR_RO double load;               /* in_flight / (weight * ramp) */
    KVR_RO double in_flight;          /* requests dispatched here and not finished, exact */
    KVR_RO double capacity;           /* most requests in flight; infinity when unlimited */
    KVR_RO double uncached_tokens;    /* estimated tokens dispatched and not yet prefilled */
    KVR_RO double prefill_tokens;     /* those and what this prompt would add to them */
    KVR_RO double active_tokens;      /* estimated, of all prompts in flight, cached or not */
    KVR_RO double remote_in_flight;   /* the same count of other routers; NaN when alone */
    KVR_RO double remote_age_ms;      /* age of that count */
    KVR_RO double age_ms;             /* since it last became available */
    KVR_RO double running;            /* engine: requests in the batch */
    KVR_RO double waiting;            /* engine: requests queued */
    KVR_RO double kv_usage;           /* engine: 0..1, blocks of running requests */
    KVR_RO double engine_hit_rate;    /* engine: prefix hits over queries in the last window */
    KVR_RO double signals_age_ms;     /* age of the four above */
    KVR_RO double match_tokens;       /* believed: match_blocks in estimated tokens */
    KVR_RO double resident_tokens;    /* by KV events; NaN when not followed */
    KVR_RO double ttft_ms;            /* average of recent first-token times */
    KVR_RO double error_rate;         /* average of recent failures, 0..1 */
    KVR_RO double prefill_tokens_per_s; /* measured; NaN before the first */
    KVR_RO double output_tokens;      /* average of recent answers */
    KVR_RO double token_ms;           /* average time between two tokens of recent answers */
    KVR_RO double recent_uncached_tokens; /* estimated, of the last 3 minutes' dispatches */
    KVR_RO double key_age_ms;         /* since this request's routing key last came here; NaN never */
    KVR_RO uint32_t id;               /* slot in the replica table, stable while it is a member */
    KVR_RO uint32_t name;             /* hash of its authority and rank, stable for ever */
    KVR_RO uint32_t match_blocks;     /* believed: leading blocks of this prompt held here */
    KVR_RO uint32_t resident_blocks;  /* by KV events */
    KVR_RO uint32_t active_blocks;    /* of the prompts in flight here, each block once */
    KVR_RO uint32_t active_match_blocks; /* leading blocks of this prompt among those */
    KVR_RO uint32_t assigned;         /* 1: the plan places this request's routing key here */
    KVR_RO uint32_t operational;      /* 0 down, 1 suspect, 2 ramping, 3 up */
    KVR_RO uint32_t administrative;   /* 0 off, 1 draining, 2 ready */
    KVR_RO bool available;            /* may be picked now */
};

/* The picture that one decision sees. Totals, means, minima and maxima are over
 * available rows. */
struct kvr_view {
    KVR_PTR(struct kvr_replica_view) KVR_RO rows; /* read as view[i], checked */
    KVR_RO uint32_t count;           /* rows */
    KVR_RO uint32_t available;       /* available rows */
    KVR_RO uint32_t max_match_blocks;
    KVR_RO uint32_t planned;         /* 1: a plan is installed and has this routing key */
    KVR_RO double total_in_flight;
    KVR_RO double min_in_flight;
    KVR_RO double max_in_flight;
    KVR_RO double mean_in_flight;
    KVR_RO double min_load;
    KVR_RO double mean_load;
    KVR_RO double total_weight;      /* sum of weight * ramp */
    KVR_RO double max_prefill_tokens_per_s; /* NaN before the first measurement */
};

/* An order of row indices, filled by kvr.ring_order and kvr.hrw_order. */
struct kvr_order {
    KVR_RO KVR_PTR(uint32_t) KVR_RO rows; /* read as order[i], checked */
    KVR_RO uint32_t count;
};

/* What happened to a request, for policies that learn (P.observe). */
struct kvr_observation {
    KVR_RO double now_ms;
    KVR_RO double ttft_ms;     /* NaN unless first_byte or done */
    KVR_RO double total_ms;    /* NaN unless done or failed */
    KVR_RO double prompt_tokens; /* as the engine counted; NaN unknown */
    KVR_RO double cached_tokens; /* as the engine counted; NaN unknown */
    KVR_RO double output_tokens;
    KVR_RO uint32_t kind;      /* 0 dispatched, 1 first_byte, 2 done, 3 failed */
    KVR_RO uint32_t replica;   /* id, as in the view */
    KVR_RO uint32_t session;
    KVR_RO uint32_t routing_key;
    KVR_RO uint32_t match_blocks; /* believed at the decision */
    KVR_RO uint32_t model;
};

#endif
