/* What a plan changes in the one before it, and whether that is worth its price: the last plan is
 * stale for as long as it stays, the next one begins with cold copies.
 *
 *   staleness  prefill tokens in `life`: those that keys would save which only the next plan has,
 *              less those of keys that only the last one has; and, for each request above what the
 *              next plan's busiest destination carries, those of a request of mean size
 *   warm-up    tokens of all copies at destinations that have not had their key, of keys that had
 *              others: a new key's copies would be filled without a plan as well
 *
 * LuaJIT reads this header as it stands (kvr_sim_declarations). */
#ifndef KVR_PLAN_CHANGE_H
#define KVR_PLAN_CHANGE_H

#include "plan.h"

enum kvr_plan_verdict {
    KVR_PLAN_INSTALL,   /* there was none before, it is worth it, or nobody asked whether it is */
    KVR_PLAN_SAME,      /* it would change nothing */
    KVR_PLAN_NOT_WORTH, /* warming up costs more than staying */
};

struct kvr_plan_change {
    uint32_t verdict;        /* enum kvr_plan_verdict */
    uint32_t kept;           /* placements (key, destination) that both have */
    uint32_t added;          /* only the next */
    uint32_t removed;        /* only the last */
    uint32_t keys_both;      /* admitted by both */
    uint32_t keys_moved;     /* of these: have left a destination and are at one they were not at */
    uint32_t keys_recounted; /* of these: another number of copies */
    uint32_t keys_new;       /* only in the next */
    uint32_t keys_gone;      /* only in the last */
    double rate_moved;       /* of the copies at new destinations, of keys that both have */
    double last_imbalance; /* of the last plan under the rates of the next; as kvr_plan.imbalance */
    double staleness;      /* tokens */
    double warmup;         /* tokens */
};

/* `input` is what `next` was made from; its last may be NULL. `life` is how long it will be in
 * force, in the time unit of rates; 0: it is installed in any case. */
KVR_EXPORT void kvr_plan_compare(const struct kvr_plan *next, const struct kvr_plan_input *input,
                                 double life, struct kvr_plan_change *change);

#endif
