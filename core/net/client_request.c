#include "client_request.h"

#include "client_body.h"
#include "client_refusal.h"
#include "listener.h"

/* Hands one whole request over. `owned`: its bytes lie at the start of client->in. */
static void deliver(struct kvr_client *client, const char *data, size_t head_size, size_t body_size,
                    bool owned)
{
    struct kvr_listener *listener = client->listener;
    struct kvr_http_head *head = &listener->head;
    client->keep_alive = head->keep_alive && !listener->stopping;
    client->head_only = kvr_slice_is(head->method, "HEAD");
    client->http10 = head->minor == 0;
    client->user = NULL;
    client->stalled = 0;
    kvr_client_enter(client, KVR_CLIENT_ANSWERING);
    struct kvr_request request = {
        .head = head,
        .head_bytes = kvr_slice_make(data, head_size),
        .body = kvr_slice_make(data + head_size, body_size),
        .owned = owned ? &client->in : NULL,
    };
    client->in_handler = true;
    listener->handler.on_request(listener->handler.context, client, &request);
    client->in_handler = false;
}

/* Same, for a request that fills client->in up to `used`; what follows is kept for the next. */
void kvr_client_deliver_owned(struct kvr_client *client, size_t used)
{
    struct kvr_buffer rest = {0};
    kvr_buffer_append(&rest, client->in.data + used, client->in.len - used);
    client->in.len = used;
    deliver(client, client->in.data, client->head_size, used - client->head_size, true);
    if (client->stream.closing) {
        kvr_buffer_deinit(&rest);
        return;
    }
    kvr_buffer_deinit(&client->in); /* nothing, if the handler took it */
    client->in = rest;
    client->scanned = 0;
    kvr_client_account(client);
}

/* Parses the head at the start of data. Returns its size, 0 to wait, negative after a refusal. */
static int64_t take_head(struct kvr_client *client, const char *data, size_t len)
{
    struct kvr_listener *listener = client->listener;
    struct kvr_error error = {0};
    /* The short way once a head: what trickles in is looked at from where the last look ended. */
    bool first = client->scanned == 0;
    int64_t size = first ? (int64_t)kvr_http_plain_request(data, len, &listener->head) : 0;
    bool plain = size > 0;
    if (!plain)
        size = kvr_http_find_head(data, len, &client->scanned, &error);
    size_t seen = size > 0 ? (size_t)size : len;
    if (size >= 0 && seen > listener->options.header_bytes_max) {
        kvr_client_refuse(client, NULL, KVR_REFUSE_HEADER_BYTES, NULL);
        return KVR_E_LIMIT;
    }
    int rc = size > 0 ? 0 : (int)size;
    if (size > 0 && !plain)
        rc = kvr_http_parse_request(data, (size_t)size, &listener->head, &error);
    if (rc == 0 && size > 0 && listener->head.count > listener->options.header_count_max)
        rc = KVR_E_LIMIT;
    if (rc == KVR_E_LIMIT) {
        kvr_client_refuse(client, NULL, KVR_REFUSE_HEADER_COUNT, NULL);
        return rc;
    }
    if (rc < 0) {
        kvr_client_refuse(client, NULL, KVR_REFUSE_MALFORMED, error.text);
        return rc;
    }
    if (size > 0 && listener->head.expect_other && listener->head.minor == 1) {
        kvr_client_refuse(client, &listener->head, KVR_REFUSE_EXPECT, NULL);
        return KVR_E_INVALID;
    }
    return size;
}

/* Takes one request, or a part, from the start of data. Returns the bytes used up; 0 when the rest
 * must wait (it is kept in client->in by then). */
static size_t take_one(struct kvr_client *client, char *data, size_t len, bool owned)
{
    int64_t size = take_head(client, data, len);
    if (size < 0)
        return 0;
    if (size == 0) {
        if (!owned)
            kvr_buffer_append(&client->in, data, len);
        kvr_client_enter(client, KVR_CLIENT_HEAD);
        kvr_client_account(client);
        return 0;
    }
    client->scanned = 0;
    const struct kvr_http_head *head = &client->listener->head;
    uint64_t body = head->has_length ? head->content_length : 0;
    if (head->chunked || body > len - (size_t)size ||
        body > client->listener->options.body_bytes_max) { /* refused there, also when it is here */
        kvr_client_begin_body(client, data, len, owned);
        return 0;
    }
    client->head_size = (size_t)size;
    size_t used = (size_t)size + (size_t)body;
    if (!kvr_client_fits(client, owned ? 0 : used)) {
        kvr_client_refuse(client, head, KVR_REFUSE_BODIES_TOTAL, NULL);
        return 0;
    }
    if (owned)
        kvr_client_deliver_owned(client, used);
    else
        deliver(client, data, (size_t)size, (size_t)body, false);
    return used;
}

/* Blank lines before a request are allowed and mean nothing (RFC 9112, 2.2). */
static size_t skip_blank_lines(const char *data, size_t len)
{
    size_t skip = 0;
    while (skip + 1 < len && data[skip] == '\r' && data[skip + 1] == '\n')
        skip += 2;
    return skip;
}

void kvr_client_take(struct kvr_client *client, char *data, size_t len)
{
    while (len && client->state == KVR_CLIENT_HEAD && client->in.len == 0) {
        size_t skip = skip_blank_lines(data, len);
        data += skip;
        len -= skip;
        size_t used = len ? take_one(client, data, len, false) : 0;
        if (used == 0) {
            kvr_client_take_kept(client); /* a chunked body may have ended before the bytes did */
            return;
        }
        if (client->stream.closing)
            return;
        data += used;
        len -= used;
    }
    if (len && !client->stream.closing && client->state != KVR_CLIENT_LEAVING) {
        kvr_buffer_append(&client->in, data, len);
        kvr_client_account(client);
    }
}

void kvr_client_take_kept(struct kvr_client *client)
{
    while (client->in.len && client->state == KVR_CLIENT_HEAD && !client->stream.closing) {
        size_t skip = client->scanned ? 0 : skip_blank_lines(client->in.data, client->in.len);
        kvr_buffer_consume(&client->in, skip);
        size_t before = client->in.len;
        if (before == 0) {
            kvr_client_enter(client, KVR_CLIENT_HEAD); /* it is idle again, not slow */
            kvr_client_account(client);
            return;
        }
        size_t used = take_one(client, client->in.data, before, true);
        /* A chunked body that is whole counts as not used up, but is gone from the buffer. */
        if (used == 0 && client->in.len == before)
            return;
    }
}
