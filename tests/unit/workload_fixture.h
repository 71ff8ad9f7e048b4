/* What the tests of core/sim/workload share. */
#ifndef KVR_WORKLOAD_FIXTURE_H
#define KVR_WORKLOAD_FIXTURE_H

#include "unit.h"

#include <math.h>

#include "workload.h"

static inline struct kvr_workload *make(const struct kvr_workload_options *options)
{
    struct kvr_error error = {0};
    struct kvr_workload *workload = kvr_workload_create(options, &error);
    if (!workload)
        fail_msg("%s", error.text);
    return workload;
}

/* Within that part of what is wanted. */
static inline void near(double value, double wanted, double part)
{
    if (!(value > wanted * (1 - part) && value < wanted * (1 + part)))
        fail_msg("%g is not within %g of %g", value, part, wanted);
}

#endif
