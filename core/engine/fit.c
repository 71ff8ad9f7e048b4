#include "fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"

/* The constants, in the order of the columns. */
enum {
    FLOOR,
    WEIGHTS,
    PREFILL_STEP,
    PREFILL_TOKEN,
    PREFILL_CONTEXT,
    DECODE_SEQ,
    DECODE_SEQ_SQUARED,
    DECODE_CONTEXT,
    OVERHEAD,
    COLUMNS,
};

#define ROUNDS_MAX 50    /* of guessing which side of the roofline each step is on */
#define NO_GAIN    1e-13 /* mean square that a further constant must be worth */
#define SINGULAR   1e-10 /* of a scaled pivot: the column is made of the others */

static void read_constants(const struct kvr_profile *profile, double *x)
{
    x[FLOOR] = profile->step_floor_ms;
    x[WEIGHTS] = profile->weights_ms;
    x[PREFILL_STEP] = profile->prefill_step_ms;
    x[PREFILL_TOKEN] = profile->prefill_token_ms;
    x[PREFILL_CONTEXT] = profile->prefill_context_ms;
    x[DECODE_SEQ] = profile->decode_seq_ms;
    x[DECODE_SEQ_SQUARED] = profile->decode_seq_squared_ms;
    x[DECODE_CONTEXT] = profile->decode_context_ms;
    x[OVERHEAD] = profile->overhead_ms;
}

static void write_constants(struct kvr_profile *profile, const double *x)
{
    profile->step_floor_ms = x[FLOOR];
    profile->weights_ms = x[WEIGHTS];
    profile->prefill_step_ms = x[PREFILL_STEP];
    profile->prefill_token_ms = x[PREFILL_TOKEN];
    profile->prefill_context_ms = x[PREFILL_CONTEXT];
    profile->decode_seq_ms = x[DECODE_SEQ];
    profile->decode_seq_squared_ms = x[DECODE_SEQ_SQUARED];
    profile->decode_context_ms = x[DECODE_CONTEXT];
    profile->overhead_ms = x[OVERHEAD];
}

/* ---- a row as coefficients of the constants ---- */

static bool computes(enum kvr_step_form form, const double *x, const struct kvr_step_shape *step)
{
    if (form == KVR_STEP_LINEAR)
        return false;
    double reading = x[WEIGHTS] + x[DECODE_CONTEXT] * (double)step->decode_context;
    double tokens = (double)(step->prefill_tokens + step->decoding);
    return x[PREFILL_TOKEN] * tokens > reading;
}

/* Adds the step to the coefficients, by the formula of profile.h. */
static void add_step(enum kvr_step_form form, const double *x, const struct kvr_step_shape *step,
                     double *a)
{
    double decoding = (double)step->decoding;
    a[FLOOR] += 1;
    a[DECODE_SEQ] += decoding;
    a[DECODE_SEQ_SQUARED] += decoding * decoding;
    a[PREFILL_STEP] += step->prefill_tokens > 0;
    a[PREFILL_CONTEXT] += (double)step->prefill_context / 2;
    if (form == KVR_STEP_LINEAR) {
        a[PREFILL_TOKEN] += (double)step->prefill_tokens;
        a[DECODE_CONTEXT] += (double)step->decode_context;
    } else if (computes(form, x, step)) {
        a[PREFILL_TOKEN] += (double)step->prefill_tokens + decoding;
    } else {
        a[WEIGHTS] += 1;
        a[DECODE_CONTEXT] += (double)step->decode_context;
    }
}

static void coefficients(enum kvr_step_form form, const double *x, const struct kvr_fit_row *row,
                         double *a)
{
    memset(a, 0, COLUMNS * sizeof *a);
    a[OVERHEAD] = row->paths;
    for (uint32_t i = 0; i < row->steps_len; i++)
        add_step(form, x, &row->steps[i], a);
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < COLUMNS; i++)
        sum += a[i] * b[i];
    return sum;
}

double kvr_fit_predict(const struct kvr_profile *profile, const struct kvr_fit_row *row)
{
    double x[COLUMNS];
    double a[COLUMNS];
    read_constants(profile, x);
    coefficients(profile->form, x, row, a);
    return dot(a, x);
}

/* ---- least squares ---- */

/* Sums of products over all rows, each divided by its time: columns, and at [COLUMNS] the ones. */
struct gram {
    double m[COLUMNS + 1][COLUMNS + 1];
    double scale[COLUMNS]; /* makes the diagonal 1; 0: the column is empty */
};

