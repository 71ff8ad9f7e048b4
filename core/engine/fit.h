/* Finds the constants of a profile from measured times. An observation is a time and the steps that
 * it is made of: one step of a kernel table, the chunks of a prefill up to the first token, the gap
 * between two tokens.
 *
 *   struct kvr_step_shape steps[] = {{.prefill_tokens = 2048, ...}, {.prefill_tokens = 500, ...}};
 *   struct kvr_fit_row row = {.ms = 612.0, .paths = 1, .steps = steps, .steps_len = 2};
 *   kvr_fit(&row, 1, KVR_STEP_LINEAR, &profile, &report)
 *
 * Least squares of the relative errors over constants that are not negative. The time of a step is
 * linear in the constants (for ROOFLINE: once it is known which side of the maximum a step is on,
 * which is guessed, and guessed again until it stays), and there are few of them: each subset that
 * may be zero is tried, so the answer is the best one, not one that an iteration stopped at. A
 * constant that no observation tells anything of becomes zero. */
#ifndef KVR_FIT_H
#define KVR_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "profile.h"
#include "step_time.h"

struct kvr_fit_row {
    double ms;                          /* measured; > 0 */
    double paths;                       /* how many times the overhead is in it; 0 or 1 */
    double weight;                      /* of its squared relative error; 0 stands for 1 */
    const struct kvr_step_shape *steps; /* the caller's */
    uint32_t steps_len;
};

/* |predicted / measured - 1| over the rows. */
struct kvr_fit_report {
    double median;
    double p90;
    double worst;
};

/* Sets the times of `profile` (all from step_floor_ms to decode_context_ms, form, and overhead_ms);
 * the rest stays. `report` may be NULL. KVR_E_INVALID when there are no rows or a time is not
 * positive. */
int kvr_fit(const struct kvr_fit_row *rows, size_t len, enum kvr_step_form form,
            struct kvr_profile *profile, struct kvr_fit_report *report) KVR_MUST_USE;
/* Of so many errors, which it sorts; all zero of none. */
struct kvr_fit_report kvr_fit_report(double *errors, size_t len);
/* What the profile says of the row, without jitter, ms. */
double kvr_fit_predict(const struct kvr_profile *profile, const struct kvr_fit_row *row);

#endif
