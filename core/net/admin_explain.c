/* POST /admin/explain: what would happen to a request, as router/explain.h says it. */
#include "admin_call.h"
#include "explain.h"

#define PATH_DEFAULT "/v1/chat/completions"

/* A head as a client would have sent it, as far as routing looks at heads. The ingress's scratch
 * for requests that are read again has room for it. */
static const struct kvr_http_head *make_head(struct kvr_admin_call *call)
{
    struct kvr_http_head *head = &call->ingress->retry_head;
    const struct kvr_admin_body *body = call->body;
    struct kvr_slice path = body->path.len ? body->path : kvr_slice_of(PATH_DEFAULT);
    const char *query = memchr(path.data, '?', path.len);
    _Static_assert(KVR_ADMIN_HEADERS_MAX <= KVR_HTTP_HEADERS_MAX, "a head has room for them");
    *head = (struct kvr_http_head){
        .method = kvr_slice_of("POST"),
        .target = path,
        .path = kvr_slice_make(path.data, query ? (size_t)(query - path.data) : path.len),
        .count = body->headers_count,
    };
    for (uint32_t i = 0; i < body->headers_count; i++) {
        head->headers[i] = body->headers[i];
        head->name_lengths |= kvr_http_length_bit(body->headers[i].name.len);
    }
    return head;
}

void kvr_admin_explain(struct kvr_admin_call *call)
{
    struct kvr_ingress *ingress = call->ingress;
    struct kvr_submission submission;
    struct kvr_error error = {0};
    const struct kvr_http_head *head = make_head(call);
    if (kvr_ingress_read(ingress, head, call->body->body, &submission, &error)) {
        kvr_admin_refuse(call, 400, "invalid_value", "body", "body: %s", error.text);
        return;
    }
    submission.received_ns = call->now_ns;
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_string(&json, "path", head->path);
    kvr_router_explain(&ingress->router, call->now_ns, &submission, &json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}
