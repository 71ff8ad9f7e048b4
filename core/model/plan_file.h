/* A plan as a text, as `kvroute plan --out` writes it and people may:
 *
 *   key,rate,destinations
 *   acme,12.5,10.0.0.1:8000 10.0.0.2:8000
 *   00c0ffee00c0ffee,3,10.0.0.2:8000#1
 *
 * Keys are named as routing_key.h says, destinations as replicas are (host:port, or host:port#rank)
 * or by their 16-digit ids. Lines may stand in any order; the rates are what loads are shown in.
 * Of two keys that are one in 32 bits the hotter one is planned. */
#ifndef KVR_PLAN_FILE_H
#define KVR_PLAN_FILE_H

#include "plan.h"
#include "slice.h"

#define KVR_PLAN_FILE_HEADER "key,rate,destinations"
#define KVR_PLAN_FILE_MAX    (256u << 20) /* bytes of a file */

/* Who can be a destination, by its number in the plan. */
struct kvr_plan_fleet {
    const uint64_t *replicas; /* ids */
    const double *weights;    /* > 0 */
    uint32_t count;
};

/* NULL with the reason, and its line, in `error`. On success the caller frees `*keys`, which are
 * those of the entries, `plan->admitted` of them. */
struct kvr_plan *kvr_plan_read(struct kvr_slice text, const struct kvr_plan_fleet *fleet,
                               struct kvr_plan_key **keys, struct kvr_error *error);

#endif
