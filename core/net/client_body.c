#include "client_body.h"

#include <string.h>

#include "check.h"
#include "client_refusal.h"
#include "listener.h"

/* Unchunks data[0..len) behind what client->in holds; `data` may lie further on in it. Returns how
 * many bytes were used, or a negative code after a refusal. */
static int64_t take_chunked(struct kvr_client *client, const char *data, size_t len)
{
    size_t used = 0;
    while (used < len && !kvr_chunked_done(&client->chunked)) {
        struct kvr_slice piece;
        int64_t n = kvr_chunked_next(&client->chunked, data + used, len - used, &piece);
        if (n < 0) {
            kvr_client_refuse(client, NULL, KVR_REFUSE_MALFORMED, NULL);
            return n;
        }
        used += (size_t)n;
        client->body_size += piece.len;
        if (client->body_size > client->listener->options.body_bytes_max) {
            kvr_client_refuse(client, NULL, KVR_REFUSE_BODY_BYTES, NULL);
            return KVR_E_LIMIT;
        }
        char *to = client->in.data + client->head_size + client->body_size - piece.len;
        if (piece.len && to != piece.data)
            memmove(to, piece.data, piece.len);
    }
    return (int64_t)used;
}

/* In a chunked body, client->in is [head][payload so far][raw bytes]: makes of them what can be. */
void kvr_client_advance_chunked(struct kvr_client *client, size_t raw_at)
{
    int64_t used = take_chunked(client, client->in.data + raw_at, client->in.len - raw_at);
    if (used < 0)
        return;
    size_t end = client->head_size + client->body_size;
    size_t rest = client->in.len - raw_at - (size_t)used;
    memmove(client->in.data + end, client->in.data + raw_at + used, rest);
    client->in.len = end + rest;
    kvr_client_account(client);
    if (!kvr_client_fits(client, 0)) {
        kvr_client_refuse(client, NULL, KVR_REFUSE_BODIES_TOTAL, NULL);
        return;
    }
    if (!kvr_chunked_done(&client->chunked))
        return;
    struct kvr_error error;
    int rc =
        kvr_http_parse_request(client->in.data, client->head_size, &client->listener->head, &error);
    KVR_CHECK(rc == 0);
    kvr_client_deliver_owned(client, end);
}

void kvr_client_advance_sized(struct kvr_client *client)
{
    size_t have = client->in.len - client->head_size;
    if (have < client->body_left)
        return;
    struct kvr_error error;
    int rc =
        kvr_http_parse_request(client->in.data, client->head_size, &client->listener->head, &error);
    KVR_CHECK(rc == 0);
    kvr_client_deliver_owned(client, client->head_size + (size_t)client->body_left);
}

bool kvr_client_fits(const struct kvr_client *client, uint64_t more)
{
    const struct kvr_listener *listener = client->listener;
    return *listener->held_total + more <= listener->options.bodies_total_max;
}

/* May the body of this head come? Its handler may refuse it too, and has then answered. */
static bool is_welcome(struct kvr_client *client, const struct kvr_http_head *head)
{
    struct kvr_listener *listener = client->listener;
    uint64_t wanted = head->has_length ? head->content_length : 0;
    if (wanted > listener->options.body_bytes_max) {
        kvr_client_refuse(client, head, KVR_REFUSE_BODY_BYTES, NULL);
        return false;
    }
    if (!kvr_client_fits(client, wanted)) {
        kvr_client_refuse(client, head, KVR_REFUSE_BODIES_TOTAL, NULL);
        return false;
    }
    if (!listener->handler.on_head)
        return true;
    client->keep_alive = false; /* what follows an answer now is a body that nobody reads */
    client->http10 = head->minor == 0;
    client->head_only = kvr_slice_is(head->method, "HEAD");
    return listener->handler.on_head(listener->handler.context, client, head);
}

/* A head is there and its body is not: keep what came and wait. */
void kvr_client_begin_body(struct kvr_client *client, const char *data, size_t len, bool owned)
{
    const struct kvr_http_head *head = &client->listener->head;
    uint64_t wanted = head->has_length ? head->content_length : 0;
    if (!is_welcome(client, head))
        return;
    client->head_size = head->size;
    client->body_left = wanted;
    client->body_is_chunked = head->chunked;
    client->chunked = (struct kvr_chunked){0};
    client->body_size = 0;
    if (!owned)
        kvr_buffer_append(&client->in, data, len);
    if (head->has_length)
        kvr_buffer_reserve(&client->in, head->size + (size_t)wanted - client->in.len);
    kvr_client_enter(client, KVR_CLIENT_BODY);
    kvr_client_account(client);
    if (head->expect_continue && head->minor == 1 && client->in.len == head->size) {
        uv_buf_t go_on = uv_buf_init((char *)"HTTP/1.1 100 Continue\r\n\r\n", 25);
        kvr_stream_write(&client->stream, &go_on, 1);
    }
    if (client->body_is_chunked)
        kvr_client_advance_chunked(client, head->size);
}