static void gram_sum(const struct kvr_fit_row *rows, size_t len, enum kvr_step_form form,
                     const double *x, struct gram *gram)
{
    memset(gram, 0, sizeof *gram);
    for (size_t k = 0; k < len; k++) {
        double a[COLUMNS + 1];
        coefficients(form, x, &rows[k], a);
        double weight = rows[k].weight > 0 ? rows[k].weight : 1;
        for (int i = 0; i < COLUMNS; i++)
            a[i] /= rows[k].ms;
        a[COLUMNS] = 1;
        for (int i = 0; i <= COLUMNS; i++)
            for (int j = 0; j <= COLUMNS; j++)
                gram->m[i][j] += weight * a[i] * a[j];
    }
    for (int i = 0; i < COLUMNS; i++)
        gram->scale[i] = gram->m[i][i] > 0 ? 1 / sqrt(gram->m[i][i]) : 0;
}

/* Solves for the columns in `subset` alone, by Cholesky's method; false when they do not tell
 * themselves apart. */
static bool solve(const struct gram *gram, unsigned subset, double *x)
{
    int at[COLUMNS];
    int n = 0;
    double l[COLUMNS][COLUMNS];
    double y[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        if (subset >> i & 1)
            at[n++] = i;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = gram->m[at[i]][at[j]] * gram->scale[at[i]] * gram->scale[at[j]];
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            if (i == j && sum < SINGULAR)
                return false;
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
        y[i] = gram->m[at[i]][COLUMNS] * gram->scale[at[i]];
        for (int k = 0; k < i; k++)
            y[i] -= l[i][k] * y[k];
        y[i] /= l[i][i];
    }
    memset(x, 0, COLUMNS * sizeof *x);
    for (int i = n; i-- > 0;) {
        for (int k = i + 1; k < n; k++)
            y[i] -= l[k][i] * y[k];
        y[i] /= l[i][i];
        x[at[i]] = y[i] * gram->scale[at[i]];
    }
    return true;
}

/* Sum of squared relative errors of x. */
static double squares(const struct gram *gram, const double *x)
{
    double sum = gram->m[COLUMNS][COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        sum -= 2 * x[i] * gram->m[i][COLUMNS];
        for (int j = 0; j < COLUMNS; j++)
            sum += x[i] * x[j] * gram->m[i][j];
    }
    return sum;
}

/* Of equally good ones the first: it has the plainer constants. */
static void best_subset(const struct gram *gram, double *x)
{
    double best = INFINITY;
    unsigned known = 0;
    for (int i = 0; i < COLUMNS; i++)
        known |= (unsigned)(gram->scale[i] > 0) << i;
    for (unsigned subset = 1; subset < 1u << COLUMNS; subset++) {
        double tried[COLUMNS];
        if ((subset & known) != subset || !solve(gram, subset, tried))
            continue;
        bool legal = true;
        for (int i = 0; i < COLUMNS; i++)
            legal = legal && tried[i] >= 0;
        double error = legal ? squares(gram, tried) : INFINITY;
        if (error + NO_GAIN * gram->m[COLUMNS][COLUMNS] < best) {
            best = error;
            memcpy(x, tried, sizeof tried);
        }
    }
    KVR_CHECK(best < INFINITY); /* one column alone is always legal: nothing here is negative */
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

struct kvr_fit_report kvr_fit_report(double *errors, size_t len)
{
    if (len == 0)
        return (struct kvr_fit_report){0};
    qsort(errors, len, sizeof *errors, compare);
    return (struct kvr_fit_report){
        .median = errors[(len - 1) / 2],
        .p90 = errors[(len - 1) * 9 / 10],
        .worst = errors[len - 1],
    };
}

static struct kvr_fit_report judge(const struct kvr_fit_row *rows, size_t len,
                                   const struct kvr_profile *profile)
{
    double *errors = kvr_alloc(len * sizeof *errors);
    for (size_t i = 0; i < len; i++)
        errors[i] = fabs(kvr_fit_predict(profile, &rows[i]) / rows[i].ms - 1);
    struct kvr_fit_report report = kvr_fit_report(errors, len);
    kvr_free(errors);
    return report;
}

int kvr_fit(const struct kvr_fit_row *rows, size_t len, enum kvr_step_form form,
            struct kvr_profile *profile, struct kvr_fit_report *report)
{
    for (size_t i = 0; i < len; i++)
        if (!(rows[i].ms > 0 && rows[i].ms < INFINITY) || rows[i].steps_len == 0)
            return KVR_E_INVALID;
    if (len == 0)
        return KVR_E_INVALID;
    struct gram gram;
    double x[COLUMNS] = {0};
    double before[COLUMNS];
    x[PREFILL_TOKEN] = 1; /* first guess of the roofline: what prefills computes ... */
    x[WEIGHTS] = 128;     /* ... from so many tokens on */
    for (int round = 0; round < ROUNDS_MAX; round++) {
        memcpy(before, x, sizeof x);
        gram_sum(rows, len, form, before, &gram);
        best_subset(&gram, x);
        bool moved = false;
        for (int i = 0; i < COLUMNS; i++)
            moved = moved || x[i] != before[i];
        if (form == KVR_STEP_LINEAR || !moved)
            break;
    }
    profile->form = form;
    write_constants(profile, x);
    if (report)
        *report = judge(rows, len, profile);
    return KVR_OK;
}
