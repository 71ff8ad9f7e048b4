/* How long a scheduler step takes: the formula of profile.h in integers. Constants become whole
 * picoseconds once; a step without jitter is then pure integer arithmetic, rounded to nanoseconds
 * at its end. Jitter is a function of seed and step number, not of a stream of draws: a step takes
 * the same time whether it is looked at once, twice or ahead of time. */
#ifndef KVR_STEP_TIME_H
#define KVR_STEP_TIME_H

#include <stdint.h>

#include "profile.h"

#define KVR_STEP_FACTORS 64 /* remembered jitter factors, a power of two */

/* What one step has to compute. */
struct kvr_step_shape {
    uint64_t prefill_tokens;
    uint64_t prefill_context; /* sum over chunks of n * (2 * context before + n): twice Q */
    uint64_t decoding;        /* sequences that decode */
    uint64_t decode_context;  /* sum of their contexts, tokens */
};

struct kvr_step_time {
    enum kvr_step_form form;
    uint64_t floor_ps;              /* each step */
    uint64_t weights_ps;            /* ROOFLINE: each step */
    uint64_t prefill_step_ps;       /* each step that prefills */
    uint64_t prefill_token_ps;      /* per token prefilled */
    uint64_t prefill_context_ps;    /* per token and token of context */
    uint64_t decode_seq_ps;         /* per sequence that decodes */
    uint64_t decode_seq_squared_ps; /* per square of their number */
    uint64_t decode_context_ps;     /* per token of their contexts */
    double jitter;                  /* sigma of the lognormal factor of a step; 0: none */
    double slowdown;                /* 1 = none */
    uint64_t seed;
    uint64_t factor_step[KVR_STEP_FACTORS]; /* step + 1 of each remembered factor; 0 = none */
    double factor[KVR_STEP_FACTORS];
};

void kvr_step_time_init(struct kvr_step_time *time, const struct kvr_profile *profile,
                        uint64_t seed);
/* At least 1. */
uint64_t kvr_step_time_ns(struct kvr_step_time *time, uint64_t step,
                          const struct kvr_step_shape *shape);

#endif
