/* What a planner's thread does (planner.h): of what was read of the router it makes a plan, and
 * later it frees what that has replaced. It touches neither loop nor router, and has this struct
 * for itself meanwhile. */
#ifndef KVR_PLAN_WORK_H
#define KVR_PLAN_WORK_H

#include "error.h"
#include "plan_census.h"
#include "planning.h"

struct kvr_plan_work {
    struct kvr_planning planning; /* begun and, without a file, read */
    struct kvr_next_plan made;    /* no plan: see `error` */
    struct kvr_error error;
    struct kvr_plan_census census; /* of what was made; once it is installed, of what was before */
    uint64_t took_ns;
    struct kvr_plan *rubbish; /* a plan that was withdrawn; or NULL */
};

/* From a file, or, where that is empty, from traffic. */
void kvr_plan_work_make(struct kvr_plan_work *work, const struct kvr_planning_options *options,
                        const char *file);
/* Frees all there is in it. */
void kvr_plan_work_clean(struct kvr_plan_work *work);

#endif
