/* How long one request may take, and each part of it. The configuration says, and a request's own
 * headers may say otherwise, within the operator's bound:
 *
 *   x-kvroute-timeout-ms              total: from its last byte in to the end of its answer
 *   x-kvroute-connect-timeout-ms      for a connection to a replica
 *   x-kvroute-first-byte-timeout-ms   from the request written to the first byte of an answer
 *   x-kvroute-idle-timeout-ms         between two bytes of an answer
 *
 * A header always may shorten a limit; it may lengthen one up to `by_header_max_ms`. A header that
 * is no number is refused, not passed over: its sender relies on it. */
#ifndef KVR_TIME_LIMITS_H
#define KVR_TIME_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "http.h"

enum kvr_time_limit { KVR_TIME_CONNECT, KVR_TIME_FIRST_BYTE, KVR_TIME_IDLE, KVR_TIME_TOTAL };
#define KVR_TIME_LIMITS 4

struct kvr_time_limits {
    uint32_t ms[KVR_TIME_LIMITS]; /* 0: off */
};

struct kvr_time_limits_options {
    struct kvr_time_limits limits; /* of a request that says nothing */
    uint32_t by_header_max_ms;     /* 0: a header may only shorten */
};

/* The code of an error and of a row, such as "first_byte_timeout"; the name of the setting. */
const char *kvr_time_limit_code(enum kvr_time_limit limit);
const char *kvr_time_limit_setting(enum kvr_time_limit limit);

/* KVR_E_INVALID names the header and its value. */
int kvr_time_limits_read(const struct kvr_time_limits_options *options,
                         const struct kvr_http_head *head, struct kvr_time_limits *limits,
                         struct kvr_error *error);

static inline bool kvr_time_is_over(const struct kvr_time_limits *limits, enum kvr_time_limit limit,
                                    uint64_t since_ns, uint64_t now_ns)
{
    uint64_t most_ns = (uint64_t)limits->ms[limit] * 1000000u;
    return most_ns && since_ns && now_ns > since_ns && now_ns - since_ns >= most_ns;
}

#endif
