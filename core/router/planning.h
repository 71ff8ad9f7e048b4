/* What a plan (plan.h) is made from, taken from the router at once, so that the plan itself can be
 * made wherever it keeps no request waiting:
 *
 *   kvr_planning_init(&planning, router, now_ns)
 *   plan = kvr_plan_create(&options, planning.keys, ..., planning.weights, ...)
 *   kvr_plan_destroy(kvr_router_install_plan(router, plan, planning.replicas))
 *   kvr_planning_deinit(&planning)
 *
 * Destinations are the members that are not draining or off. One that is down is among them: it may
 * be back before the next plan, and its keys go elsewhere meanwhile. */
#ifndef KVR_PLANNING_H
#define KVR_PLANNING_H

#include "plan.h"
#include "router.h"

struct kvr_planning {
    struct kvr_plan_key *keys; /* 32-bit routing keys; rates in requests a second */
    double *weights;           /* by destination */
    uint64_t *replicas;        /* by destination: its id */
    uint32_t keys_len;
    uint32_t destinations;
};

/* Keys and rates are those of the router's window, in no particular but reproducible order. It
 * counts keys while a script in force needs `plan` or `keys`. */
void kvr_planning_init(struct kvr_planning *planning, const struct kvr_router *router,
                       uint64_t now_ns);
void kvr_planning_deinit(struct kvr_planning *planning);

#endif
