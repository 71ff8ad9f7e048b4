#include "calibration.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "memory.h"

#define STEPS_MAX   1024 /* chunks of one prompt */
#define ROUNDS      10
#define STRAY       2.0   /* times the median error */
#define LEAST_STRAY 0.005 /* no error below is one */
/* A form or budget that is only so much better is no better: the earlier one is kept. */
#define CLEARLY 0.7
#define EXACT   1e-9 /* mean square of errors that are rounding */

static const uint32_t budgets[] = {2048, 8192, 512, 1024, 4096, 16384};

/* A timing as the steps that it is made of, for one budget; returns how many. Which step of a
 * prefill is the longest is the profile's word: a last chunk may be smaller and have more before
 * it. */
static uint32_t steps_of(const struct kvr_timing *timing, const struct kvr_profile *profile,
                         uint32_t budget, struct kvr_step_shape *steps)
{
    struct kvr_step_shape shape = {.decoding = timing->decoding,
                                   .decode_context = timing->decode_context};
    if (timing->kind == KVR_TIMING_GAP) {
        steps[0] = shape;
        return 1;
    }
    uint64_t room = budget - timing->decoding; /* decoding goes first */
    uint64_t done = timing->cached_tokens;
    uint32_t len = 0;
    double longest_ms = 0;
    while (done < timing->prompt_tokens) {
        uint64_t left = timing->prompt_tokens - done;
        uint64_t chunk = left < room ? left : room;
        KVR_CHECK(len < STEPS_MAX);
        shape.prefill_tokens = chunk;
        shape.prefill_context = chunk * (2 * done + chunk);
        done += chunk;
        if (timing->kind == KVR_TIMING_FIRST) {
            steps[len++] = shape;
            continue;
        }
        const struct kvr_fit_row row = {.steps = &shape, .steps_len = 1};
        double ms = kvr_fit_predict(profile, &row);
        if (len == 0 || ms > longest_ms) {
            steps[0] = shape;
            len = 1;
            longest_ms = ms;
        }
    }
    return len;
}

double kvr_calibration_predict(const struct kvr_profile *profile, const struct kvr_timing *timing)
{
    struct kvr_step_shape steps[STEPS_MAX];
    struct kvr_fit_row row = {.paths = timing->kind == KVR_TIMING_FIRST, .steps = steps};
    row.steps_len = steps_of(timing, profile, profile->max_num_batched_tokens, steps);
    return kvr_fit_predict(profile, &row);
}

static int check(const struct kvr_timing *timings, size_t len, struct kvr_error *error)
{
    static const char *const names[] = {"first token", "gap", "gap during a prefill"};
    size_t counts[3] = {0};
    for (size_t i = 0; i < len; i++) {
        const struct kvr_timing *timing = &timings[i];
        counts[timing->kind]++;
        bool prefills = timing->kind != KVR_TIMING_GAP;
        bool decodes = timing->kind != KVR_TIMING_FIRST;
        if (!(timing->ms > 0 && timing->ms < 1e9) ||
            (prefills && (timing->cached_tokens >= timing->prompt_tokens ||
                          timing->prompt_tokens > STEPS_MAX * 256)) ||
            (decodes && (timing->decoding == 0 || timing->decoding > 256)))
            return kvr_error_set(error, KVR_E_INVALID, "no such timing of a %s: %g ms",
                                 names[timing->kind], timing->ms);
    }
    for (int kind = 0; kind < 3; kind++)
        if (counts[kind] == 0)
            return kvr_error_set(error, KVR_E_INVALID, "there is no timing of a %s", names[kind]);
    return KVR_OK;
}

/* Each kind counts the same, however many of it there are. */
static double weight_of(const struct kvr_timing *timings, size_t len, enum kvr_timing_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += timings[i].kind == kind;
    return (double)len / (double)count;
}

/* A timing that something disturbed is far off the fit of all others, and counts the less the
 * farther (Huber's weights). */
