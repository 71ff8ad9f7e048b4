/* From what a client can time on an engine to the engine's profile.
 *
 *   FIRST   one request alone, from its sending to its first token: the path, then its prefill in
 *           chunks of the step's token budget. Unseen prompts of several lengths, and sent again.
 *   GAP     between two tokens while nothing but decoding goes on: one step.
 *   SPIKE   the longest gap of a stream while another request prefills: the step with the largest
 *           chunk. It alone tells the start of a prefill from the path around the engine.
 *
 * The budget is not published by engines: where it is not given, each usual one is tried. */
#ifndef KVR_CALIBRATION_H
#define KVR_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "fit.h"
#include "profile.h"

enum kvr_timing_kind { KVR_TIMING_FIRST, KVR_TIMING_GAP, KVR_TIMING_SPIKE };

struct kvr_timing {
    enum kvr_timing_kind kind;
    uint32_t prompt_tokens;  /* FIRST, SPIKE: of the request that prefills */
    uint32_t cached_tokens;  /* of these */
    uint32_t decoding;       /* GAP, SPIKE: streams that decode */
    uint64_t decode_context; /* sum of their tokens */
    double ms;
};

struct kvr_calibration_options {
    uint32_t budget;         /* max_num_batched_tokens; 0: found */
    bool form_given;         /* else the better one; LINEAR unless the other is clearly better */
    enum kvr_step_form form; /* if given */
};

struct kvr_calibration {
    uint32_t budget;
    enum kvr_step_form form;
    struct kvr_fit_report all;
    struct kvr_fit_report kinds[3]; /* by kind; zero where there are none */
};

/* Sets the times of `profile`, its form and max_num_batched_tokens. KVR_E_INVALID: a kind is
 * missing, or a timing is not positive. */
int kvr_calibrate(const struct kvr_timing *timings, size_t len,
                  const struct kvr_calibration_options *options, struct kvr_profile *profile,
                  struct kvr_calibration *calibration, struct kvr_error *error) KVR_MUST_USE;
/* What the profile says of it, ms. */
double kvr_calibration_predict(const struct kvr_profile *profile, const struct kvr_timing *timing);

#endif
