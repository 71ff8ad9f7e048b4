#include "refusal.h"

#include <stddef.h>

static const struct kvr_refusal_answer answers[KVR_REFUSALS] = {
    [KVR_REFUSE_MALFORMED] = {400, "invalid_http", "malformed chunked body", NULL, NULL, NULL},
    [KVR_REFUSE_HEADER_BYTES] = {431, "headers_too_large", "the head is over limits.header_bytes",
                                 "limits.header_bytes", "the head is over", "bytes"},
    [KVR_REFUSE_HEADER_COUNT] = {431, "headers_too_many", "the head is over limits.header_count",
                                 "limits.header_count", "the head has more than", "headers"},
    [KVR_REFUSE_BODY_BYTES] = {413, "body_too_large", "the body is over limits.body_bytes",
                               "limits.body_bytes", "the body is over", "bytes"},
    [KVR_REFUSE_BODIES_TOTAL] = {503, "bodies_total", "limits.bodies_total_bytes is reached",
                                 "limits.bodies_total_bytes", "all bodies together are over",
                                 "bytes"},
    [KVR_REFUSE_SLOW] = {408, "request_timeout",
                         "the request did not arrive in time (timeouts.client_body_ms)",
                         "timeouts.client_body_ms", "the request did not arrive within", "s"},
    [KVR_REFUSE_EXPECT] = {417, "expectation_failed", "Expect: only 100-continue can be had here",
                           NULL, NULL, NULL},
};

const struct kvr_refusal_answer *kvr_refusal_answer(enum kvr_refusal refusal)
{
    return &answers[refusal];
}
