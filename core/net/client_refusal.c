#include "client_refusal.h"

#include <stdio.h>

#include "listener.h"

/* The limit that a refusal is about. */
static uint64_t limit_of(const struct kvr_listener_options *options, enum kvr_refusal refusal)
{
    switch (refusal) {
    case KVR_REFUSE_HEADER_BYTES:
        return options->header_bytes_max;
    case KVR_REFUSE_HEADER_COUNT:
        return options->header_count_max;
    case KVR_REFUSE_BODY_BYTES:
        return options->body_bytes_max;
    case KVR_REFUSE_BODIES_TOTAL:
        return options->bodies_total_max;
    case KVR_REFUSE_SLOW:
        return options->request_ns / 1000000000u;
    default:
        return 0;
    }
}

void kvr_client_refuse(struct kvr_client *client, const struct kvr_http_head *head,
                       enum kvr_refusal refusal, const char *reason)
{
    struct kvr_listener *listener = client->listener;
    const struct kvr_refusal_answer *answer = kvr_refusal_answer(refusal);
    if (!head && client->state == KVR_CLIENT_BODY &&
        kvr_http_parse_request(client->in.data, client->head_size, &listener->head, NULL) == 0)
        head = &listener->head;
    listener->counters.refused_requests++;
    listener->counters.refused[refusal]++;
    client->keep_alive = false;
    client->http10 = client->head_only = false;
    if (listener->handler.on_refused)
        listener->handler.on_refused(listener->handler.context, client, head, refusal);
    struct kvr_api_error error = {answer->status,
                                  answer->status == 503 ? "server_error" : "invalid_request_error",
                                  answer->code, NULL, answer->status == 503 ? 1 : 0};
    char text[96];
    if (!reason && answer->before && !listener->options.limits_are_settings) {
        snprintf(text, sizeof text, "%s %llu %s", answer->before,
                 (unsigned long long)limit_of(&listener->options, refusal), answer->after);
        reason = text;
    }
    kvr_client_error(client, &error, kvr_slice_of(""), reason ? reason : answer->reason);
}
