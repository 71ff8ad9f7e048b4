/* What one client may use: requests open at once, requests and prompt tokens a minute. Asked once a
 * request, before it is routed; whoever was let in must leave. */
#ifndef KVR_QUOTA_H
#define KVR_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "rate_window.h"

enum kvr_quota_limit {
    KVR_QUOTA_CONCURRENCY,
    KVR_QUOTA_REQUESTS,
    KVR_QUOTA_PROMPT_TOKENS,
    KVR_QUOTA_LIMITS,
    KVR_QUOTA_OK = KVR_QUOTA_LIMITS, /* none is reached */
};

/* Constant name: "concurrency", "requests_per_minute", "prompt_tokens_per_minute". */
const char *kvr_quota_limit_name(enum kvr_quota_limit limit);

struct kvr_quota {
    uint64_t most[KVR_QUOTA_LIMITS]; /* 0: unlimited */
    uint32_t open;                   /* requests let in that have not left */
    struct kvr_rate_window requests;
    struct kvr_rate_window prompt_tokens; /* as estimated when they came */
    uint64_t entered;                     /* counters */
    uint64_t entered_tokens;
    uint64_t refused[KVR_QUOTA_LIMITS];
};

/* KVR_QUOTA_OK lets it in. Otherwise the limit that is in the way, and in `*wait_ns` how long at
 * least it will be: 0 when that is not known, UINT64_MAX when no waiting helps. */
enum kvr_quota_limit kvr_quota_enter(struct kvr_quota *quota, uint64_t now_ns,
                                     uint64_t prompt_tokens, uint64_t *wait_ns);
void kvr_quota_leave(struct kvr_quota *quota);

#endif
