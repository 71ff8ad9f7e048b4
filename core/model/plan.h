/* Which destinations a routing key goes to until the next plan: Algorithm 1 of CacheRoute (Cheng,
 * "CacheRoute: Planned Prefix-Affinity Routing for Large-Scale LLM Serving", 2026), as a pure
 * function from key rates to a table, with what the paper leaves open made precise:
 *
 *   1 copies    a key of rate r gets k = min(destinations, max(1, ceil(r / q_cap))) of them: more
 *               cannot be distinct.
 *   2 order     by falling rate of the whole key, not of a copy; equal rates by rising key.
 *   3 admission in that order while the copies fit the slots. The first key that does not fit ends
 *               it (the paper's "while"), or with `skip` is passed over. Without split keys that
 *               is the same.
 *   4 tail      what is not admitted loads destinations by their share of all weight.
 *   5 placement key after key, each copy of load r / k to the destination that would have the least
 *               load over weight with it, among those without a copy of this key. Equal weights:
 *               the least loaded. Ties: the lowest number.
 *
 * Slots are planning units, one a copy: only their sum is bounded, no destination's own. Any unit
 * of rate will do that is the same for rates and q_cap; loads are in it.
 *
 * A key may be one that only some destinations are eligible for (the paper's word): those of its
 * model. All of the above is then about these: a key has at most as many copies, the tail of a set
 * of destinations loads that set, and beside the slots of all, the slots that a set has by its
 * number bound the copies of the keys that can go nowhere else. The first key that does not fit
 * ends the admission of those. Loads are of all keys together, so what one model puts on a
 * destination the others see. Where every key may go everywhere that is the paper.
 *
 * Rates that were counted for a short while say little: n requests have a relative error of
 * sqrt(I / n), I being the index of dispersion (Cox and Lewis, "The Statistical Analysis of Series
 * of Events", 1966), for gaps of a coefficient of variation of 1.9, the paper's, about 3.6. So no
 * key of KVR_PLAN_SPLIT_COUNT requests or less is split: their error is a third. q_cap and phi are
 * taken to be at least that many requests in the `counted` time; once they are, that changes
 * nothing.
 *
 * Beyond the paper, each off while its option is 0:
 *
 *   phi         a copy's load is also at most phi times the mean load of a destination (all rate
 *               over destinations), so that no single key is more than a destination's share.
 *   tokens      admission by what a cache holds instead of equal slots: keys in the order of value
 *               density, the prefill tokens a second that a copy saves over the tokens it takes,
 *               as long as they fit; what does not is passed over, and so is what is more than any
 *               destination's part by weight. A copy goes where its part has room; where none has,
 *               to the one with the most.
 *   residency   how long an idle prefix stays in a cache, in the time unit of rates: a key so hot
 *               that every destination has it warm anyway is worth less. One of its prefixes is
 *               asked for n = r saved / tokens residency times meanwhile, and density has the
 *               factor exp(-n / destinations) - exp(-n / k).
 *   keep        a plan that goes on from the last one (replan.h).
 *
 * n keys, A copies, R destinations of W different weights: O(n + A (W + log R)) and about 50 bytes
 * a key while it is made, 42 to 66 an admitted key after. A lookup is O(1) and meets two lines of
 * cache. A plan never changes once it is made: any number of threads may read it, and it is swapped
 * whole.
 *
 * LuaJIT reads this header as it stands (kvr_sim_declarations). */
#ifndef KVR_PLAN_H
#define KVR_PLAN_H

#include <stdint.h>

#include "check.h"
#include "error.h"

#define KVR_PLAN_KEYS_MAX   (1u << 24)
#define KVR_PLAN_COPIES_MAX (1u << 26)
#define KVR_PLAN_RATE_MAX   1e15 /* so that sums are finite */
#define KVR_PLAN_SETS_MAX   1024u
#define KVR_PLAN_GONE       UINT16_MAX

#define KVR_PLAN_SPLIT_COUNT 32 /* requests */

struct kvr_plan_key {
    uint64_t key; /* any number */
    double rate;  /* 0..KVR_PLAN_RATE_MAX */
};

/* How much a warm copy of a key takes of a cache, and what it saves. */
struct kvr_plan_size {
    double tokens; /* of all its prefixes, > 0 */
    double saved;  /* prefill tokens of one request that finds them, >= 0 */
};

struct kvr_plan_options {
    double q_cap;   /* most load of one copy; 0: no limit, every key has one copy */
    uint32_t slots; /* copies in all; 0: KVR_PLAN_COPIES_MAX, which bounds it in any case */
    uint32_t skip;  /* 1: a key whose copies do not fit is passed over; 0: it ends admission */

