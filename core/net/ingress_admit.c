/* The part of ingress.h that lets requests in: what it answers itself, what it refuses, and on
 * which terms the rest is routed. Whatever has a head that could be read leaves a row. */
#include <stdio.h>

#include "ingress.h"
#include "ingress_parts.h"
#include "local_paths.h"
#include "router.h"

void kvr_ingress_refused(struct kvr_ingress *ingress, const struct kvr_submission *submission,
                         uint16_t status, const char *code)
{
    struct kvr_ending ending = kvr_ending_make(KVR_OUTCOME_DROPPED, code, status);
    kvr_router_refused(&ingress->router, kvr_loop_now(), submission, &ending);
    kvr_ingress_take_rows(ingress);
}

static void refuse(struct kvr_ingress *ingress, struct kvr_client *client,
                   const struct kvr_submission *submission, const struct kvr_api_error *error,
                   const char *message)
{
    struct kvr_buffer lines = {0};
    if (ingress->options.headers)
        kvr_buffer_printf(&lines, "x-kvroute-request-id: %.*s\r\n", (int)submission->request_id.len,
                          submission->request_id.data);
    if (error->status == 401)
        kvr_buffer_append_text(&lines, "WWW-Authenticate: Bearer\r\n");
    kvr_ingress_refused(ingress, submission, error->status, error->code);
    kvr_client_error(client, error, kvr_buffer_slice(&lines), message);
    kvr_buffer_deinit(&lines);
}

/* What its head alone says of a request. */
static void describe(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                     struct kvr_submission *submission, char *room, size_t size)
{
    kvr_ingress_describe(head, submission);
    submission->request_id = kvr_ingress_request_id(ingress, head, room, size);
    submission->received_ns = kvr_loop_turn_ns(ingress->loop);
}

/* ---- who may, and how much ---- */

/* False: it was refused. `*key` NULL: keys are off. */
static bool authenticate(struct kvr_ingress *ingress, struct kvr_client *client,
                         const struct kvr_http_head *head, const struct kvr_submission *submission,
                         struct kvr_client_key **key)
{
    bool given = false;
    *key = NULL;
    if (!kvr_client_keys_on(&ingress->client_keys))
        return true;
    *key = kvr_client_keys_find(&ingress->client_keys, head, &given);
    if (*key)
        return true;
    refuse(ingress, client, submission,
           &(struct kvr_api_error){401, "invalid_request_error",
                                   given ? "invalid_api_key" : "missing_api_key", NULL, 0},
           given ? "Incorrect API key provided."
                 : "You did not provide an API key: Authorization: Bearer KEY is expected.");
    return false;
}

static void refuse_for_limit(struct kvr_ingress *ingress, struct kvr_client *client,
                             const struct kvr_submission *submission,
                             const struct kvr_client_key *key, enum kvr_quota_limit limit,
                             uint64_t wait_ns)
{
    static const char *const codes[KVR_QUOTA_LIMITS] = {
        [KVR_QUOTA_CONCURRENCY] = "client_concurrency",
        [KVR_QUOTA_REQUESTS] = "client_requests_per_minute",
        [KVR_QUOTA_PROMPT_TOKENS] = "client_prompt_tokens_per_minute",
    };
    struct kvr_api_error error = {429, "rate_limit_error", codes[limit], NULL, 1};
    char message[256];
    const char *end = "; try again later";
    if (wait_ns == UINT64_MAX) {
        error.retry_after_s = 0;
        end = ", and this prompt alone is longer";
    } else if (wait_ns) {
        error.retry_after_s = (int)((wait_ns + 999999999u) / 1000000000u);
    }
    snprintf(message, sizeof message, "%s of client %s (%llu) is reached%s",
             kvr_quota_limit_name(limit), key->name, (unsigned long long)key->quota.most[limit],
             end);
    refuse(ingress, client, submission, &error, message);
}

/* False: it was refused. */
static bool let_in(struct kvr_ingress *ingress, struct kvr_client *client,
                   const struct kvr_submission *submission, struct kvr_client_key *key)
{
    uint64_t wait_ns;
    double tokens = kvr_router_prompt_tokens(&ingress->router, submission);
    enum kvr_quota_limit limit =
        kvr_quota_enter(&key->quota, kvr_loop_now(), tokens > 0 ? (uint64_t)tokens : 0, &wait_ns);
    if (limit == KVR_QUOTA_OK)
        return true;
    refuse_for_limit(ingress, client, submission, key, limit, wait_ns);
    return false;
}

/* ---- handlers ---- */

/* Reads what there is to read. False: it was refused. */
static bool read_request(struct kvr_ingress *ingress, struct kvr_client *client,
                         const struct kvr_request *request, struct kvr_submission *submission,
                         struct kvr_exchange_terms *terms)
{
    struct kvr_error error = {0};
    if (kvr_ingress_read_body(ingress, request->head, request->body, submission, &error)) {
        ingress->counters.bad_bodies++;
        refuse(ingress, client, submission,
               &(struct kvr_api_error){400, "invalid_request_error", "invalid_json", NULL, 0},
               error.text);
        return false;
    }
    if (kvr_time_limits_read(&ingress->options.limits, request->head, &terms->limits, &error)) {
        refuse(ingress, client, submission,
               &(struct kvr_api_error){400, "invalid_request_error", "invalid_header", NULL, 0},
               error.text);
        return false;
    }
    return true;
}

void kvr_ingress_on_request(void *context, struct kvr_client *client,
                            const struct kvr_request *request)
{
    struct kvr_ingress *ingress = context;
    struct kvr_submission submission;
    struct kvr_exchange_terms terms;
    char room[32];
    if (kvr_local_health(ingress, client, request))
        return;
    describe(ingress, request->head, &submission, room, sizeof room);
    if (!authenticate(ingress, client, request->head, &submission, &terms.key) ||
        kvr_local_models(ingress, client, request) ||
        !read_request(ingress, client, request, &submission, &terms))
        return;
    if (terms.key) {
        submission.client = terms.key->name;
        if (!let_in(ingress, client, &submission, terms.key))
            return;
    }
    kvr_exchange_begin(ingress, client, request, &submission, &terms);
    kvr_router_settle(&ingress->router);
}

bool kvr_ingress_on_head(void *context, struct kvr_client *client, const struct kvr_http_head *head)
{
    struct kvr_ingress *ingress = context;
    struct kvr_submission submission;
    struct kvr_client_key *key;
    char room[32];
    if (!kvr_client_keys_on(&ingress->client_keys))
        return true;
    describe(ingress, head, &submission, room, sizeof room);
    return authenticate(ingress, client, head, &submission, &key);
}

void kvr_ingress_on_refused(void *context, struct kvr_client *client,
                            const struct kvr_http_head *head, enum kvr_refusal refusal)
{
    struct kvr_ingress *ingress = context;
    struct kvr_submission submission;
    char room[32];
    (void)client;
    if (!head)
        return;
    const struct kvr_refusal_answer *answer = kvr_refusal_answer(refusal);
    describe(ingress, head, &submission, room, sizeof room);
    kvr_ingress_refused(ingress, &submission, answer->status, answer->code);
}
