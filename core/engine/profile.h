/* What an emulated engine is: the constants of one model on one machine. Plain numbers, so that a
 * profile can be built in, come from a file or from a fit, and be copied as a value.
 *
 * Times are milliseconds and lengths tokens, as engines publish them; the engine turns them into
 * integers once, when it starts. The built-in profiles are the files of profiles/, compiled in; a
 * user's own has the same form (profile_text.h). */
#ifndef KVR_PROFILE_H
#define KVR_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "slice.h"

#define KVR_PROFILE_NAME_MAX 64
#define KVR_BLOCK_TOKENS     16 /* tokens in one block of the KV cache, as vLLM's default */

/* How long one scheduler step takes. With P prefill tokens in the step, Q the sum over its prefill
 * chunks of n * (context before + n / 2), N decoding sequences and X the sum of their contexts:
 *
 *   LINEAR    step_floor + [P > 0] prefill_step + prefill_token * P + prefill_context * Q
 *             + decode_seq * N + decode_seq_squared * N^2 + decode_context * X
 *   ROOFLINE  step_floor + max(weights + decode_context * X, prefill_token * (P + N))
 *             + [P > 0] prefill_step + prefill_context * Q + decode_seq * N
 *             + decode_seq_squared * N^2
 *
 * LINEAR adds the work of a mixed step; ROOFLINE lets compute hide behind reading the weights. */
enum kvr_step_form { KVR_STEP_LINEAR, KVR_STEP_ROOFLINE };

struct kvr_profile {
    char name[KVR_PROFILE_NAME_MAX];

    enum kvr_step_form form;
    double step_floor_ms;         /* every step */
    double weights_ms;            /* ROOFLINE: reading the weights once */
    double prefill_step_ms;       /* more, when the step prefills at all */
    double prefill_token_ms;      /* per token prefilled */
    double prefill_context_ms;    /* per token prefilled and token of context before it */
    double decode_seq_ms;         /* per decoding sequence */
    double decode_seq_squared_ms; /* per square of the number of decoding sequences */
    double decode_context_ms;     /* per token of context of the decoding sequences */
    double jitter;                /* sigma of the lognormal factor on each step; 0 = exact */

    double overhead_ms;     /* of the path around the engine, a request: HTTP, templates, tokenizer.
                               The engine does not add it: its host spends 80 % of it before the
                               request is submitted and 20 % after each event. */
    double startup_ms;      /* from a restart until requests are taken again */
    double bytes_per_token; /* of the emulated tokenizer */

    uint32_t blocks;                  /* of the KV cache */
    uint32_t max_num_batched_tokens;  /* token budget of a step; at least max_num_seqs */
    uint32_t max_num_seqs;            /* most requests in the batch */
    uint32_t max_model_len;           /* most prompt and output tokens of one request together */
    uint32_t chat_head_tokens;        /* before the first message, when no system prompt is given */
    uint32_t chat_system_head_tokens; /* and when one is */
    uint32_t replicas;                /* fleet size of the study that it comes from */
    bool cache_generated;             /* full blocks of generated tokens are cached, as vLLM does */
};

/* NULL when there is no built-in profile of that name. */
const struct kvr_profile *kvr_profile_find(struct kvr_slice name);
/* The built-in profiles in order; NULL past the last. */
const struct kvr_profile *kvr_profile_at(size_t index);
/* 0, or KVR_E_INVALID with the field and its value in words. */
int kvr_profile_check(const struct kvr_profile *profile, struct kvr_error *error) KVR_MUST_USE;

#endif
