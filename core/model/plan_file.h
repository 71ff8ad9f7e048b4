/* A plan as a text, as `kvroute plan --out` writes it and people may:
 *
 *   # kvroute plan 2, 2 keys
 *   key,rate,destinations
 *   acme,12.5,10.0.0.1:8000 10.0.0.2:8000
 *   00c0ffee00c0ffee,3,10.0.0.2:8000#1
 *
 * or, where replicas serve several models,
 *
 *   # kvroute plan 2, 2 keys
 *   key,model,rate,destinations
 *   acme,llama-70b,12.5,10.0.0.1:8000
 *   acme,,3,10.0.0.2:8000
 *
 * Keys are named as routing_key.h says, models as requests name them, destinations as replicas are
 * (host:port, or host:port#rank) or by their 16-digit ids. Without the column of models a key is
 * that key whatever the model; with it, an empty one is of requests that name none. The lines of
 * keys may stand in any order; the rates are what loads are shown in. Of two keys that are one in
 * 32 bits the hotter one is planned.
 *
 * The first line is there so that what has been cut is noticed: so many keys follow, at least one,
 * and the last line has an end. Version 1 had no such line. It is read, and the caller told. */
#ifndef KVR_PLAN_FILE_H
#define KVR_PLAN_FILE_H

#include "plan.h"
#include "serving.h"
#include "slice.h"

#define KVR_PLAN_FILE_VERSION 2
#define KVR_PLAN_FILE_HEADER  "key,rate,destinations"
#define KVR_PLAN_FILE_MODELS  "key,model,rate,destinations"
#define KVR_PLAN_FILE_MAX     (256u << 20) /* bytes of a file */

/* Who can be a destination, by its number in the plan. */
struct kvr_plan_fleet {
    const uint64_t *replicas;          /* ids */
    const double *weights;             /* > 0 */
    const struct kvr_serving *serving; /* their models; NULL: each serves any */
    uint32_t count;
};

/* NULL with the reason, and its line, in `error`. On success the caller frees `*keys`, which are
 * those of the entries, `plan->admitted` of them; `*version` is the text's. */
struct kvr_plan *kvr_plan_read(struct kvr_slice text, const struct kvr_plan_fleet *fleet,
                               struct kvr_plan_key **keys, uint32_t *version,
                               struct kvr_error *error);

#endif
