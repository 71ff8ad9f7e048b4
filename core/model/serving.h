/* Which destinations of a plan serve which models, as it was at one moment: copied from the replica
 * table by whoever has that, and asked where the plan is made. Names of models are in 32 bits, as
 * in model keys.
 *
 * A replica that serves any model, or of which it is not known what it serves, is eligible for all
 * of them, as it is for requests; so is every replica for requests that name no model. */
#ifndef KVR_SERVING_H
#define KVR_SERVING_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "plan.h"
#include "replica.h"

/* One destination. */
struct kvr_served {
    uint32_t models[KVR_REPLICA_MODELS_MAX];
    uint32_t count;
    bool any;
};

struct kvr_serving {
    struct kvr_served *served; /* by destination */
    uint32_t destinations;
    uint32_t room;
};

/* Where keys may go, as a plan is told of it (plan.h). */
struct kvr_serving_sets {
    uint64_t *bits; /* sets one after another, of `words` each; NULL: every key may go everywhere */
    uint16_t *set_of; /* by key; one that nobody serves has an empty set */
    uint32_t words;
    uint32_t count; /* different sets */
    uint32_t room;  /* for so many */
};

void kvr_serving_init(struct kvr_serving *serving, uint32_t destinations_max);
void kvr_serving_deinit(struct kvr_serving *serving); /* zeroed is allowed */
/* The next destination. */
void kvr_serving_add(struct kvr_serving *serving, const struct kvr_replica *replica);
bool kvr_serving_has(const struct kvr_serving *serving, uint32_t destination, uint32_t model);

/* The sets of these model keys. O(keys + their models x destinations). KVR_E_LIMIT: they are more
 * than KVR_PLAN_SETS_MAX; nothing is in `sets` then. */
int kvr_serving_sets(const struct kvr_serving *serving, const struct kvr_plan_key *keys,
                     uint32_t len, struct kvr_serving_sets *sets,
                     struct kvr_error *error) KVR_MUST_USE;
void kvr_serving_sets_deinit(struct kvr_serving_sets *sets); /* zeroed is allowed */

#endif
