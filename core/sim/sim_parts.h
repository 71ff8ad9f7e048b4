/* A simulation from inside: shared by sim*.c and by nobody else. */
#ifndef KVR_SIM_PARTS_H
#define KVR_SIM_PARTS_H

#include "engine.h"
#include "event_queue.h"
#include "planning.h"
#include "reason.h"
#include "router.h"
#include "sim.h"
#include "sim_prompt.h"

/* The clock at the start: 0 means "never" to the router. */
#define KVR_SIM_ORIGIN_NS UINT64_C(1000000000)
#define KVR_SIM_PAGE      4096u /* records in a page */

/* Their numbers go into the hash of a run: new ones come last. */
enum kvr_sim_event_kind {
    KVR_SIM_SEND,    /* CLOSED: user a sends its turn b */
    KVR_SIM_ARRIVE,  /* OPEN: the next arrival is due */
    KVR_SIM_DECIDE,  /* request a is at the router and decided upon */
    KVR_SIM_ENTER,   /* request a reaches its engine's queue */
    KVR_SIM_WAKE,    /* engine a has something to do */
    KVR_SIM_FIRST,   /* the first token of request a is at the router */
    KVR_SIM_END,     /* the end of request a is at the router */
    KVR_SIM_FAIL,    /* the router learns that the replica failed request a */
    KVR_SIM_FULL,    /* the router learns that the replica of request a is full */
    KVR_SIM_REFUSED, /* the router learns that the engine refuses request a for what it is */
    KVR_SIM_SCRAPE,  /* signals of replica a are read */
    KVR_SIM_CHANGE,  /* change a of the options happens */
    KVR_SIM_PROBES,  /* due probes are sent, and answered */
    KVR_SIM_TICK,    /* the router looks at its queue */
    KVR_SIM_GIVE_UP, /* the router learns that the client of request a has gone */
    KVR_SIM_PLAN,    /* routing keys are planned anew */
};

/* One replica, around its engine. */
struct kvr_sim_node {
    struct kvr_engine engine;
    uint64_t wake_ns;            /* of the KVR_SIM_WAKE that counts; UINT64_MAX none */
    uint32_t on_it;              /* requests that the router has there, counted here */
    struct kvr_sim_replica seen; /* counts of the window */
};

/* A request under way. Events name it by slot and generation; `attempt` tells dispatches apart. */
struct kvr_sim_request {
    uint32_t generation; /* odd while open */
    uint32_t next_free;
    uint32_t attempt;
    bool measured;
    bool routed;    /* the router has it */
    bool told_full; /* one engine has been full */
    bool first_seen;
    bool entered; /* its engine has it, by `handle` */
    bool given_up;
    uint64_t user, turn;
    uint64_t sent_ns;
    uint64_t received_ns; /* by the router */
    struct kvr_request_ref ref;
    uint32_t replica;
    struct kvr_engine_handle handle;
    struct kvr_engine_event finished; /* what the engine said at its end */
    struct kvr_sim_record record;
};

struct kvr_samples {
    double *items;
    uint64_t len, capacity;
};

struct kvr_sim_counts {
    uint64_t requests, success, failed, dropped;
    uint64_t timed_out;
    uint64_t good, late_ttft, slow_itl;
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t spilled, cold, deflected, fallbacks, moved, preemptions;
    uint64_t believed_tokens, honoured_tokens;
    uint64_t reasons[KVR_REASONS_MAX];
};

struct kvr_sim {
    struct kvr_sim_options options; /* borrowed arrays NULL, but for `changes`, which is owned */
    struct kvr_workload *workload;
    bool closed;
    bool faults; /* replicas are probed */
    struct kvr_router router;
    struct kvr_sim_node *nodes;
    uint32_t nodes_len;
    struct kvr_sim_prompt prompt;
    struct kvr_event_queue queue;
    uint64_t now_ns;
    uint64_t network_ns, router_ns, before_ns, after_ns, scrape_ns, timeout_ns;

    struct kvr_sim_request *requests; /* owned, by slot */
    uint32_t requests_len, first_free, open;

    uint64_t warmup_ns, stop_ns, give_up_ns; /* on the clock; UINT64_MAX: no such time */
    uint64_t warmup_requests, last_request;  /* numbers; UINT64_MAX: no such number */
    bool started, stopped, over, arrival_due;
    struct kvr_arrival arrival; /* OPEN: the next, when `arrival_due` */
    uint64_t sends_due;         /* CLOSED: users about to send */
    uint64_t sent, ended, events, hash;
    uint64_t first_measured_ns, last_sent_ns;
    uint64_t unanswered; /* of the measured, when the last was sent */

