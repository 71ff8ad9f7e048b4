/* The router as a state machine: events go in with their time, actions come out. It reads no clock,
 * opens no socket and draws no random number; the ingress and the simulator drive it alike.
 *
 *   submit ──> decide ──> DISPATCH ──> first_byte ──> first_token ──> finish ──> row
 *                │            │ failed before its first byte: withdraw, decide again, at most
 *                │            └ `moves` times, then REJECT
 *                └ REJECT: no replica, unknown model, refused by the policy
 *
 * A request is named by {slot, generation}; a stale name is a bug. Every submitted request ends by
 * exactly one kvr_router_finish, rejected ones too, and leaves exactly one row.
 *
 * Who owns what: the router owns replicas, loads, health, the belief index, models, script slots
 * and counters. The driver owns bodies, sockets and the chain of block hashes it hands in: that
 * chain must stay as it is until kvr_router_settle, because what a decision admits to the index is
 * entered there, after the request has been sent, and always before the next decision. There, too,
 * shadows (shadow.h) are asked what they would have done. */
#ifndef KVR_ROUTER_H
#define KVR_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

#include "active_blocks.h"
#include "api_request.h"
#include "block_ids.h"
#include "buffer.h"
#include "envelope.h"
#include "error.h"
#include "handover.h"
#include "health.h"
#include "ledger.h"
#include "load.h"
#include "metrics.h"
#include "model_key.h"
#include "model_table.h"
#include "plan.h"
#include "prefix_index.h"
#include "prompt.h"
#include "queue.h"
#include "replica.h"
#include "request.h"
#include "role.h"
#include "shadow.h"
#include "slot.h"
#include "view.h"
#include "window.h"

struct kvr_router_options {
    uint64_t seed;
    uint32_t replicas_max;       /* default 64, at most KVR_REPLICAS_MAX */
    uint32_t requests_max;       /* open at once; default 16384 */
    uint32_t moves;              /* to other replicas; default 2 */
    uint32_t vnodes;             /* default 128 */
    uint32_t block_bytes;        /* default 64 */
    double bytes_per_token;      /* until learned; default 4 */
    double canary_share;         /* 0..1 of sessions decided by the canary slot; 0 off */
    bool canary_by_key;          /* of routing keys, not of sessions */
    int64_t wall_offset_ns;      /* Unix time = now_ns + this, for rows */
    bool rows;                   /* write a row a request */
    bool row_blocks;             /* with its block chain */
    uint64_t hit_rate_window_ns; /* default 10 s */
    bool key_tokens;             /* count prompt tokens by routing key: sizes for plans */
    uint64_t wide_after; /* canonical bytes after which blocks are KVR_PROMPT_WIDE_BYTES; 0 never */
    bool count_keys;     /* always; else while a script in force needs `plan` or `keys` */
    struct kvr_queue_options queue;
    struct kvr_health_options health;
    struct kvr_prefix_index_options index;
    struct kvr_window_options keys; /* default span 180 s, as long as Preble looks back */
};

enum kvr_action_kind {
    KVR_ACTION_DISPATCH, /* send the request to `replica` */
    KVR_ACTION_REJECT,   /* answer the client with `rejection`, then finish */
};

enum kvr_rejection {
    KVR_REJECT_NO_REPLICAS,     /* 503 no_replicas: none up */
    KVR_REJECT_DRAINING,        /* 503 draining: all that are up are draining */
    KVR_REJECT_AT_CAPACITY,     /* 503 at_capacity: all at their caps */
    KVR_REJECT_MODEL_NOT_FOUND, /* 404 model_not_found */
    KVR_REJECT_BY_POLICY,       /* 503 refused_by_policy */
    KVR_REJECT_ALL_FAILED,      /* 502 all_replicas_failed: moves used up */
    KVR_REJECT_REQUESTS_MAX,    /* 503 too_many_requests */
    KVR_REJECT_QUEUE_FULL,      /* 429 queue_full: as many wait as may */
    KVR_REJECT_QUEUE_DEADLINE,  /* 503 queue_deadline: it has waited too long */
};

struct kvr_action {
    enum kvr_action_kind kind;
    struct kvr_request_ref request;
    void *user;                   /* of the submission */
    uint32_t replica;             /* DISPATCH */
    enum kvr_rejection rejection; /* REJECT */
};

