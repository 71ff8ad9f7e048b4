/* The part of exchange.h that is about time: which limit has passed, and what comes of it. Before
 * the first body byte a connection that does not come up, and the first answer that does not come,
 * move the request once more; nothing else does, and nothing after that byte. */
#include <stdio.h>

#include "exchange_parts.h"
#include "ingress.h"

static void end_late(struct kvr_exchange *exchange, enum kvr_time_limit limit)
{
    char message[160];
    snprintf(message, sizeof message, "%s (%s, %u ms)",
             limit == KVR_TIME_TOTAL ? "the request took too long"
                                     : "the replica's answer did not begin in time",
             kvr_time_limit_setting(limit), exchange->limits.ms[limit]);
    kvr_exchange_refuse(
        exchange, &(struct kvr_api_error){504, "server_error", kvr_time_limit_code(limit), NULL, 0},
        message);
}

static void pass(struct kvr_exchange *exchange, enum kvr_time_limit limit)
{
    struct kvr_ingress *ingress = exchange->ingress;
    const char *code = kvr_time_limit_code(limit);
    ingress->counters.timeouts[limit]++;
    if (exchange->state == KVR_EXCHANGE_RELAYING) {
        kvr_exchange_lose(exchange, code, false);
    } else if (limit == KVR_TIME_CONNECT) {
        kvr_resolver_doubt(&ingress->resolver, exchange->replica, true);
        kvr_exchange_move(exchange, true, code);
    } else if (limit == KVR_TIME_FIRST_BYTE && !exchange->was_late &&
               kvr_router_can_move(&ingress->router, exchange->request)) {
        /* A long prefill looks the same as a dead engine: a second replica may do it, not all. */
        exchange->was_late = true;
        kvr_exchange_move(exchange, false, code);
    } else {
        end_late(exchange, limit);
    }
}

void kvr_exchange_tick(struct kvr_exchange *exchange, uint64_t now_ns)
{
    const struct kvr_time_limits *limits = &exchange->limits;
    const struct kvr_upstream *upstream = exchange->upstream;
    if (kvr_time_is_over(limits, KVR_TIME_TOTAL, exchange->started_ns, now_ns)) {
        pass(exchange, KVR_TIME_TOTAL);
        return;
    }
    switch (exchange->state) {
    case KVR_EXCHANGE_CONNECTING: /* or waiting for a decision */
        if (upstream && kvr_time_is_over(limits, KVR_TIME_CONNECT, upstream->since_ns, now_ns))
            pass(exchange, KVR_TIME_CONNECT);
        break;
    case KVR_EXCHANGE_SENT:
    case KVR_EXCHANGE_HELD:
        if (kvr_time_is_over(limits, KVR_TIME_FIRST_BYTE, exchange->sent_ns, now_ns))
            pass(exchange, KVR_TIME_FIRST_BYTE);
        break;
    case KVR_EXCHANGE_RELAYING:
        /* While its client does not read, a replica is not read either. */
        if (!upstream->stream.paused &&
            kvr_time_is_over(limits, KVR_TIME_IDLE, exchange->bytes_ns, now_ns))
            pass(exchange, KVR_TIME_IDLE);
        break;
    }
}