    /* Beyond the paper */
    double phi;         /* most load of one copy over the mean of destinations; 0: no limit */
    double tokens;      /* of all copies; 0: sizes do not matter */
    double residency;   /* 0: no copy is warm without the plan, and each with it */
    uint32_t keep;      /* 1: what the last plan placed stays where it is, as far as ... */
    double theta;       /* ... no load is over 1 + theta times the mean, or ... */
    double move_budget; /* ... so much of all rate has been moved, 0..1 */
    double loyalty;     /* at admission a key of the last plan counts so many times its rate;
                           0 as 1; >= 1 */
};

/* What a plan is made from. All arrays are the caller's. */
struct kvr_plan_input {
    const struct kvr_plan_key *keys;   /* all different */
    const struct kvr_plan_size *sizes; /* by key; NULL: 1 token each */
    const double *weights;             /* > 0 by destination; NULL: 1 each */
    const struct kvr_plan *last;       /* what `keep` keeps; NULL: nothing */
    const uint16_t *now;    /* by destination of `last`: its number in this plan, or KVR_PLAN_GONE;
                               NULL: the same numbers */
    const uint64_t *sets;   /* of eligible destinations, one after another, each of a bit a
                               destination in (destinations + 63) / 64 words; NULL: all are */
    const uint16_t *set_of; /* by key: number of its set; a key of an empty one is in the tail,
                               which loads nobody */
    uint32_t sets_len;      /* at most KVR_PLAN_SETS_MAX; all different */
    uint32_t keys_len;
    uint32_t destinations;
    double counted; /* how long the keys were, in the time unit of rates; 0: rates are known */
};

/* A key of the plan, and where its destinations stand. */
struct kvr_plan_entry {
    uint64_t key;
    uint32_t first; /* in `assigned` */
    uint32_t count; /* > 0; all different */
};

struct kvr_plan {
    struct kvr_plan_entry *entries; /* by falling rate */
    struct kvr_plan_entry *table;   /* the same at the hash of its key, or next; count 0: free */
    uint16_t *assigned;             /* destinations of all entries, one after another */
    double *loads;                  /* expected, by destination; the tail's part included */
    uint64_t key_mask; /* of a key that is looked up, what counts: all bits, or, in a plan of keys
                          whatever their model, KVR_MODEL_KEY_ROUTING */
    uint32_t table_mask;
    uint32_t keys;         /* given */
    uint32_t admitted;     /* entries */
    uint32_t split;        /* of these with more than one copy */
    uint32_t copies;       /* of all entries; at most slots */
    uint32_t destinations; /* at most KVR_REPLICAS_MAX */
    double admitted_rate;
    double tail_rate; /* of the other keys */
    double imbalance; /* largest over mean load by weight; 1: even, or no load at all */
};

/* NULL with the reason in `error`: a number out of its range, or a key that is there twice. */
KVR_EXPORT struct kvr_plan *kvr_plan_make(const struct kvr_plan_options *options,
                                          const struct kvr_plan_input *input,
                                          struct kvr_error *error);
/* The same of keys that are all alike, and from scratch. */
KVR_EXPORT struct kvr_plan *kvr_plan_create(const struct kvr_plan_options *options,
                                            const struct kvr_plan_key *keys, uint32_t keys_len,
                                            const double *weights, uint32_t destinations,
                                            struct kvr_error *error);
/* Of placements that were made some time, to go on from: its rates and loads are 0. Copies what it
 * is given; NULL with the reason when a key is there twice. */
KVR_EXPORT struct kvr_plan *kvr_plan_of(const struct kvr_plan_entry *entries, uint32_t entries_len,
                                        const uint16_t *assigned, uint32_t destinations,
                                        struct kvr_error *error);
KVR_EXPORT void kvr_plan_destroy(struct kvr_plan *plan); /* NULL is allowed */
/* Makes the table of `entries`, for whoever has placed them otherwise (plan_file.h). KVR_E_EXISTS:
 * a key is there twice. */
KVR_EXPORT int kvr_plan_index(struct kvr_plan *plan, struct kvr_error *error) KVR_MUST_USE;

/* For whoever will look a key up soon, and has other work meanwhile: a large plan is in no cache.
 */
KVR_EXPORT void kvr_plan_prefetch(const struct kvr_plan *plan, uint64_t key);
/* Of an admitted key: its destinations, `*count` of them. NULL and 0 for any other. */
KVR_EXPORT const uint16_t *kvr_plan_lookup(const struct kvr_plan *plan, uint64_t key,
                                           uint32_t *count);

#endif