struct kvr_router {
    struct kvr_router_options options;
    struct kvr_replica_table replicas;
    struct kvr_load *loads; /* by replica slot */
    struct kvr_ledger ledger;
    struct kvr_health health;
    struct kvr_prefix_index index;
    struct kvr_model_table models;
    struct kvr_window keys;          /* (model key, replica) counts */
    struct kvr_window openings;      /* of prompts, wherever they went */
    struct kvr_active_blocks active; /* of prompts in flight, while a script asks for it */
    struct kvr_window work;          /* uncached tokens by replica; its only key is 0 */
    struct kvr_window key_tokens;    /* prompt tokens of these requests; empty unless asked for */
    struct kvr_window_pair *pairs;   /* scratch: one key's replicas */
    struct kvr_plan *plan;           /* of model keys; NULL: none */
    uint64_t *plan_replicas;         /* by destination of the plan: id of its replica */
    struct kvr_handover *handover;   /* of keys that this plan has moved; NULL: none is moving */
    struct kvr_picture picture;
    struct kvr_slot *slots[KVR_ROLES];            /* by role; what is off is empty */
    struct kvr_script_record *records[KVR_ROLES]; /* of what is in force */
    struct kvr_request_table requests;
    struct kvr_queue queue;
    struct kvr_metrics metrics;
    struct kvr_block_ids block_ids; /* of the chains that rows show */
    struct kvr_buffer rows;         /* finished rows, one JSON line each; the driver takes them */
    struct kvr_action actions[4];   /* ring: each event yields at most one; the queue adds one at a
                                       time, when the others have been taken */
    uint64_t now_ns;                /* of the last event */
    uint32_t actions_first, actions_count;
    struct { /* what settle still has to do for the last decision, whose view stands until then */
        struct kvr_request_ref request; /* generation 0: nothing */
        uint64_t now_ns;
        const uint64_t *chain; /* NULL: nobody asks for it */
        uint32_t len;
        uint32_t replica;
        uint64_t key;      /* model key to count; 0: none */
        uint32_t uncached; /* prompt tokens to count; 0: none */
        uint32_t index;    /* row that took it; KVR_NO_ROW: refused by the policy */
        uint32_t needs;    /* columns that the view has */
        uint16_t reason;   /* for that row */
        bool shadows;      /* to be asked */
    } pending;
    struct kvr_envelope *envelope; /* of the gate in force; NULL: none */
    struct kvr_shadow shadows[KVR_SHADOWS_MAX];
    bool shadowing;  /* one of them is on */
    uint32_t *match; /* by replica slot, of the decision under way */
    uint32_t needs;  /* KVR_NEEDS_* of all scripts in force */
    uint16_t reason_fallback, reason_opaque, reason_refused, reason_held;
    uint64_t sequence; /* requests ever submitted */
};

void kvr_router_init(struct kvr_router *router, const struct kvr_router_options *options);
void kvr_router_deinit(struct kvr_router *router);

/* ---- the fleet ---- */

/* Returns the slot or a negative code with the reason. */
int kvr_router_add_replica(struct kvr_router *router, uint64_t now_ns,
                           const struct kvr_replica_spec *spec, struct kvr_error *error);
/* Its beliefs are void at once; requests on it go on and are the driver's to end. */
void kvr_router_remove_replica(struct kvr_router *router, uint32_t slot);
/* `refused`: the probe could not connect, which ejects at once. */
void kvr_router_probed(struct kvr_router *router, uint64_t now_ns, uint32_t slot,
                       enum kvr_probe_outcome outcome, bool refused);
/* A reading of its metrics page; a restart voids its beliefs. */
void kvr_router_signals(struct kvr_router *router, uint64_t now_ns, uint32_t slot,
                        const struct kvr_engine_signals *signals);
/* What is behind it is another engine process: its beliefs are void. */
void kvr_router_restarted(struct kvr_router *router, uint32_t slot);
/* The plan in force, from now on, for policies that need one: reloads of scripts do not touch it.
 * `replicas` are the ids of its destinations, copied: a member that leaves and comes back has its
 * keys again. NULL: no plan. Returns the one before, which is the caller's to destroy. */
struct kvr_plan *kvr_router_install_plan(struct kvr_router *router, struct kvr_plan *plan,
                                         const uint64_t *replicas) KVR_MUST_USE;
/* The envelope of a gate, from now on; NULL: none. When it is left, the baseline slot decides,
 * until another is put in force. Returns the one before, which is the caller's to destroy. */
struct kvr_envelope *kvr_router_install_envelope(struct kvr_router *router,
                                                 struct kvr_envelope *envelope) KVR_MUST_USE;
/* Ends ramps and waits; returns when it wants to be called again at the latest. */
uint64_t kvr_router_tick(struct kvr_router *router, uint64_t now_ns);

