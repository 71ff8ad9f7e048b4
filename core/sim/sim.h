/* A whole deployment under virtual time: clients (workload.h), one router with its scripts
 * (core/router, core/script) and emulated engines (core/engine), the code that also runs behind
 * sockets, joined by a queue of events instead of a network.
 *
 *   client --network--> router --router, network--> 80 % of the overhead --> engine's queue
 *   client <--network-- router <-----network------  20 % of the overhead <-- token, end
 *
 *   struct kvr_sim_options options;
 *   kvr_sim_defaults(&options);            then change what the question needs
 *   sim = kvr_sim_create(&options, &error);
 *   kvr_sim_load(sim, "policy", name, text, params, n, &error);  and "spill", "shadow_1", ...
 *   while (kvr_sim_run(sim, UINT64_MAX, 100000) > 0) show kvr_sim_now(sim);
 *   kvr_sim_result(sim, &result);
 *
 * Equal options, texts and seed give equal results to the last bit and an equal hash of all events,
 * on any machine and however the run is sliced. The random numbers are: what is asked (workload),
 * the engines' jitter, math.random of the scripts, the ring's positions; each from the seed.
 *
 * Times: options are milliseconds, instants nanoseconds since the start. Lengths of time in results
 * are milliseconds, counts are exact doubles: they are made to be read from Lua. This header is
 * read by LuaJIT as it stands (see workload.h); kvr_sim_declarations gives the text. */
#ifndef KVR_SIM_H
#define KVR_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "error.h"
#include "profile.h"
#include "workload.h"

/* What happens to a replica, and when. */
enum kvr_sim_change_kind {
    KVR_SIM_RESTART,  /* its process dies and comes back empty after the profile's startup */
    KVR_SIM_SLOWDOWN, /* its steps take `value` times as long from now on */
    KVR_SIM_DRAIN,    /* the operator takes it out of rotation; what it has goes on */
    KVR_SIM_RESTORE,  /* and puts it back */
};

struct kvr_sim_change {
    double at_ms;
    double value;
    uint32_t replica;
    uint32_t kind; /* enum kvr_sim_change_kind */
};

struct kvr_sim_options {
    uint64_t seed;

    /* The fleet */
    struct kvr_profile profile;
    uint32_t replicas; /* 0: the profile's */
    uint32_t changes_len;
    const struct kvr_sim_change *changes; /* borrowed until create returns */
    const double *slowdowns; /* by replica, from the start; NULL: 1. Borrowed until create */
    const double *weights;   /* by replica, of the router; NULL: 1. Borrowed until create */
    const char *authorities; /* host:port of each, blanks between: they place the ring. NULL:
                                names that depend on ring_seed */
    uint64_t ring_seed;      /* 0: the seed */
    double network_ms;       /* 0: one way, between client and router and router and replica */
    double router_ms;        /* 0: from a decision until the request leaves the router */
    double decision_ms;      /* 0: from its arrival at the router until the decision ... */
    double decision_sigma;   /* ... times lognormal with median 1 */
    double scrape_ms;        /* 1,000: between two readings of an engine's signals; 0: never */

    /* The router, as in a configuration file; zeros are its defaults */
    double index_ttl_ms;              /* < 0: beliefs do not age */
    double index_memory_mb;           /* 64 */
    uint32_t index_nodes;             /* most blocks; 0: as memory allows */
    uint32_t index_nodes_per_replica; /* 0: no cap */
    uint32_t index_block_bytes;       /* 64 */
    uint32_t index_wide_after;        /* bytes; 0: off */
    uint32_t index_replies;           /* 1: beliefs hold what was generated, too */
    uint32_t ring_vnodes;             /* 128 */
    uint32_t capacity;                /* most in flight of one replica; 0: no limit */
    uint32_t moves;                   /* 2 by kvr_sim_defaults */
    uint32_t requests_max;            /* open at once; 16,384 */
    uint32_t queue_max;               /* 0: off */
    uint32_t queue_shortest;          /* 1: the least still to prefill first */
    uint32_t rows;                    /* 1: a JSON row a request, as live */
    uint32_t row_blocks;              /* 1: with its block chain */
    double queue_deadline_ms;         /* 30,000 */
    double health_interval_ms;        /* 1,000 */
    double health_ramp_ms;            /* 10,000 by kvr_sim_defaults; 0 none */
    double canary_share;

