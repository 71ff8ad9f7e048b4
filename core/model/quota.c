#include "quota.h"

#include "check.h"

const char *kvr_quota_limit_name(enum kvr_quota_limit limit)
{
    static const char *const names[] = {"concurrency", "requests_per_minute",
                                        "prompt_tokens_per_minute"};
    KVR_CHECK(limit < KVR_QUOTA_LIMITS);
    return names[limit];
}

/* Has the window room for so much more? Else how long until it has. */
static bool has_room(struct kvr_rate_window *window, uint64_t now_ns, uint64_t most,
                     uint64_t amount, uint64_t *wait_ns)
{
    if (most == 0 || amount == 0)
        return true;
    if (amount > most) {
        *wait_ns = UINT64_MAX;
        return false;
    }
    *wait_ns = kvr_rate_window_wait(window, now_ns, most - amount);
    return *wait_ns == 0;
}

static enum kvr_quota_limit limit_reached(struct kvr_quota *quota, uint64_t now_ns,
                                          uint64_t prompt_tokens, uint64_t *wait_ns)
{
    *wait_ns = 0;
    if (quota->most[KVR_QUOTA_CONCURRENCY] && quota->open >= quota->most[KVR_QUOTA_CONCURRENCY])
        return KVR_QUOTA_CONCURRENCY;
    if (!has_room(&quota->requests, now_ns, quota->most[KVR_QUOTA_REQUESTS], 1, wait_ns))
        return KVR_QUOTA_REQUESTS;
    if (!has_room(&quota->prompt_tokens, now_ns, quota->most[KVR_QUOTA_PROMPT_TOKENS],
                  prompt_tokens, wait_ns))
        return KVR_QUOTA_PROMPT_TOKENS;
    return KVR_QUOTA_OK;
}

enum kvr_quota_limit kvr_quota_enter(struct kvr_quota *quota, uint64_t now_ns,
                                     uint64_t prompt_tokens, uint64_t *wait_ns)
{
    enum kvr_quota_limit limit = limit_reached(quota, now_ns, prompt_tokens, wait_ns);
    if (limit != KVR_QUOTA_OK) {
        quota->refused[limit]++;
        return limit;
    }
    kvr_rate_window_add(&quota->requests, now_ns, 1);
    kvr_rate_window_add(&quota->prompt_tokens, now_ns, prompt_tokens);
    quota->open++;
    quota->entered++;
    quota->entered_tokens += prompt_tokens;
    return KVR_QUOTA_OK;
}

void kvr_quota_leave(struct kvr_quota *quota)
{
    KVR_CHECK(quota->open > 0);
    quota->open--;
}
