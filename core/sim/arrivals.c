#include "arrivals.h"

#include <math.h>

#include "check.h"
#include "real.h"

#define TIME_NS_MAX 9e18 /* 285 years; less than INT64_MAX */

/* In (0, 1]. */
static double unit_open(struct kvr_rng *rng)
{
    return 1.0 - kvr_rng_double(rng);
}

/* Gamma of that shape and scale 1, by Marsaglia and Tsang (2000). */
static double gamma_deviate(struct kvr_rng *rng, double shape)
{
    double boost = 1;
    if (shape < 1) {
        boost = kvr_real_pow(unit_open(rng), 1 / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3.0;
    double c = 1 / sqrt(9 * d);
    for (;;) {
        double x = kvr_real_normal(kvr_rng_next(rng));
        double v = 1 + c * x;
        double u = unit_open(rng);
        if (v <= 0)
            continue;
        v = v * v * v;
        if (kvr_real_log(u) < 0.5 * x * x + d - d * v + d * kvr_real_log(v))
            return boost * d * v;
    }
}

double kvr_gamma_gap(struct kvr_rng *rng, double cv)
{
    if (cv <= 0)
        return 1;
    if (cv == 1)
        return -kvr_real_log(unit_open(rng));
    double shape = 1 / (cv * cv);
    return gamma_deviate(rng, shape) / shape;
}

void kvr_arrivals_init(struct kvr_arrivals *arrivals, const struct kvr_arrivals_options *options)
{
    *arrivals = (struct kvr_arrivals){.options = *options, .gap_scale = 1};
    kvr_rng_init(&arrivals->rng, options->seed);
    KVR_CHECK(options->process != KVR_PROCESS_RENEWAL || options->rate > 0);
    if (options->process != KVR_PROCESS_BOOTSTRAP)
        return;
    KVR_CHECK(options->times_len >= 2 && options->block_len > 0);
    uint64_t gaps = options->times_len - 1;
    if (arrivals->options.block_len > gaps)
        arrivals->options.block_len = (uint32_t)gaps;
    double span_ms = options->times_ms[gaps] - options->times_ms[0];
    arrivals->gap_scale = options->time_scale;
    if (options->rate > 0 && span_ms > 0)
        arrivals->gap_scale = 1000 / options->rate / (span_ms / (double)gaps);
}

/* Far ahead comes never: no clock of ours gets there, and a run need not wait for it. */
uint64_t kvr_arrivals_ns(double ms)
{
    return ms * 1e6 < TIME_NS_MAX ? (uint64_t)(ms * 1e6 + 0.5) : (uint64_t)TIME_NS_MAX;
}

/* The time by which so many mean gaps have passed. With a rate that changes by `slope` a second,
 * rate x t + slope x t^2 / 2 of them pass in t. */
static double time_ms_of(const struct kvr_arrivals_options *options, double gaps)
{
    double rate = options->rate;
    if (!(options->rate_end > 0) || options->rate_end == rate)
        return gaps / rate * 1e3;
    double ramp_s = options->ramp_ms / 1e3;
    double in_ramp = (rate + options->rate_end) / 2 * ramp_s;
    if (gaps >= in_ramp)
        return options->ramp_ms + (gaps - in_ramp) / options->rate_end * 1e3;
    double slope = (options->rate_end - rate) / ramp_s;
    return 2 * gaps / (rate + sqrt(rate * rate + 2 * slope * gaps)) * 1e3;
}

static uint64_t next_renewal(struct kvr_arrivals *arrivals)
{
    const struct kvr_arrivals_options *options = &arrivals->options;
    if (options->gap_cv <= 0) /* not summed up, so nothing adds up */
        return kvr_arrivals_ns(time_ms_of(options, (double)arrivals->count));
    arrivals->elapsed += kvr_gamma_gap(&arrivals->rng, options->gap_cv);
    return kvr_arrivals_ns(time_ms_of(options, arrivals->elapsed));
}

static uint64_t next_bootstrap(struct kvr_arrivals *arrivals)
{
    const struct kvr_arrivals_options *options = &arrivals->options;
    if (arrivals->block_left == 0) {
        uint64_t starts = options->times_len - 1 - options->block_len + 1;
        arrivals->block_at = kvr_rng_below(&arrivals->rng, starts);
        arrivals->block_left = options->block_len;
    }
    uint64_t at = arrivals->block_at++;
    arrivals->block_left--;
    arrivals->elapsed += (options->times_ms[at + 1] - options->times_ms[at]) * arrivals->gap_scale;
    return kvr_arrivals_ns(arrivals->elapsed);
}

bool kvr_arrivals_next(struct kvr_arrivals *arrivals, uint64_t *due_ns)
{
    const struct kvr_arrivals_options *options = &arrivals->options;
    switch (options->process) {
    case KVR_PROCESS_RENEWAL:
        *due_ns = next_renewal(arrivals);
        break;
    case KVR_PROCESS_TIMES:
        if (arrivals->count >= options->times_len)
            return false;
        *due_ns = kvr_arrivals_ns(options->times_ms[arrivals->count] * options->time_scale);
        break;
    case KVR_PROCESS_BOOTSTRAP:
        *due_ns = next_bootstrap(arrivals);
        break;
    }
    arrivals->count++;
    return *due_ns < (uint64_t)TIME_NS_MAX;
}
