/* Makes plans (planning.h) for a running router and puts them in force, without a request that has
 * to wait for it:
 *
 *   asked, or due ──> counting ──────────> making ────────────> install ──> cleaning ──> idle
 *                     keys of the window,  of what was read,    pointers    of what went,
 *                     a piece each turn    in a thread that     swapped     in such a
 *                     of the loop          yields to the loop               thread
 *
 * A plan comes from the keys that live traffic was counted by, every interval or when asked, or
 * from a file (plan_file.h). The plan in force is the router's and outlives reloads of scripts;
 * what a plan is about are ids of replicas, so one that leaves and comes back has its keys again.
 *
 * It can be withheld: the plan in force goes, policies decide as without one, and what is made is
 * judged and not installed until kvr_planner_resume.
 *
 * Failure modes: a plan that cannot be made, because there is no destination or no key was counted,
 * or because a file is bad, changes nothing, and `last` says why. */
#ifndef KVR_PLANNER_H
#define KVR_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "loop.h"
#include "plan_work.h"
#include "router.h"

#define KVR_PLANNER_PATH_MAX 1024
#define KVR_PLANNER_OLD_FILE                                                                       \
    "its version 1 does not say how many keys it has: that some are missing would go unnoticed"

struct kvr_planner_options {
    uint64_t interval_ns; /* between two plannings; 0: only when asked */
    struct kvr_planning_options planning;
};

enum kvr_planner_phase {
    KVR_PLANNER_IDLE,
    KVR_PLANNER_COUNTING,
    KVR_PLANNER_MAKING,
    KVR_PLANNER_CLEANING,
};
const char *kvr_planner_phase_name(enum kvr_planner_phase phase);

/* What became of a planning. */
enum kvr_planner_result {
    KVR_PLANNER_NOTHING, /* there was none yet */
    KVR_PLANNER_INSTALLED,
    KVR_PLANNER_SAME,      /* it would change nothing */
    KVR_PLANNER_NOT_WORTH, /* its warm-up costs more than the last plan's staleness */
    KVR_PLANNER_WITHHELD,
    KVR_PLANNER_FAILED, /* no plan was made; see `error` */
    KVR_PLANNER_RESULTS,
};
const char *kvr_planner_result_name(enum kvr_planner_result result);

/* A planning that has ended. */
struct kvr_planner_attempt {
    enum kvr_planner_result result;
    struct kvr_error error;
    struct kvr_plan_change change; /* against what was in force */
    uint64_t ended_ns;
    uint64_t made_ns; /* how long its thread took */
    uint32_t keys;
    uint32_t admitted;
    double imbalance;
    bool old_file; /* installed, of a file of a version that does not tell when it is cut */
};

/* Of what is in force, beside the plan itself. */
struct kvr_planner_origin {
    char file[KVR_PLANNER_PATH_MAX]; /* empty: made from traffic */
    uint64_t since_ns;
    double window_s; /* how long its keys had been counted; 0: from a file */
    struct kvr_plan_census census;
};

struct kvr_planner_counters {
    uint64_t results[KVR_PLANNER_RESULTS];
    uint64_t withdrawals;
    uint64_t added, removed; /* placements (key, destination), by installs */
    uint64_t piece_ns_max;   /* CPU time of the loop's thread: most for a piece of counting, ... */
    uint64_t install_ns_max; /* ... and for an install */
};

/* Someone who wants a plan. */
struct kvr_planner_wish {
    char file[KVR_PLANNER_PATH_MAX]; /* empty: from traffic */
    void *context;
    /* May be NULL. `error` is NULL unless no plan could be made. */
    void (*on_done)(void *context, const struct kvr_error *error);
};

struct kvr_planner {
    struct kvr_loop *loop;
    struct kvr_router *router;
    struct kvr_planner_options options;
    enum kvr_planner_phase phase;
    struct kvr_planner_wish wish; /* the one that is worked on */
    struct kvr_planner_wish next_wish;
    bool wished;        /* there is a next one */
    bool is_due;        /* an interval has passed */
    bool due_was_last;  /* where both wait they take turns, so that none puts the other off */
    char withheld[128]; /* why; empty: it is not */
    struct kvr_planner_attempt last;
    struct kvr_planner_origin origin; /* of router->plan */
    struct kvr_planner_counters counters;
    struct kvr_plan_work work;  /* the thread's while the phase is MAKING or CLEANING */
    struct kvr_plan *withdrawn; /* to be rubbish once nobody reads it */
    uv_thread_t thread;         /* while the phase is MAKING or CLEANING */
    uv_async_t worked;
    uv_idle_t counting;
    uv_timer_t due;
    uint32_t open_handles;
    bool closing;
    void *closed_context;
    void (*on_closed)(void *context);
};

/* With an interval, the first plan is made when one has passed. */
void kvr_planner_start(struct kvr_planner *planner, struct kvr_loop *loop,
                       struct kvr_router *router, const struct kvr_planner_options *options);
/* The plan to begin with, at once, before the loop runs. */
int kvr_planner_load_first(struct kvr_planner *planner, const char *file,
                           struct kvr_error *error) KVR_MUST_USE;
/* A plan now, from traffic or from a file; on_done is called when it has been judged, never before
 * this returns. KVR_E_STATE: another wish waits, or plans are withheld. */
int kvr_planner_ask(struct kvr_planner *planner, const struct kvr_planner_wish *wish,
                    struct kvr_error *error) KVR_MUST_USE;
/* Whoever asked with that context is gone: the plan is made, and nobody is told. */
void kvr_planner_forget(struct kvr_planner *planner, const void *context);

/* The plan in force goes, and none is installed from now on. `why` is copied. */
void kvr_planner_withhold(struct kvr_planner *planner, const char *why);
/* Plans are installed again, and one is made from traffic now. */
void kvr_planner_resume(struct kvr_planner *planner);

/* Calls back from the loop, after which the memory may go; nobody who asked is told any more. The
 * plan in force stays the router's. */
void kvr_planner_close(struct kvr_planner *planner, void *context,
                       void (*on_closed)(void *context));

#endif