    struct kvr_sim_counts counts;
    struct kvr_samples ttft, itl, itl_max, e2el;
    struct kvr_sim_record **pages; /* owned, and each page */
    uint64_t pages_len, pages_capacity;
    struct kvr_sim_plan *plans; /* owned: what was made */
    uint32_t plans_len, plans_capacity;
    uint64_t records_first, records_len; /* numbers: [first, first + len) are kept */
    uint16_t reason_cold;
    bool deflecting[KVR_REASONS_MAX]; /* by reason: its name ends in _deflected */
    uint16_t reasons_known;
};

/* ---- sim.c ---- */

/* The event becomes part of the run's hash. */
static inline void kvr_sim_note(struct kvr_sim *sim, uint64_t a, uint64_t b)
{
    unsigned __int128 product =
        (unsigned __int128)(sim->hash ^ a ^ 0x2d358dccaa6c78a5u) * (b ^ 0x8bb84b93962eacc9u);
    sim->hash = (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline void kvr_sim_later(struct kvr_sim *sim, uint64_t delay_ns,
                                 enum kvr_sim_event_kind kind, uint32_t a, uint64_t b)
{
    kvr_event_queue_add(&sim->queue, sim->now_ns + delay_ns, false, kind, a, b);
}

/* ---- sim_client.c: what is sent, and how it ends ---- */

void kvr_sim_send(struct kvr_sim *sim, uint64_t user, uint64_t turn);
/* What that request asks for, anew. */
struct kvr_workload_request kvr_sim_asked(struct kvr_sim *sim,
                                          const struct kvr_sim_request *request);
/* What events and the engine call this dispatch of the request. */
static inline uint64_t kvr_sim_name(const struct kvr_sim_request *request)
{
    return (uint64_t)request->generation << 32 | request->attempt;
}

/* What the event of its time-out calls it, over all its dispatches. */
static inline uint64_t kvr_sim_name_for_life(const struct kvr_sim_request *request)
{
    return (uint64_t)request->generation << 32;
}

/* The client has its answer, or knows that there will be none. */
void kvr_sim_leave(struct kvr_sim *sim, struct kvr_sim_request *request, enum kvr_outcome outcome);
/* Its client goes away: what works on it stops. */
void kvr_sim_give_up(struct kvr_sim *sim, struct kvr_sim_request *request);
/* Whatever is open ends now, as cancelled. */
void kvr_sim_cancel_all(struct kvr_sim *sim);

/* ---- sim_route.c: what the router does ---- */

void kvr_sim_decide(struct kvr_sim *sim, struct kvr_sim_request *request);
/* Takes what the router has decided. */
void kvr_sim_act(struct kvr_sim *sim);
/* This dispatch has failed before its first byte: the router decides what comes next. */
void kvr_sim_move(struct kvr_sim *sim, struct kvr_sim_request *request, bool replica_fault);
/* The router's last word on the request, which then leaves. */
void kvr_sim_finish(struct kvr_sim *sim, struct kvr_sim_request *request,
                    const struct kvr_ending *ending);

/* The routing key of such a request, as the router derives it. */
uint64_t kvr_sim_routing_key(const struct kvr_sim *sim, const struct kvr_workload_request *ask);
/* That key in 32 bits, as the router counts it and as plans have it. */
uint64_t kvr_sim_model_key(const struct kvr_sim *sim, uint32_t routing_key);

/* ---- sim_options.c ---- */

/* KVR_E_INVALID: a figure out of its range, or a run without an end. */
int kvr_sim_options_check(const struct kvr_sim_options *options,
                          struct kvr_error *error) KVR_MUST_USE;

/* ---- sim_plan.c: which keys go where ---- */

int kvr_sim_plan_check(const struct kvr_sim_options *options, struct kvr_error *error);
void kvr_sim_plan_start(struct kvr_sim *sim);
/* From what the router has counted; and again after the interval. */
void kvr_sim_plan_again(struct kvr_sim *sim);

/* ---- sim_plan_list.c ---- */

/* In place of the planning's own: the rates of plan_requests first requests of a list. */
void kvr_sim_plan_list_rates(const struct kvr_sim *sim, struct kvr_planning *planning);

/* ---- sim_serve.c: the engine and the way back ---- */

/* Reads what an engine reports, and sees when it wants to be woken. */
void kvr_sim_collect(struct kvr_sim *sim, uint32_t node);
void kvr_sim_on_request_event(struct kvr_sim *sim, const struct kvr_sim_event *event);

/* ---- sim_fleet.c: what becomes of replicas ---- */

int kvr_sim_fleet_init(struct kvr_sim *sim, struct kvr_error *error);
void kvr_sim_fleet_start(struct kvr_sim *sim);
void kvr_sim_fleet_deinit(struct kvr_sim *sim);
void kvr_sim_on_fleet_event(struct kvr_sim *sim, const struct kvr_sim_event *event);

/* ---- sim_result.c ---- */

/* A request is over: its record is complete. */
void kvr_sim_count(struct kvr_sim *sim, struct kvr_sim_request *request);
void kvr_sim_records_deinit(struct kvr_sim *sim);

#endif