    /* The plan of routing keys, for policies that need one */
    uint32_t plan_slots;     /* copies of keys for each replica, on average; 0: no plan */
    uint32_t plan_at_start;  /* 1: from the true rates of KEYS, before the first request */
    double plan_requests;    /* 0; of LIST: at the start, from the rates of so many first ones */
    double plan_q_cap;       /* most requests a second of one copy; 0: no limit */
    double plan_interval_ms; /* 0: never; each time anew, by what the router has counted */
    /* Beyond the paper: plan.h and planning.h have what they mean; zeros are off */
    double plan_phi;         /* most load of one copy over the mean of replicas */
    double plan_tokens;      /* of prefixes for each replica, on average */
    double plan_residency_s; /* of an idle prefix in a cache */
    double plan_theta;       /* plan_keep: moves beyond 1 + theta times the mean ... */
    double plan_move_budget; /* ... of so much of all rate */
    double plan_loyalty;     /* an admitted key counts so many times at admission */
    double plan_life_s;      /* install only what pays within this time */
    double plan_handover_s;  /* plan_handover: at most so long; 60 */
    uint32_t plan_true;      /* 1: by the true rates of KEYS every time, and true sizes */
    uint32_t plan_keep;      /* 1: a plan goes on from the last */
    uint32_t plan_handover;  /* moved keys are warmed by one request in so many */

    /* The engines */
    uint32_t max_waiting; /* requests queued in one; 0: the engine's default */
    uint32_t kv_events;   /* 1: reported and counted */

    /* What is asked; its seed is that of above unless set, its bytes a token the profile's */
    struct kvr_workload_options workload;

    /* What is measured: requests sent in [warmup, duration), by time or by number, whichever is
     * set. Later ones are not sent; those sent are waited for. */
    double warmup_ms;
    double duration_ms;
    double warmup_requests;
    double requests;    /* after the warm-up */
    double timeout_ms;  /* 0: none; a client that has waited so long goes away */
    double drain_ms;    /* longest wait for what was sent; 0: 600,000 */
    double slo_ttft_ms; /* 990 */
    double slo_itl_ms;  /* 24: of a request's own median gap between tokens */

    uint32_t records; /* 1: keep a record a request, for kvr_sim_records */
    uint32_t verify;  /* 1: check all invariants after every event; slow */
};

/* One request, when it is over. */
struct kvr_sim_record {
    uint64_t tag;      /* of the workload: the same for all policies */
    uint64_t sent_ns;  /* by the client */
    double ttft_ms;    /* client's; NaN: no token */
    double itl_p50_ms; /* lower median of its gaps; 0 with fewer than two tokens */
    double itl_max_ms;
    double e2el_ms; /* client's, to the end; NaN: none */
    uint32_t user;
    uint32_t turn;         /* of that user, from 0 */
    uint32_t session;      /* number */
    uint32_t session_turn; /* from 1 */
    uint32_t key;
    uint32_t prompt_bytes; /* canonical, as the router counts */
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t output_tokens; /* generated */
    uint32_t match_blocks;  /* believed of the replica that took it */
    uint32_t declined_match_blocks;
    uint32_t preemptions;      /* of the request, by its engine */
    uint16_t replica;          /* UINT16_MAX: none */
    uint16_t declined;         /* replica that the spill rule moved it from; UINT16_MAX: none */
    uint16_t reason;           /* kvr_sim_reason_name */
    uint16_t preferred_reason; /* of the pick that was declined; 0: none */
    uint16_t in_flight;        /* of the chosen replica at the decision */
    uint16_t min_in_flight;    /* of all */
    uint8_t outcome;           /* 0 success, 1 failed, 2 dropped, 3 cancelled: as in rows */
    uint8_t moves;
    uint8_t measured; /* sent in the window */
    uint8_t good;     /* success within both limits */
    uint8_t fallback; /* decided in C, since no script did */
};

struct kvr_sim_quantiles {
    double mean, p50, p90, p95, p99, max; /* interpolated, as numpy does; NaN: no sample */
};