static void reweigh(struct kvr_fit_row *rows, size_t len, const struct kvr_profile *profile)
{
    double *errors = kvr_alloc(2 * len * sizeof *errors);
    for (size_t i = 0; i < len; i++)
        errors[i] = errors[len + i] = fabs(kvr_fit_predict(profile, &rows[i]) / rows[i].ms - 1);
    double usual = fmax(STRAY * kvr_fit_report(errors, len).median, LEAST_STRAY);
    for (size_t i = 0; i < len; i++)
        if (errors[len + i] > usual)
            rows[i].weight *= usual / errors[len + i];
    kvr_free(errors);
}

/* Fits for one form and budget; returns the weighted mean square of the errors. Each round knows
 * better than the one before which steps are the longest, and which timings are astray. */
static double fit_one(const struct kvr_timing *timings, size_t len, enum kvr_step_form form,
                      uint32_t budget, struct kvr_profile *profile)
{
    struct kvr_fit_row *rows = kvr_alloc_zero(len, sizeof *rows);
    struct kvr_step_shape *steps = kvr_alloc(len * STEPS_MAX * sizeof *steps);
    profile->prefill_token_ms = 1;
    profile->max_num_batched_tokens = budget;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < len; i++) {
            struct kvr_step_shape *own = &steps[i * STEPS_MAX];
            rows[i] = (struct kvr_fit_row){
                .ms = timings[i].ms,
                .paths = timings[i].kind == KVR_TIMING_FIRST,
                .weight = weight_of(timings, len, timings[i].kind),
                .steps = own,
                .steps_len = steps_of(&timings[i], profile, budget, own),
            };
        }
        if (round > 0)
            reweigh(rows, len, profile);
        int failed = kvr_fit(rows, len, form, profile, NULL);
        KVR_CHECK(!failed);
    }
    double sum = 0;
    double weights = 0;
    for (size_t i = 0; i < len; i++) {
        double error = kvr_fit_predict(profile, &rows[i]) / rows[i].ms - 1;
        sum += rows[i].weight * error * error;
        weights += rows[i].weight;
    }
    kvr_free(rows);
    kvr_free(steps);
    return sum / weights;
}

static struct kvr_fit_report judge(const struct kvr_timing *timings, size_t len,
                                   const struct kvr_profile *profile, unsigned kinds)
{
    double *errors = kvr_alloc(len * sizeof *errors);
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        if (kinds >> timings[i].kind & 1)
            errors[count++] =
                fabs(kvr_calibration_predict(profile, &timings[i]) / timings[i].ms - 1);
    struct kvr_fit_report report = kvr_fit_report(errors, count);
    kvr_free(errors);
    return report;
}

int kvr_calibrate(const struct kvr_timing *timings, size_t len,
                  const struct kvr_calibration_options *options, struct kvr_profile *profile,
                  struct kvr_calibration *calibration, struct kvr_error *error)
{
    int code = check(timings, len, error);
    if (code)
        return code;
    double best = INFINITY;
    for (int form = KVR_STEP_LINEAR; form <= KVR_STEP_ROOFLINE; form++) {
        if (options->form_given && form != (int)options->form)
            continue;
        for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
            struct kvr_profile tried = *profile;
            uint32_t budget = options->budget ? options->budget : budgets[i];
            double error_now = fit_one(timings, len, (enum kvr_step_form)form, budget, &tried);
            if (error_now + EXACT < CLEARLY * best) {
                best = error_now;
                *profile = tried;
            }
            if (options->budget)
                break;
        }
    }
    *calibration = (struct kvr_calibration){
        .budget = profile->max_num_batched_tokens,
        .form = profile->form,
        .all = judge(timings, len, profile, 7),
    };
    for (unsigned kind = 0; kind < 3; kind++)
        calibration->kinds[kind] = judge(timings, len, profile, 1u << kind);
    return KVR_OK;
}
