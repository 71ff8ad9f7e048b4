#include "profile.h"

#include <math.h>

/* Where the numbers come from.
 *
 * rtx3090-8b-awq: five RTX 3090 with Llama 3.1 8B AWQ. Published: 7,872 blocks, 256 sequences,
 * 2,048 tokens a step, model length 8,192, 512 tokens prefilled in 124.1 ms and 2,048 in 490.7 ms,
 * first token after 329 ms unseen and 46 ms re-sent, 7.8 ms between tokens alone and 51 ms
 * among 32. Fitted to these: every time. A restart was seen to take about 40 s.
 *
 * h100x2-70b-fp8: two H100 with a 70B model in fp8; 40,071 blocks are published, about 10,000
 * tokens prefilled a second. The other two H100 profiles are rooflines: weights over bandwidth for
 * the floor, twice the parameters over half the peak for a token, KV bytes over bandwidth for
 * context; their block counts are estimates from memory left beside the weights.
 *
 * *-nim: the same machines by ROOFLINE with constants from published kernel timings, weights and
 * bandwidths, the 70B one read off a public table of an inference container on two H100 (5,000
 * tokens in, 500 out, 1 to 100 at once). A second opinion on the four above.
 *
 * simple: nobody's machine, fast and exact, for tests and first steps. */
static const struct kvr_profile profiles[] = {
    {
        .name = "simple",
        .step_floor_ms = 2.0,
        .prefill_token_ms = 0.02,
        .decode_seq_ms = 0.02,
        .bytes_per_token = 4.0,
        .blocks = 8192,
        .max_num_batched_tokens = 2048,
        .max_num_seqs = 256,
        .max_model_len = 32768,
        .chat_head_tokens = 1,
        .chat_system_head_tokens = 1,
        .replicas = 3,
        .cache_generated = true,
    },
    {
        .name = "rtx3090-8b-awq",
        .step_floor_ms = 7.3,
        .prefill_step_ms = 4.0,
        .prefill_token_ms = 0.2157,
        .prefill_context_ms = 2.0e-5,
        .decode_seq_ms = 0.25,
        .decode_seq_squared_ms = 0.03,
        .decode_context_ms = 1.5e-4,
        .jitter = 0.02,
        .overhead_ms = 32.0,
        .startup_ms = 40000.0,
        .bytes_per_token = 1.59,
        .blocks = 7872,
        .max_num_batched_tokens = 2048,
        .max_num_seqs = 256,
        .max_model_len = 8192,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 5,
        .cache_generated = true,
    },
    {
        .name = "h100-8b-bf16",
        .step_floor_ms = 7.0,
        .prefill_step_ms = 2.0,
        .prefill_token_ms = 0.025,
        .prefill_context_ms = 6.0e-7,
        .decode_seq_ms = 0.06,
        .decode_context_ms = 2.2e-5,
        .jitter = 0.02,
        .overhead_ms = 15.0,
        .startup_ms = 40000.0,
        .bytes_per_token = 4.0,
        .blocks = 27500,
        .max_num_batched_tokens = 8192,
        .max_num_seqs = 256,
        .max_model_len = 131072,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 30,
        .cache_generated = true,
    },
    {
        .name = "h100x2-70b-fp8",
        .step_floor_ms = 22.0,
        .prefill_step_ms = 3.0,
        .prefill_token_ms = 0.100,
        .prefill_context_ms = 2.0e-6,
        .decode_seq_ms = 0.12,
        .decode_context_ms = 3.4e-5,
        .jitter = 0.02,
        .overhead_ms = 20.0,
        .startup_ms = 90000.0,
        .bytes_per_token = 4.0,
        .blocks = 40071,
        .max_num_batched_tokens = 8192,
        .max_num_seqs = 256,
        .max_model_len = 131072,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 30,
        .cache_generated = true,
    },
    {
        .name = "h100x2-32b-bf16",
        .step_floor_ms = 20.0,
        .prefill_step_ms = 3.0,
        .prefill_token_ms = 0.070,
        .prefill_context_ms = 1.6e-6,
        .decode_seq_ms = 0.12,
        .decode_context_ms = 5.6e-5,
        .jitter = 0.02,
        .overhead_ms = 20.0,
        .startup_ms = 60000.0,
        .bytes_per_token = 4.0,
        .blocks = 18000,
        .max_num_batched_tokens = 8192,
        .max_num_seqs = 256,
        .max_model_len = 131072,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 30,
        .cache_generated = true,
    },
    {
        .name = "rtx3090-8b-int4-nim",
        .form = KVR_STEP_ROOFLINE,
        .step_floor_ms = 1.3,
        .weights_ms = 6.3,
        .prefill_token_ms = 0.25,
        .prefill_context_ms = 1.05e-5,
        .decode_seq_ms = 0.03,
        .decode_context_ms = 1.87e-4,
        .jitter = 0.03,
        .overhead_ms = 13.5,
        .startup_ms = 40000.0,
        .bytes_per_token = 1.59,
        .blocks = 7000,
        .max_num_batched_tokens = 2048,
        .max_num_seqs = 256,
        .max_model_len = 8192,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 5,
        .cache_generated = true,
    },
    {
        .name = "h100-8b-bf16-nim",
        .form = KVR_STEP_ROOFLINE,
        .step_floor_ms = 1.2,
        .weights_ms = 5.8,
        .prefill_token_ms = 0.027,
        .prefill_context_ms = 1.2e-6,
        .decode_seq_ms = 0.015,
        .decode_context_ms = 5.5e-5,
        .jitter = 0.03,
        .overhead_ms = 11.5,
        .startup_ms = 40000.0,
        .bytes_per_token = 4.0,
        .blocks = 28100,
        .max_num_batched_tokens = 8192,
        .max_num_seqs = 1024,
        .max_model_len = 131072,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 30,
        .cache_generated = true,
    },
    {
        .name = "h100x2-70b-fp8-nim",
        .form = KVR_STEP_ROOFLINE,
        .step_floor_ms = 5.5,
        .weights_ms = 13.0,
        .prefill_token_ms = 0.0715,
        .prefill_context_ms = 2.6e-6,
        .decode_seq_ms = 0.03,
        .decode_context_ms = 2.4e-5,
        .jitter = 0.03,
        .overhead_ms = 11.5,
        .startup_ms = 90000.0,
        .bytes_per_token = 4.0,
        .blocks = 29400,
        .max_num_batched_tokens = 8192,
        .max_num_seqs = 1024,
        .max_model_len = 131072,
        .chat_head_tokens = 28,
        .chat_system_head_tokens = 10,
        .replicas = 30,
        .cache_generated = true,
    },
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
    return kvr_error_set(error, KVR_E_INVALID, "profile: %s is %g, must be between %g and %g",
                         range->field, range->value, range->low, range->high);
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
