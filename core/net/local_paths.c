#include "local_paths.h"

static bool is_read(const struct kvr_http_head *head)
{
    return kvr_slice_is(head->method, "GET") || kvr_slice_is(head->method, "HEAD");
}

static void answer_ready(struct kvr_ingress *ingress, struct kvr_client *client)
{
    const struct kvr_replica_table *replicas = &ingress->router.replicas;
    bool ready = false;
    for (uint32_t i = 0; i < replicas->end; i++)
        ready |= kvr_replica_in_rotation(&replicas->slots[i]);
    bool open = ready && !ingress->leaving;
    kvr_client_reply(client, open ? 200 : 503, kvr_slice_of(""), kvr_slice_of("text/plain"),
                     kvr_slice_of(open               ? "ready\n"
                                  : ingress->leaving ? "draining\n"
                                                     : "no replica in rotation\n"));
}

static void answer_models(struct kvr_ingress *ingress, struct kvr_client *client)
{
    struct kvr_buffer body = {0};
    kvr_model_list_merged(&ingress->model_list, &body);
    kvr_client_reply(client, 200, kvr_slice_of(""), kvr_slice_of("application/json"),
                     kvr_buffer_slice(&body));
    kvr_buffer_deinit(&body);
}

bool kvr_local_health(struct kvr_ingress *ingress, struct kvr_client *client,
                      const struct kvr_request *request)
{
    const struct kvr_http_head *head = request->head;
    if (kvr_slice_is(head->path, "/healthz") && is_read(head))
        kvr_client_reply(client, 200, kvr_slice_of(""), kvr_slice_of("text/plain"),
                         kvr_slice_of("ok\n"));
    else if (kvr_slice_is(head->path, "/readyz") && is_read(head))
        answer_ready(ingress, client);
    else
        return false;
    return true;
}

bool kvr_local_models(struct kvr_ingress *ingress, struct kvr_client *client,
                      const struct kvr_request *request)
{
    const struct kvr_http_head *head = request->head;
    if (!kvr_slice_is(head->path, "/v1/models") || !is_read(head))
        return false;
    answer_models(ingress, client);
    return true;
}
