/* What a plan (plan.h) is made from, taken from the router at once, so that the plan itself can be
 * made wherever it keeps no request waiting:
 *
 *   kvr_planning_init(&planning, router, now_ns);               with the router; or in pieces
 *   kvr_planning_make(&planning, &options, &next, &error);      anywhere, while no other is made
 *   if (next.change.verdict == KVR_PLAN_INSTALL)
 *       kvr_planning_install(router, now_ns, &planning, &next); with the router: swaps pointers
 *   kvr_next_plan_deinit(&next);                                anywhere: what is left in it
 *   kvr_planning_deinit(&planning);
 *
 * Destinations are the members that are not draining or off. One that is down is among them: it may
 * be back before the next plan, and its keys go elsewhere meanwhile.
 *
 * One plan is for all models, so that each sees what the others load: its keys are model keys
 * (model_key.h), and one goes only to replicas that serve its model when the planning begins.
 *
 * Rates are requests over the time that the window covers, at least a second: of less they would be
 * a guess far above what was seen. How few of them a split is believed of, plan.h says. */
#ifndef KVR_PLANNING_H
#define KVR_PLANNING_H

#include "handover.h"
#include "plan.h"
#include "plan_change.h"
#include "router.h"
#include "serving.h"

#define KVR_PLANNING_COUNTED_MIN_S 1.0

/* How plans are made and put in force. Zeros are the paper: from scratch, by equal slots, always
 * installed, at once. Rates are in requests a second, so times here are in seconds. */
struct kvr_planning_options {
    struct kvr_plan_options plan; /* its `slots` and `tokens` follow from those below */
    uint32_t slots;               /* copies for each destination, on average; 0: no bound */
    double tokens;                /* of prefixes for each destination, on average; 0: as plan.h */
    double life_s; /* how long a plan will be in force: it is installed only if being stale so long
                      would cost more than its warm-up; 0: always */
    struct kvr_handover_options handover;
};

struct kvr_planning {
    struct kvr_plan_key *keys;   /* model keys; rates in requests a second */
    struct kvr_plan_size *sizes; /* by key; NULL: not known */
    double *weights;             /* by destination */
    uint64_t *replicas;          /* by destination: its id */
    struct kvr_serving serving;  /* by destination: its models */
    uint32_t keys_len;
    uint32_t destinations;
    /* What was in force, borrowed: it must not be destroyed before the planning. */
    const struct kvr_plan *last;   /* NULL: nothing */
    uint64_t *last_replicas;       /* by destination of `last`: its id */
    struct kvr_plan *bare;         /* `last` with keys of no model; or NULL */
    double window_s;               /* how long the keys were counted; 0: rates are known */
    struct kvr_window_key *counts; /* while they are read in pieces */
    uint64_t *tokens;              /* of prompts, by count; NULL: not counted */
    uint32_t counts_len;
    uint32_t cursor; /* the next cell of the window */
    uint64_t now_ns; /* of the counts */
};

struct kvr_next_plan {
    struct kvr_plan *plan;
    struct kvr_handover *handover; /* NULL: all keys move at once */
    struct kvr_plan_change change; /* against the last one */
    uint32_t version;              /* of its text (plan_file.h); 0: from traffic */
};

/* Keys and rates are those of the router's window, in no particular but reproducible order. It
 * counts keys while a script in force needs `plan` or `keys`. Sizes are known with the router's
 * option `key_tokens`: the mean prompt of each key. */
void kvr_planning_init(struct kvr_planning *planning, const struct kvr_router *router,
                       uint64_t now_ns);
/* The same in pieces that take no time worth mentioning: begin, then read that many cells of the
 * window each time, until it returns false. Keys come and go meanwhile. Then, anywhere, finish. */
void kvr_planning_begin(struct kvr_planning *planning, const struct kvr_router *router,
                        uint64_t now_ns);
bool kvr_planning_read(struct kvr_planning *planning, const struct kvr_router *router,
                       uint32_t cells);
void kvr_planning_finish(struct kvr_planning *planning);
void kvr_planning_deinit(struct kvr_planning *planning);

/* A pure function of what it is given. On failure `next` is empty: there is no destination, or an
 * option is out of its range. */
int kvr_planning_make(const struct kvr_planning *planning,
                      const struct kvr_planning_options *options, struct kvr_next_plan *next,
                      struct kvr_error *error) KVR_MUST_USE;
/* The same with a plan that was made elsewhere (plan_file.h), of which its text says all but what
 * is in force: begin is enough. */
int kvr_planning_load(struct kvr_planning *planning, const struct kvr_planning_options *options,
                      struct kvr_slice text, struct kvr_next_plan *next,
                      struct kvr_error *error) KVR_MUST_USE;
/* From now on `next` decides, and holds what did before. */
void kvr_planning_install(struct kvr_router *router, uint64_t now_ns,
                          const struct kvr_planning *planning, struct kvr_next_plan *next);
void kvr_next_plan_deinit(struct kvr_next_plan *next);

/* The router's: a request has ended, and what its answer says of a handover is taken note of. */
void kvr_planning_saw(struct kvr_router *router, uint64_t now_ns,
                      const struct kvr_request_record *record, const struct kvr_ending *ending);

#endif
