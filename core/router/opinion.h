/* What a policy, and the spill rule beside it, make of the view as it stands. Asking changes
 * nothing but what the scripts themselves count: no account, no belief, no record. The one who
 * decides, its shadows and an explanation all ask here, so that none of them can mean something
 * else by it. */
#ifndef KVR_OPINION_H
#define KVR_OPINION_H

#include <stdbool.h>
#include <stdint.h>

#include "role.h"
#include "router.h"

#define KVR_NO_ROW UINT32_MAX

struct kvr_opinion {
    enum kvr_verdict verdict; /* PICK, HOLD or REJECT; never NONE: then C has picked */
    uint32_t index;           /* PICK: the row that should take the request */
    uint16_t reason;          /* for it */
    bool affine;              /* the policy picked for the cache */
    bool fallback;            /* no script picked: C did, the least in flight */
    bool spill_asked;
    uint32_t preferred;        /* row of a pick that the spill rule declined; KVR_NO_ROW: none */
    uint16_t preferred_reason; /* for that one */
    enum kvr_verdict said;     /* by the policy itself */
    int policy_code;           /* 0, or why its call did not decide */
    int spill_code;            /* the same of the spill rule: its preferred stays */
};

/* Asks the policy of that role about router->picture, which must have an available row. */
void kvr_opinion_form(struct kvr_router *router, enum kvr_script_role policy,
                      struct kvr_opinion *opinion);

#endif
