#include "observe.h"

#include <math.h>

void kvr_observe(struct kvr_router *router, uint64_t now_ns,
                 const struct kvr_request_record *record, enum kvr_observed kind,
                 const struct kvr_ending *ending)
{
    enum kvr_script_role role = record->baseline ? KVR_ROLE_BASELINE
                                : record->canary ? KVR_ROLE_CANARY
                                                 : KVR_ROLE_POLICY;
    struct kvr_slot *slot = router->slots[role];
    const struct kvr_script_info *info = kvr_slot_info(slot);
    if (!info || !info->observes || record->replica == KVR_NO_REPLICA || !record->routed)
        return;
    struct kvr_observation *seen = &router->picture.observation;
    *seen = (struct kvr_observation){
        .now_ms = (double)now_ns / 1e6,
        .ttft_ms = (double)NAN,
        .total_ms = (double)NAN,
        .prompt_tokens = (double)NAN,
        .cached_tokens = (double)NAN,
        .output_tokens = (double)NAN,
        .kind = kind,
        .replica = record->replica,
        .session = kvr_hash32(record->session),
        .routing_key = kvr_hash32(record->routing_key),
        .match_blocks = record->match_blocks,
        .model = kvr_hash32(record->model->hash),
    };
    if (record->first_token_ns)
        seen->ttft_ms = (double)(record->first_token_ns - record->received_ns) / 1e6;
    if (ending) {
        seen->total_ms = (double)(now_ns - record->received_ns) / 1e6;
        if (ending->prompt_tokens >= 0)
            seen->prompt_tokens = (double)ending->prompt_tokens;
        if (ending->cached_tokens >= 0)
            seen->cached_tokens = (double)ending->cached_tokens;
        if (ending->output_tokens >= 0)
            seen->output_tokens = (double)ending->output_tokens;
    }
    kvr_slot_observe(slot);
}
