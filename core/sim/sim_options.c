#include "profile_text.h"
#include "sim.h"
#include "sim_parts.h"

void kvr_sim_defaults(struct kvr_sim_options *options)
{
    *options = (struct kvr_sim_options){
        .seed = 1,
        .scrape_ms = 1000,
        .moves = 2,
        .health_ramp_ms = 10000,
        .slo_ttft_ms = 990,
        .slo_itl_ms = 24,
        .warmup_ms = 50000,
        .duration_ms = 300000,
    };
    kvr_workload_defaults(&options->workload);
    options->workload.seed = 0;
    options->workload.bytes_per_token = 0;
    options->workload.capacity_tokens = 0;
    int found = kvr_sim_use_profile(options, "rtx3090-8b-awq");
    KVR_CHECK(found == KVR_OK);
}

int kvr_sim_use_profile(struct kvr_sim_options *options, const char *name)
{
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of(name));
    if (!profile)
        return KVR_E_NOT_FOUND;
    options->profile = *profile;
    return KVR_OK;
}

int kvr_sim_read_profile(struct kvr_sim_options *options, const char *path, const char *text,
                         size_t len, struct kvr_error *error)
{
    return kvr_profile_text_read(path, (struct kvr_slice){text, len}, &options->profile, error);
}

struct range {
    const char *field;
    double value, low, high;
};

int kvr_sim_options_check(const struct kvr_sim_options *o, struct kvr_error *error)
{
    const struct range ranges[] = {
        {"replicas", o->replicas, 0, KVR_REPLICAS_MAX},
        {"network_ms", o->network_ms, 0, 1e6},
        {"router_ms", o->router_ms, 0, 1e6},
        {"decision_ms", o->decision_ms, 0, 1e6},
        {"decision_sigma", o->decision_sigma, 0, 10},
        {"scrape_ms", o->scrape_ms, 0, 1e9},
        {"index_ttl_ms", o->index_ttl_ms, -1, 1e12},
        {"index_memory_mb", o->index_memory_mb, 0, 65536},
        {"index_block_bytes", o->index_block_bytes, 0, 256},
        {"moves", o->moves, 0, KVR_MOVES_MAX},
        {"canary_share", o->canary_share, 0, 1},
        {"plan_q_cap", o->plan_q_cap, 0, 1e12},
        {"plan_requests", o->plan_requests, 0, 1e9},
        {"plan_interval_ms", o->plan_interval_ms, 0, 1e12},
        {"plan_phi", o->plan_phi, 0, 1e6},
        {"plan_tokens", o->plan_tokens, 0, 1e15},
        {"plan_residency_s", o->plan_residency_s, 0, 1e9},
        {"plan_theta", o->plan_theta, 0, 1e6},
        {"plan_move_budget", o->plan_move_budget, 0, 1},
        {"plan_loyalty", o->plan_loyalty, 0, 1e6},
        {"plan_life_s", o->plan_life_s, 0, 1e9},
        {"plan_handover_s", o->plan_handover_s, 0, 1e9},
        {"warmup_ms", o->warmup_ms, 0, 1e12},
        {"duration_ms", o->duration_ms, 0, 1e12},
        {"warmup_requests", o->warmup_requests, 0, 1e15},
        {"requests", o->requests, 0, 1e15},
        {"drain_ms", o->drain_ms, 0, 1e12},
        {"timeout_ms", o->timeout_ms, 0, 1e12},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        /* Written so that NaN fails. */
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return kvr_error_set(error, KVR_E_INVALID, "sim: %s is %g, must be between %g and %g",
                                 ranges[i].field, ranges[i].value, ranges[i].low, ranges[i].high);
    if (o->index_memory_mb > 0 && o->index_memory_mb * 1048576 < KVR_PREFIX_MEMORY_MIN)
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: index_memory_mb is %g, must be at least %u", o->index_memory_mb,
                             (unsigned)(KVR_PREFIX_MEMORY_MIN >> 20));
    if (o->index_block_bytes && o->index_block_bytes < KVR_PROMPT_BLOCK_BYTES_MIN)
        return kvr_error_set(error, KVR_E_INVALID,
                             "sim: index_block_bytes is %u, must be at least %d",
                             o->index_block_bytes, KVR_PROMPT_BLOCK_BYTES_MIN);
    bool endless = o->duration_ms == 0 && o->requests == 0 && o->workload.arrivals_max == 0 &&
                   o->workload.kind != KVR_WORKLOAD_LIST &&
                   !(o->workload.arrivals == KVR_ARRIVALS_CLOSED && o->workload.turns_max) &&
                   o->workload.arrivals != KVR_ARRIVALS_TIMES;
    if (endless)
        return kvr_error_set(error, KVR_E_INVALID, "sim: neither duration_ms nor requests is set");
    return KVR_OK;
}
