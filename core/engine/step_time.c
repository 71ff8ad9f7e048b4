#include "step_time.h"

#include "check.h"
#include "real.h"
#include "rng.h"

static uint64_t picoseconds(double ms)
{
    KVR_CHECK(ms >= 0.0 && ms < 1e9);
    return (uint64_t)(ms * 1e9 + 0.5);
}

void kvr_step_time_init(struct kvr_step_time *time, const struct kvr_profile *profile,
                        uint64_t seed)
{
    *time = (struct kvr_step_time){
        .form = profile->form,
        .floor_ps = picoseconds(profile->step_floor_ms),
        .weights_ps = picoseconds(profile->weights_ms),
        .prefill_step_ps = picoseconds(profile->prefill_step_ms),
        .prefill_token_ps = picoseconds(profile->prefill_token_ms),
        .prefill_context_ps = picoseconds(profile->prefill_context_ms),
        .decode_seq_ps = picoseconds(profile->decode_seq_ms),
        .decode_seq_squared_ps = picoseconds(profile->decode_seq_squared_ms),
        .decode_context_ps = picoseconds(profile->decode_context_ms),
        .jitter = profile->jitter,
        .slowdown = 1.0,
        .seed = kvr_mix64(seed ^ 0x6a69747465720000u),
    };
}

static uint64_t exact_ps(const struct kvr_step_time *time, const struct kvr_step_shape *shape)
{
    uint64_t ps = time->floor_ps + time->decode_seq_ps * shape->decoding +
                  time->decode_seq_squared_ps * shape->decoding * shape->decoding;
    if (shape->prefill_tokens)
        ps += time->prefill_step_ps + time->prefill_context_ps * shape->prefill_context / 2;
    uint64_t reading = time->weights_ps + time->decode_context_ps * shape->decode_context;
    if (time->form == KVR_STEP_LINEAR)
        return ps + reading + time->prefill_token_ps * shape->prefill_tokens;
    uint64_t computing = time->prefill_token_ps * (shape->prefill_tokens + shape->decoding);
    return ps + (reading > computing ? reading : computing);
}

static double factor_of(struct kvr_step_time *time, uint64_t step)
{
    if (time->jitter == 0.0)
        return 1.0;
    uint64_t at = step % KVR_STEP_FACTORS;
    if (time->factor_step[at] != step + 1) {
        time->factor_step[at] = step + 1;
        double z = kvr_real_normal(kvr_mix64(time->seed + step * 0x9e3779b97f4a7c15u));
        time->factor[at] = kvr_real_exp(time->jitter * z);
    }
    return time->factor[at];
}

uint64_t kvr_step_time_ns(struct kvr_step_time *time, uint64_t step,
                          const struct kvr_step_shape *shape)
{
    uint64_t ps = exact_ps(time, shape);
    uint64_t ns;
    if (time->jitter == 0.0 && time->slowdown == 1.0)
        ns = (ps + 500) / 1000;
    else
        ns = (uint64_t)((double)ps * (factor_of(time, step) * time->slowdown) / 1000.0 + 0.5);
    return ns ? ns : 1;
}