/* Of the requests sent in the window, unless it says otherwise. */
struct kvr_sim_result {
    double requests; /* sent in the window */
    double window_s;
    double success, failed, dropped;
    double unfinished;          /* given up: by the client, or when the run ended */
    double timed_out;           /* of these, by the client */
    double good;                /* success within both limits */
    double late_ttft, slow_itl; /* successes that missed one */
    double goodput_per_s;       /* good / window */
    double throughput_per_s;    /* success / window */
    double prompt_tokens, cached_tokens, output_tokens; /* of successes */
    double hit_rate;                                    /* cached / prompt */
    double recomputed_per_request;                      /* prompt tokens that were not cached */
    struct kvr_sim_quantiles ttft, itl, itl_max, e2el;  /* ms, of successes; itl of medians */
    double ttft_p99_all;  /* of all, with infinity for what did not succeed */
    double spilled;       /* picks that the spill rule declined */
    double cold;          /* reason `cold` */
    double deflected;     /* reasons that end in `_deflected` */
    double fallbacks;     /* decided in C, since no script did */
    double busiest_share; /* of requests, on one replica */
    double quietest_share;
    double imbalance;       /* busiest over mean */
    double believed_tokens; /* predicted to be cached */
    double honoured_tokens; /* and were */
    double honoured;        /* share */
    double moved;           /* requests that a failed replica made go elsewhere */
    double preemptions;
    double backlog; /* share of them unanswered when the last was sent */

    /* Of the whole run */
    double sent; /* requests */
    double ended;
    double simulated_s;
    double events;
    double steps; /* of all engines */
    double script_errors;
    double index_blocks; /* now */
    double index_evicted;
    uint64_t hash; /* of all events */
};

struct kvr_sim_replica {
    double requests; /* in the window */
    double good;
    double prompt_tokens;
    double cached_tokens;
    double steps; /* of the whole run */
    double preemptions;
    double running, waiting, kv_usage; /* now */
    double in_flight;                  /* now, as the router counts */
};

/* A plan that was made, installed or not. */
struct kvr_sim_plan {
    double at_s;
    double imbalance; /* expected; largest over mean load */
    double fresh;     /* of a plan from scratch, from the same rates */
    double stale;     /* of the plan in force before, under these rates */
    double admitted, copies, split;
    double keys_both; /* admitted by this and the one before; of these ... */
    double keys_moved;
    double rate_moved; /* requests a second at destinations that are new for their keys */
    double keys_new, keys_gone;
    double staleness, warmup; /* tokens, by plan_change.h */
    uint32_t verdict;         /* 0 installed, 1 the same, 2 not worth it */
};

struct kvr_sim_param {
    const char *key;
    const char *value;
};

struct kvr_sim;

/* For ffi.cdef: the text of plan.h, plan_change.h, profile.h, workload.h, trace.h and this. */
KVR_EXPORT const char *kvr_sim_declarations(void);
/* Sizes, to be compared with ffi.sizeof: options, record, result, workload request. */
KVR_EXPORT void kvr_sim_sizes(uint32_t sizes[4]);

/* The profile rtx3090-8b-awq, the workload and the limits of the study, an ordinary router. */
KVR_EXPORT void kvr_sim_defaults(struct kvr_sim_options *options);
/* Copies the built-in profile of that name into the options; KVR_E_NOT_FOUND. */
KVR_EXPORT int kvr_sim_use_profile(struct kvr_sim_options *options, const char *name) KVR_MUST_USE;
/* The same of a file's text, as `kvroute replica` reads it; `path` is for messages.
 * KVR_E_INVALID. */
KVR_EXPORT int kvr_sim_read_profile(struct kvr_sim_options *options, const char *path,
                                    const char *text, size_t len,
                                    struct kvr_error *error) KVR_MUST_USE;

/* NULL with the reason in `error`. Nothing is in force: C decides, least in flight. */
KVR_EXPORT struct kvr_sim *kvr_sim_create(const struct kvr_sim_options *options,
                                          struct kvr_error *error);
