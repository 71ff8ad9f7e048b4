#include "profile.h"

#include <math.h>

/* From profiles/NAME.lua, where each number has its source beside it. */
static const struct kvr_profile profiles[] = {
#include "kvr_profiles.h"
};

const struct kvr_profile *kvr_profile_at(size_t index)
{
    return index < sizeof profiles / sizeof profiles[0] ? &profiles[index] : NULL;
}

const struct kvr_profile *kvr_profile_find(struct kvr_slice name)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (kvr_slice_is(name, profiles[i].name))
            return &profiles[i];
    return NULL;
}

struct range {
    const char *field;
    double value;
    double low;
    double high;
};

static int check_range(const struct range *range, struct kvr_error *error)
{
    /* Written so that NaN fails. */
    if (range->value >= range->low && range->value <= range->high)
        return KVR_OK;
    return kvr_error_set(error, KVR_E_INVALID, "profile: %s must be between %g and %g, is %g",
                         range->field, range->low, range->high, range->value);
}

int kvr_profile_check(const struct kvr_profile *profile, struct kvr_error *error)
{
    const struct kvr_profile *p = profile;
    /* Bounds that keep a step's picoseconds within 64 bits for the largest batch. */
    const struct range ranges[] = {
        {"step_floor_ms", p->step_floor_ms, 0.0, 1e6},
        {"weights_ms", p->weights_ms, 0.0, 1e6},
        {"prefill_step_ms", p->prefill_step_ms, 0.0, 1e6},
        {"prefill_token_ms", p->prefill_token_ms, 0.0, 100.0},
        {"prefill_context_ms", p->prefill_context_ms, 0.0, 0.001},
        {"decode_seq_ms", p->decode_seq_ms, 0.0, 1000.0},
        {"decode_seq_squared_ms", p->decode_seq_squared_ms, 0.0, 10.0},
        {"decode_context_ms", p->decode_context_ms, 0.0, 0.1},
        {"jitter", p->jitter, 0.0, 1.0},
        {"overhead_ms", p->overhead_ms, 0.0, 1e6},
        {"startup_ms", p->startup_ms, 0.0, 1e7},
        {"bytes_per_token", p->bytes_per_token, 1.0, 64.0},
        {"blocks", p->blocks, 1.0, 1e8},
        {"max_num_seqs", p->max_num_seqs, 1.0, 8192.0},
        {"max_num_batched_tokens", p->max_num_batched_tokens, p->max_num_seqs, 131072.0},
        {"max_model_len", p->max_model_len, 2.0, 4194304.0},
        {"chat_head_tokens", p->chat_head_tokens, 0.0, 256.0},
        {"chat_system_head_tokens", p->chat_system_head_tokens, 0.0, 256.0},
        {"replicas", p->replicas, 1.0, 65535.0},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        int failed = check_range(&ranges[i], error);
        if (failed)
            return failed;
    }
    if (p->form != KVR_STEP_LINEAR && p->form != KVR_STEP_ROOFLINE)
        return kvr_error_set(error, KVR_E_INVALID, "profile: no step form %d", (int)p->form);
    return KVR_OK;
}
