#include "rejection.h"

#include <stdio.h>

#define RETRY_AFTER_S 1

static const struct kvr_rejection_answer answers[] = {
    [KVR_REJECT_NO_REPLICAS] = {{503, "server_error", "no_replicas", NULL, RETRY_AFTER_S}},
    [KVR_REJECT_DRAINING] = {{503, "server_error", "draining", NULL, RETRY_AFTER_S}},
    [KVR_REJECT_AT_CAPACITY] = {{503, "server_error", "at_capacity", NULL, RETRY_AFTER_S}},
    [KVR_REJECT_MODEL_NOT_FOUND] = {{404, "invalid_request_error", "model_not_found", "model", 0}},
    [KVR_REJECT_BY_POLICY] = {{503, "server_error", "refused_by_policy", NULL, RETRY_AFTER_S}},
    [KVR_REJECT_ALL_FAILED] = {{502, "server_error", "all_replicas_failed", NULL, 0}},
    [KVR_REJECT_QUEUE_FULL] = {{429, "rate_limit_error", "queue_full", NULL, RETRY_AFTER_S}},
    [KVR_REJECT_QUEUE_DEADLINE] = {{503, "server_error", "queue_deadline", NULL, RETRY_AFTER_S}},
    [KVR_REJECT_REQUESTS_MAX] = {{503, "server_error", "too_many_requests", NULL, RETRY_AFTER_S}},
};

const struct kvr_rejection_answer *kvr_rejection_answer(enum kvr_rejection rejection)
{
    return &answers[rejection];
}

void kvr_rejection_message(enum kvr_rejection rejection, const char *model, const char *failure,
                           char *out, size_t room)
{
    switch (rejection) {
    case KVR_REJECT_MODEL_NOT_FOUND:
        snprintf(out, room, "The model `%s` does not exist.", model);
        break;
    case KVR_REJECT_NO_REPLICAS:
        snprintf(out, room, "no replica is up for model `%s`", model);
        break;
    case KVR_REJECT_DRAINING:
        snprintf(out, room, "all replicas for model `%s` are draining", model);
        break;
    case KVR_REJECT_AT_CAPACITY:
        snprintf(out, room, "all replicas for model `%s` are at their capacity", model);
        break;
    case KVR_REJECT_BY_POLICY:
        snprintf(out, room, "the routing policy refused the request");
        break;
    case KVR_REJECT_ALL_FAILED:
        snprintf(out, room, "every replica tried for model `%s` failed, the last by %s", model,
                 failure ? failure : "an unknown cause");
        break;
    case KVR_REJECT_QUEUE_FULL:
        snprintf(out, room, "as many requests wait for a replica as may (queue.max)");
        break;
    case KVR_REJECT_QUEUE_DEADLINE:
        snprintf(out, room, "no replica for model `%s` was free in time (queue.deadline_ms)",
                 model);
        break;
    case KVR_REJECT_REQUESTS_MAX:
        snprintf(out, room, "limits.requests are open");
        break;
    }
}
