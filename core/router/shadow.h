/* Shadows: further policies that are asked about each live request, and do not act.
 *
 *   decide ──> DISPATCH ──> (the request leaves) ──> settle: each shadow is asked about the very
 * view that the acting policy saw
 *
 * A shadow is a policy slot and a spill rule of its own: the one that its params.spill names. What
 * it says opens no ticket, enters no belief and is told to no script. A shadow that fails is
 * counted in its slot, and here as failed; nobody waits for it, since the request has left.
 *
 * What a shadow sees is biased by the policy that acts: loads, caches and beliefs are what the
 * acting policy made of them. A shadow's match is what it would have found here and now, not what
 * it would have found had it decided all along.
 *
 * Counted twice: since the router started, and since the comparison last became another one,
 * because the shadow, its spill rule or one of the scripts that act was replaced. Tokens are
 * estimates. */
#ifndef KVR_SHADOW_H
#define KVR_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "request.h"
#include "role.h"

#define KVR_SHADOW_PAIRS_MAX 32

struct kvr_router;

struct kvr_shadow_counters {
    uint64_t evaluated;           /* decisions about which it said something */
    uint64_t agreed;              /* it would have done the same */
    uint64_t failed;              /* its call failed or it is quarantined; not evaluated */
    uint64_t fallbacks;           /* it had no opinion: compared is what C would have done */
    uint64_t spilled;             /* its spill rule declined its pick */
    uint64_t prompt_tokens;       /* of what was evaluated */
    uint64_t match_tokens;        /* believed match of its replica */
    uint64_t acting_match_tokens; /* believed match of the replica that took the request */
};

/* Where it would have sent requests, and where they went. */
struct kvr_shadow_replica {
    uint64_t acting; /* requests that the acting policy sent here */
    uint64_t shadow; /* requests that the shadow would have */
    uint64_t agreed; /* both */
};

/* A kind of disagreement, by the two reasons. */
struct kvr_shadow_pair {
    uint16_t acting_reason;
    uint16_t reason;
    uint64_t count; /* requests on which they differed with these reasons */
    uint64_t match_tokens;
    uint64_t acting_match_tokens;
};

struct kvr_shadow {
    struct kvr_shadow_counters totals;
    struct kvr_shadow_counters now;      /* of the comparison under way, as everything below */
    uint64_t first_ns;                   /* of its first evaluation; 0: none yet */
    uint32_t generations[KVR_ROLES];     /* of the scripts that are compared */
    struct kvr_shadow_replica *replicas; /* by slot; NULL until the first evaluation */
    struct kvr_shadow_pair pairs[KVR_SHADOW_PAIRS_MAX]; /* in the order in which they came up */
    uint32_t pairs_count;
    uint64_t pairs_other; /* disagreements of further kinds */
};

/* What it would have done with one request: its row says so. Holds its replicas and its scripts. */
struct kvr_shadow_answer {
    struct kvr_script_record *policy;
    struct kvr_script_record *spill; /* NULL: not asked */
    enum kvr_verdict verdict;        /* PICK, HOLD or REJECT */
    bool failed;                     /* then there is nothing more */
    uint32_t replica;                /* KVR_NO_REPLICA unless PICK */
    uint32_t preferred;              /* declined by its spill rule; KVR_NO_REPLICA: none */
    uint32_t match_blocks;
    uint16_t reason;
};

struct kvr_shadow_answers {
    uint32_t count;
    struct kvr_shadow_answer items[KVR_SHADOWS_MAX];
};

/* Asks all shadows about the decision that router->pending names, whose view still stands. */
void kvr_shadow_look(struct kvr_router *router);
/* A script has been replaced: comparisons that it was part of begin anew. */
void kvr_shadow_scripts_changed(struct kvr_router *router);
/* The slot has been given to another replica. */
void kvr_shadow_forget_replica(struct kvr_router *router, uint32_t slot);
void kvr_shadow_deinit(struct kvr_shadow *shadow);
/* Lets go of what the answers hold, and of them. */
void kvr_shadow_answers_release(struct kvr_router *router, struct kvr_shadow_answers *answers);
/* "pick", "hold" or "reject"; "none" for no opinion. */
const char *kvr_verdict_name(enum kvr_verdict verdict);

#endif
