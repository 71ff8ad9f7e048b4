/* The answers of client.h that are made here, as against relayed: heads, framing, errors. */
#include "client.h"
#include "json_writer.h"
#include "listener.h"

static void put_head(const struct kvr_client *client, struct kvr_buffer *out, uint16_t status,
                     struct kvr_slice headers, struct kvr_slice content_type)
{
    kvr_buffer_printf(out, "HTTP/1.1 %u %s\r\n", status, kvr_http_phrase(status));
    if (content_type.len)
        kvr_buffer_printf(out, "Content-Type: %.*s\r\n", (int)content_type.len, content_type.data);
    kvr_buffer_append_slice(out, headers);
    if (client->listener->options.headers)
        kvr_buffer_append_text(out, client->listener->options.headers);
    if (!client->keep_alive)
        kvr_buffer_append_text(out, "Connection: close\r\n");
    else if (client->http10)
        kvr_buffer_append_text(out, "Connection: keep-alive\r\n");
}

void kvr_client_reply(struct kvr_client *client, uint16_t status, struct kvr_slice headers,
                      struct kvr_slice content_type, struct kvr_slice body)
{
    if (client->stream.closing)
        return;
    struct kvr_buffer out = {0};
    put_head(client, &out, status, headers, content_type);
    kvr_buffer_printf(&out, "Content-Length: %zu\r\n\r\n", body.len);
    uv_buf_t bufs[2] = {uv_buf_init(out.data, (unsigned)out.len),
                        uv_buf_init((char *)body.data, (unsigned)body.len)};
    kvr_stream_write(&client->stream, bufs, client->head_only ? 1 : 2);
    kvr_buffer_deinit(&out);
    kvr_client_relayed(client, client->keep_alive);
}

void kvr_client_start(struct kvr_client *client, uint16_t status, struct kvr_slice headers,
                      struct kvr_slice content_type)
{
    if (client->stream.closing)
        return;
    struct kvr_buffer out = {0};
    client->framing_chunked = !client->http10;
    if (client->http10)
        client->keep_alive = false; /* its end is the end of the connection */
    put_head(client, &out, status, headers, content_type);
    kvr_buffer_append_text(&out, client->http10 ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
    uv_buf_t buf = uv_buf_init(out.data, (unsigned)out.len);
    kvr_stream_write(&client->stream, &buf, 1);
    kvr_buffer_deinit(&out);
}

void kvr_client_send(struct kvr_client *client, struct kvr_slice piece)
{
    if (piece.len == 0 || client->head_only || client->stream.closing)
        return;
    char size[24];
    size_t at = sizeof size;
    size[--at] = '\n';
    size[--at] = '\r';
    for (size_t left = piece.len; left; left >>= 4)
        size[--at] = "0123456789abcdef"[left & 15];
    uv_buf_t bufs[3] = {uv_buf_init(size + at, (unsigned)(sizeof size - at)),
                        uv_buf_init((char *)piece.data, (unsigned)piece.len),
                        uv_buf_init((char *)"\r\n", 2)};
    if (client->framing_chunked)
        kvr_stream_write(&client->stream, bufs, 3);
    else
        kvr_stream_write(&client->stream, bufs + 1, 1);
}

void kvr_client_finish(struct kvr_client *client)
{
    if (client->stream.closing)
        return;
    uv_buf_t last = uv_buf_init((char *)"0\r\n\r\n", 5);
    if (client->framing_chunked && !client->head_only)
        kvr_stream_write(&client->stream, &last, 1);
    kvr_client_relayed(client, client->keep_alive);
}

void kvr_client_error(struct kvr_client *client, const struct kvr_api_error *error,
                      struct kvr_slice headers, const char *message)
{
    struct kvr_buffer body = {0};
    struct kvr_json_writer json = {.out = &body};
    kvr_json_object_begin(&json, NULL);
    kvr_json_object_begin(&json, "error");
    kvr_json_text(&json, "message", message);
    kvr_json_text(&json, "type", error->type);
    if (error->param)
        kvr_json_text(&json, "param", error->param);
    else
        kvr_json_null(&json, "param");
    kvr_json_text(&json, "code", error->code);
    kvr_json_object_end(&json);
    kvr_json_object_end(&json);
    struct kvr_buffer lines = {0};
    kvr_buffer_append_slice(&lines, headers);
    if (error->retry_after_s > 0)
        kvr_buffer_printf(&lines, "Retry-After: %d\r\n", error->retry_after_s);
    kvr_client_reply(client, error->status, kvr_buffer_slice(&lines),
                     kvr_slice_of("application/json"), kvr_buffer_slice(&body));
    kvr_buffer_deinit(&lines);
    kvr_buffer_deinit(&body);
}