KVR_EXPORT void kvr_sim_destroy(struct kvr_sim *sim);
/* Puts a script's text in force, before a run or between two slices of it. `role` as the router
 * names them: policy, spill, canary, shadow_1 ... shadow_4, shadow_1_spill ..., baseline */
KVR_EXPORT int kvr_sim_load(struct kvr_sim *sim, const char *role, const char *name,
                            const char *text, const struct kvr_sim_param *params,
                            uint32_t params_len, struct kvr_error *error) KVR_MUST_USE;
/* Of what is in force in that role: text and params; 0 when nothing is. */
KVR_EXPORT uint64_t kvr_sim_script_hash(const struct kvr_sim *sim, const char *role);
/* Of its params alone, its own and those set over them, as rows have it. */
KVR_EXPORT uint64_t kvr_sim_params_hash(const struct kvr_sim *sim, const char *role);
/* What it asks for, as bits of enum kvr_script_needs; 0 also when nothing is in force. */
KVR_EXPORT uint32_t kvr_sim_script_needs(const struct kvr_sim *sim, const char *role);
/* The spill rule that the policy in force names as its default; "" when none. */
KVR_EXPORT const char *kvr_sim_default_spill(const struct kvr_sim *sim);
/* Puts the envelope of a gate in force (core/router/envelope.h), whose baseline is the script of
 * the role `baseline`; also between two slices of a run. Zeros are its defaults. */
KVR_EXPORT int kvr_sim_gate(struct kvr_sim *sim, const char *text, size_t len, double window_ms,
                            uint32_t requests_min, struct kvr_error *error) KVR_MUST_USE;
struct kvr_sim_gate {
    double left_s;                          /* since the start; NaN: it is kept */
    double decisions;                       /* of the baseline since */
    double requests, active, answers, late; /* the window that it was left in; all are streams */
};
/* Constant: "none", "kept", "active_set", "ttft_p99". */
KVR_EXPORT const char *kvr_sim_gate_state(const struct kvr_sim *sim, struct kvr_sim_gate *gate);
/* For kvr_workload_add, and to ask what it makes. The simulation's own. */
KVR_EXPORT struct kvr_workload *kvr_sim_workload(struct kvr_sim *sim);

/* Runs all events up to `until_ns`, at most `events_max` of them (0: no limit). 1: there is more;
 * 0: it is over. */
KVR_EXPORT int kvr_sim_run(struct kvr_sim *sim, uint64_t until_ns, uint64_t events_max);
KVR_EXPORT uint64_t kvr_sim_now(const struct kvr_sim *sim);
/* Share of the run that is done, as far as that can be told: 0..1. */
KVR_EXPORT double kvr_sim_progress(const struct kvr_sim *sim);

KVR_EXPORT void kvr_sim_result(struct kvr_sim *sim, struct kvr_sim_result *result);
KVR_EXPORT int kvr_sim_replica(const struct kvr_sim *sim, uint32_t replica,
                               struct kvr_sim_replica *result);
/* The plan-th that was made, from 0; KVR_E_NOT_FOUND past the last. */
KVR_EXPORT int kvr_sim_plan_at(const struct kvr_sim *sim, uint32_t plan,
                               struct kvr_sim_plan *result) KVR_MUST_USE;
/* Requests in the window decided for that reason; ids from 0, NULL past the last. */
KVR_EXPORT const char *kvr_sim_reason_name(const struct kvr_sim *sim, uint32_t reason);
KVR_EXPORT double kvr_sim_reason_count(const struct kvr_sim *sim, uint32_t reason);

/* Records in the order in which requests ended: a run of them from number `first` on, *len long,
 * or NULL. They stay where they are until kvr_sim_forget_records, which drops those before `first`.
 */
KVR_EXPORT const struct kvr_sim_record *kvr_sim_records(const struct kvr_sim *sim, uint64_t first,
                                                        uint32_t *len);
KVR_EXPORT void kvr_sim_forget_records(struct kvr_sim *sim, uint64_t first);
/* Finished JSON rows, one a line; kvr_sim_take_rows drops the first `len` bytes. */
KVR_EXPORT const char *kvr_sim_rows(const struct kvr_sim *sim, size_t *len);
KVR_EXPORT void kvr_sim_take_rows(struct kvr_sim *sim, size_t len);

#endif
