/* The part of ingress.h that reads requests: from a parsed head and a body to a submission. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "digits.h"
#include "ingress.h"
#include "ingress_parts.h"

struct kvr_slice kvr_ingress_request_id(struct kvr_ingress *ingress,
                                        const struct kvr_http_head *head, char *room, size_t size)
{
    struct kvr_slice id = kvr_http_header(head, "x-request-id");
    if (id.len && id.len < KVR_REQUEST_ID_MAX)
        return id;
    KVR_CHECK(size >= 32);
    kvr_put_hex64(kvr_put_hex64(room, ingress->nonce), ++ingress->ids);
    return kvr_slice_make(room, 32);
}

static void fill_from_body(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                           struct kvr_submission *submission)
{
    const struct kvr_api_request *api = &ingress->api_request;
    struct kvr_session session =
        kvr_session_derive(&ingress->options.session, head->headers, head->count, api);
    submission->routed = true;
    submission->model = api->model;
    submission->session = session.key;
    submission->session_source = kvr_session_source_name(session.source);
    submission->tenant = session.tenant;
    submission->chain = ingress->prompt.chain;
    submission->chain_len = api->api == KVR_API_EMBEDDINGS ? 0 : ingress->prompt.chain_len;
    submission->routing_key =
        kvr_routing_key(&ingress->options.routing, head->headers, head->count, api, &session,
                        submission->chain, submission->chain_len);
    submission->turn = api->turn;
    submission->choices = api->n * (api->prompts ? api->prompts : 1);
    submission->stream = api->stream;
    submission->prompt_bytes = (double)api->prompt_bytes;
    if (api->prompt_tokens >= 0)
        submission->prompt_tokens = (double)api->prompt_tokens;
    submission->extra_tokens = (double)(api->extra_tokens + api->other_tokens);
    submission->priority = api->priority;
    if (api->max_tokens >= 0)
        submission->max_tokens = (double)api->max_tokens;
}

/* A positive number in a header's value, or NaN. */
static double read_number(struct kvr_slice value)
{
    char text[32];
    if (value.len == 0 || value.len >= sizeof text)
        return (double)NAN;
    memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    char *end;
    double number = strtod(text, &end);
    return *end == '\0' && number > 0 && isfinite(number) ? number : (double)NAN;
}

void kvr_ingress_describe(const struct kvr_http_head *head, struct kvr_submission *submission)
{
    enum kvr_api api = kvr_slice_is(head->method, "POST") ? kvr_api_of(head->path) : KVR_API_OPAQUE;
    *submission = (struct kvr_submission){
        .endpoint = api == KVR_API_OPAQUE ? "other" : kvr_api_name(api),
        .prompt_tokens = (double)NAN,
        .max_tokens = (double)NAN,
        .slo_ttft_ms = read_number(kvr_http_header(head, "x-kvroute-slo-ttft-ms")),
        .tag = kvr_http_header(head, "x-kvroute-tag"),
    };
}

int kvr_ingress_read_body(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                          struct kvr_slice body, struct kvr_submission *submission,
                          struct kvr_error *error)
{
    kvr_router_settle(&ingress->router); /* the scan makes a new chain */
    enum kvr_api api = kvr_slice_is(head->method, "POST") ? kvr_api_of(head->path) : KVR_API_OPAQUE;
    /* A compressed body is nobody's to read here: it goes by load. */
    if (api == KVR_API_OPAQUE || kvr_http_header(head, "content-encoding").len)
        return 0;
    int rc = kvr_api_request_scan(&ingress->api_request, api, body, &ingress->options.api,
                                  &ingress->prompt, error);
    if (rc)
        return rc;
    fill_from_body(ingress, head, submission);
    return 0;
}

int kvr_ingress_read(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                     struct kvr_slice body, struct kvr_submission *submission,
                     struct kvr_error *error)
{
    kvr_ingress_describe(head, submission);
    return kvr_ingress_read_body(ingress, head, body, submission, error);
}
