/* What of a plan is where: keys by destination and by model. It takes a walk over the plan, so it
 * is made where the plan is, and shown without one. */
#ifndef KVR_PLAN_CENSUS_H
#define KVR_PLAN_CENSUS_H

#include <stdint.h>

#include "plan.h"

#define KVR_PLAN_CENSUS_MODELS 32u /* those with the most keys */

struct kvr_plan_census_model {
    uint32_t model; /* in 32 bits; 0: named by none */
    uint32_t keys;  /* admitted */
    uint32_t copies;
    uint32_t destinations; /* that have any of them */
};

struct kvr_plan_census {
    uint32_t *placed; /* by destination: keys that it has a copy of */
    struct kvr_plan_census_model models[KVR_PLAN_CENSUS_MODELS]; /* by falling keys */
    uint32_t models_len;
    uint32_t models_all; /* also those that are left out; 0: keys are of no model */
};

void kvr_plan_census_init(struct kvr_plan_census *census, const struct kvr_plan *plan);
void kvr_plan_census_deinit(struct kvr_plan_census *census); /* zeroed is allowed */

#endif
