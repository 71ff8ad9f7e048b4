/* How the keys that a plan moves go to their new destinations: for a while the old ones keep them,
 * and one request in `every` goes to the new ones, until answers from there find about as much of
 * their prompts cached as those from the old ones do. Then, or when the while is over, the key has
 * moved. So a plan's copies are warmed by a part of the traffic instead of all of it.
 *
 * It is a table of the keys that move, made where the plan is made; a plan's other keys are not in
 * it. A key moves if both plans have it and some destination of the next one was not its own; the
 * old destinations that are none any more are left out, and a key with none of them moves at once.
 */
#ifndef KVR_HANDOVER_H
#define KVR_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

#define KVR_HANDOVER_MOST_NS (UINT64_C(60) * 1000000000u)

struct kvr_handover_options {
    uint32_t every;   /* 0: off, all keys move at once; else one request in so many warms, >= 2 */
    uint64_t most_ns; /* a key has moved after so long in any case; 0: KVR_HANDOVER_MOST_NS */
};

struct kvr_handover_key {
    uint64_t key;
    uint32_t first;  /* of its destinations: the old ones, then the new ones */
    uint16_t before; /* old ones; 0: this place of the table is free */
    uint16_t after;  /* new ones: those that are not among the old */
    float usual;     /* average cached share of prompts at the old ones; < 0: none seen */
    float warmth;    /* at the new ones */
    bool moved;
};

struct kvr_handover {
    struct kvr_handover_key *table; /* by hash, or next */
    uint16_t *places;               /* destinations of the next plan */
    uint64_t key_mask;              /* as the plan's */
    uint32_t table_mask;
    uint32_t keys;    /* that move */
    uint32_t moving;  /* of these, still */
    uint32_t every;   /* as the options */
    uint64_t most_ns; /* likewise */
    uint64_t end_ns;  /* 0: not begun */
};

/* `input` as of kvr_plan_compare. NULL: it is off, or no key moves. O(keys of the input). */
struct kvr_handover *kvr_handover_create(const struct kvr_handover_options *options,
                                         const struct kvr_plan *next,
                                         const struct kvr_plan_input *input);
void kvr_handover_destroy(struct kvr_handover *handover); /* NULL is allowed */
/* The plan is in force from now on. */
void kvr_handover_begin(struct kvr_handover *handover, uint64_t now_ns);

/* Destinations of a key that is moving; NULL: the plan's. `number` differs from request to request
 * and says which of them warm: the same request always goes to the same. */
const uint16_t *kvr_handover_lookup(const struct kvr_handover *handover, uint64_t now_ns,
                                    uint64_t key, uint64_t number, uint32_t *count);
/* An answer about the key came from there, with that share of its prompt cached, 0..1. */
void kvr_handover_saw(struct kvr_handover *handover, uint64_t now_ns, uint64_t key,
                      uint32_t destination, double cached_share);

#endif