/* ---- the scripts ---- */

struct kvr_slot *kvr_router_slot(const struct kvr_router *router, enum kvr_script_role role);
/* To be called after every load into a slot: takes note of names, hashes and needs. */
void kvr_router_scripts_changed(struct kvr_router *router);

/* ---- one request ---- */

struct kvr_submission {
    void *user;
    struct kvr_slice request_id; /* these slices are copied, cut at the lengths of request.h */
    struct kvr_slice tag;
    struct kvr_slice model;     /* empty: the request names none */
    const char *endpoint;       /* constant, for rows: "chat", "other", ... */
    const char *session_source; /* constant */
    const char *client;         /* the driver's until finish; letters, digits, _-./; NULL none */
    uint64_t session;           /* 64-bit keys; 0 none */
    uint64_t tenant;
    uint64_t routing_key;  /* 0: the session's */
    const uint64_t *chain; /* the driver's until kvr_router_settle */
    uint32_t chain_len;
    uint32_t turn;
    uint32_t choices; /* n, and prompts of a batch: how many sequences it makes */
    bool routed;      /* by policy; else any healthy replica, and no belief */
    bool stream;
    double prompt_bytes;
    double prompt_tokens; /* exact, when the prompt is token ids; NaN: estimate from bytes */
    double extra_tokens;  /* of images and the like */
    double max_tokens;    /* NaN not stated */
    double priority;
    double slo_ttft_ms;   /* NaN none */
    uint64_t received_ns; /* when the poll that brought its last byte returned */
};

/* Takes a request in and decides: the action is next in kvr_router_next_action, or it waits. Name
 * {0, 0}: as many are open as may be; the driver ends it by kvr_router_refused. */
struct kvr_request_ref kvr_router_submit(struct kvr_router *router, uint64_t now_ns,
                                         const struct kvr_submission *submission);
/* Also decides for requests that waited, once something has changed: call it after every event. */
bool kvr_router_next_action(struct kvr_router *router, struct kvr_action *action);
/* A request that the driver refuses before it is routed: for its size, its key, its JSON. It is
 * counted, and its row written, as far as `submission` describes it. */
void kvr_router_refused(struct kvr_router *router, uint64_t now_ns,
                        const struct kvr_submission *submission, const struct kvr_ending *ending);
/* Asks the shadows about the last decision, and enters in the index what it admitted. */
void kvr_router_settle(struct kvr_router *router);

/* The replica also holds what it generated: blocks that follow the request's own chain. */
void kvr_router_believe(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                        const uint64_t *chain, uint32_t len);

/* The action about it was taken up: what its decision took on a real clock is over by now. A caller
 * on virtual time need not tell; the decision then took no time. */
void kvr_router_decided(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request);
/* All of it was written to the replica's socket. */
void kvr_router_sent(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request);
void kvr_router_first_byte(struct kvr_router *router, uint64_t now_ns,
                           struct kvr_request_ref request, uint16_t status);
void kvr_router_first_token(struct kvr_router *router, uint64_t now_ns,
                            struct kvr_request_ref request);
/* Bytes came from its replica: sign of life. */
void kvr_router_bytes(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request);

/* The dispatch failed before any body byte. `replica_fault`: the replica refused, reset or broke
 * its answer (it goes down at once); false for faults of our own host and for an engine that says
 * it is full. `again` carries the chain anew; the next action is a DISPATCH elsewhere or a REJECT.
 */
void kvr_router_failed(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                       bool replica_fault, const struct kvr_submission *again);

/* The end, whatever it was. Writes the row; the name is void afterwards. */
void kvr_router_finish(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                       const struct kvr_ending *ending);

/* What the response headers show; valid until finish. */
const struct kvr_request_record *kvr_router_request(const struct kvr_router *router,
                                                    struct kvr_request_ref request);

/* Something that a waiting request may have waited for has changed without an event above: an
 * administrative state, a weight. */
void kvr_router_changed(struct kvr_router *router);
/* Could this request, now on a replica, go to another? */
bool kvr_router_can_move(struct kvr_router *router, struct kvr_request_ref request);
/* Prompt tokens, as stated or estimated. */
double kvr_router_prompt_tokens(struct kvr_router *router, const struct kvr_submission *submission);
/* Canonical prompt bytes of so many leading blocks. */
double kvr_router_block_bytes(const struct kvr_router *router, uint32_t blocks);

/* Every open request, ticket and load agrees; dies if not. For tests and simulation. */
void kvr_router_verify(const struct kvr_router *router);

#endif
