#include "client.h"

#include <string.h>

#include "check.h"
#include "client_body.h"
#include "client_refusal.h"
#include "listener.h"
#include "memory.h"

static void take_kept_requests(struct kvr_client *client);

static struct kvr_client *client_of(struct kvr_stream *stream)
{
    return KVR_LIST_ENTRY(stream, struct kvr_client, stream);
}

/* The only writer of `state`: a state is a list of the listener. */
void kvr_client_enter(struct kvr_client *client, enum kvr_client_state state)
{
    struct kvr_listener *listener = client->listener;
    bool receiving = state == KVR_CLIENT_BODY || (state == KVR_CLIENT_HEAD && client->in.len);
    struct kvr_list *list = state == KVR_CLIENT_ANSWERING ? &listener->answering
                            : state == KVR_CLIENT_LEAVING ? &listener->leaving
                            : receiving                   ? &listener->receiving
                                                          : &listener->idle;
    bool goes_on = receiving && client->receiving;
    client->state = state;
    client->receiving = receiving;
    if (goes_on)
        return; /* its time runs from the first byte, however many more come one by one */
    kvr_list_remove(&client->link);
    kvr_list_append(list, &client->link);
    client->since_ns = kvr_loop_coarse(listener->loop);
}

/* Counts the client's buffer in the listener's total; frees it when it is empty. */
void kvr_client_account(struct kvr_client *client)
{
    if (client->in.len == 0 && client->in.data && client->state != KVR_CLIENT_BODY)
        kvr_buffer_deinit(&client->in);
    client->listener->held_bytes += client->in.capacity - client->held;
    *client->listener->held_total += client->in.capacity - client->held;
    client->held = client->in.capacity;
}

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

/* Takes all requests that are whole, from bytes that are not in client->in. */
static void take_requests(struct kvr_client *client, char *data, size_t len)
{
    while (len && client->state == KVR_CLIENT_HEAD && client->in.len == 0) {
        size_t skip = skip_blank_lines(data, len);
        data += skip;
        len -= skip;
        size_t used = len ? take_one(client, data, len, false) : 0;
        if (used == 0) {
            take_kept_requests(client); /* a chunked body may have ended before the bytes did */
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

/* Same, from client->in, which grew or whose request was answered. */
static void take_kept_requests(struct kvr_client *client)
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

/* One request ahead may wait behind the one being answered. */
static void limit_pipeline(struct kvr_client *client)
{
    if (client->in.len > client->listener->options.header_bytes_max)
        kvr_stream_pause(&client->stream);
}

static size_t on_space(struct kvr_stream *stream, char **memory)
{
    struct kvr_client *client = client_of(stream);
    if (client->state != KVR_CLIENT_BODY || client->body_is_chunked)
        return 0;
    size_t left = client->head_size + (size_t)client->body_left - client->in.len;
    *memory = kvr_buffer_reserve(&client->in, left);
    return left;
}

/* Bytes of a body whose length is known: read into place, or before that was asked for, while the
 * request before it was answered. */
static void take_sized(struct kvr_client *client, const char *data, size_t len)
{
    if (data == client->in.data + client->in.len)
        client->in.len += len;
    else
        kvr_buffer_append(&client->in, data, len);
    kvr_client_advance_sized(client);
}

static void on_data(struct kvr_stream *stream, char *data, size_t len)
{
    struct kvr_client *client = client_of(stream);
    switch (client->state) {
    case KVR_CLIENT_LEAVING:
        return;
    case KVR_CLIENT_ANSWERING:
        kvr_buffer_append(&client->in, data, len);
        kvr_client_account(client);
        limit_pipeline(client);
        return;
    case KVR_CLIENT_BODY:
        if (client->body_is_chunked) {
            size_t raw_at = client->in.len;
            kvr_buffer_append(&client->in, data, len);
            kvr_client_advance_chunked(client, raw_at);
        } else {
            take_sized(client, data, len);
        }
        break;
    case KVR_CLIENT_HEAD:
        if (client->in.len == 0) {
            take_requests(client, data, len);
            return;
        }
        kvr_buffer_append(&client->in, data, len);
        break;
    }
    take_kept_requests(client);
}

static void on_end(struct kvr_stream *stream, int uv_code)
{
    (void)uv_code;
    struct kvr_client *client = client_of(stream);
    struct kvr_listener *listener = client->listener;
    if (client->state == KVR_CLIENT_ANSWERING)
        listener->handler.on_gone(listener->handler.context, client);
    kvr_client_close(client);
}

static void leave(struct kvr_client *client)
{
    /* What it has sent ahead is passed over: unread, it would be a reset; and its end is heard. */
    kvr_stream_resume(&client->stream);
    kvr_stream_flush(&client->stream);
    if (kvr_client_unsent(client) || client->stream.closing)
        return;
    /* FIN first: a close with unread bytes would reset what the client has not read yet. The sweep
     * closes it if it never does, some time from now. */
    client->since_ns = kvr_loop_coarse(client->listener->loop);
    int fd;
    if (uv_fileno((uv_handle_t *)&client->stream.tcp, &fd) == 0)
        shutdown(fd, SHUT_WR);
}

static void on_drained(struct kvr_stream *stream)
{
    struct kvr_client *client = client_of(stream);
    if (client->state == KVR_CLIENT_LEAVING)
        leave(client);
    else if (client->listener->handler.on_drained)
        client->listener->handler.on_drained(client->listener->handler.context, client);
}

static void on_closed(struct kvr_stream *stream)
{
    struct kvr_client *client = client_of(stream);
    client->listener->connections--;
    client->listener->held_bytes -= client->held;
    *client->listener->held_total -= client->held;
    kvr_buffer_deinit(&client->in);
    kvr_free(client);
}

static const struct kvr_stream_events events = {
    .on_space = on_space,
    .on_data = on_data,
    .on_end = on_end,
    .on_drained = on_drained,
    .on_closed = on_closed,
};

static void read_peer(struct kvr_client *client)
{
    struct sockaddr_storage peer;
    int len = sizeof peer;
    if (uv_tcp_getpeername(&client->stream.tcp, (struct sockaddr *)&peer, &len) == 0)
        uv_ip_name((struct sockaddr *)&peer, client->peer, sizeof client->peer);
    /* An IPv4 client of a socket for both is an IPv4 client. */
    static const char mapped[] = "::ffff:";
    if (strncmp(client->peer, mapped, sizeof mapped - 1) == 0 && strchr(client->peer, '.'))
        memmove(client->peer, client->peer + sizeof mapped - 1,
                strlen(client->peer) - (sizeof mapped - 1) + 1);
}

void kvr_client_accept(struct kvr_listener *listener, int fd)
{
    struct kvr_client *client = kvr_alloc_zero(1, sizeof *client);
    client->listener = listener;
    kvr_list_init(&client->link);
    kvr_stream_init(&client->stream, listener->loop, &events);
    listener->connections++;
    int rc = fd >= 0 ? uv_tcp_open(&client->stream.tcp, fd)
                     : uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)&client->stream.tcp);
    (void)uv_fileno((uv_handle_t *)&client->stream.tcp, &fd);
    if (rc || !kvr_listener_has_room(listener, fd)) {
        listener->counters.refused_connections++;
        kvr_stream_close(&client->stream);
        return;
    }
    listener->counters.accepted++;
    read_peer(client);
    kvr_client_enter(client, KVR_CLIENT_HEAD);
    kvr_stream_start(&client->stream);
}

void kvr_client_close(struct kvr_client *client)
{
    kvr_list_remove(&client->link);
    kvr_stream_close(&client->stream);
}

void kvr_client_dismiss(struct kvr_client *client)
{
    if (kvr_client_unsent(client) == 0) {
        kvr_client_close(client);
        return;
    }
    kvr_client_enter(client, KVR_CLIENT_LEAVING);
    leave(client);
}

void kvr_client_abort(struct kvr_client *client)
{
    kvr_list_remove(&client->link);
    kvr_stream_reset(&client->stream);
}

/* The answer is complete: the next request, or the end of the connection. */
static void answered(struct kvr_client *client, bool keep)
{
    KVR_CHECK(client->state != KVR_CLIENT_LEAVING);
    client->user = NULL;
    if (!keep || client->listener->stopping) {
        kvr_client_enter(client, KVR_CLIENT_LEAVING);
        leave(client);
        return;
    }
    kvr_client_enter(client, KVR_CLIENT_HEAD);
    kvr_client_account(client);
    kvr_stream_resume(&client->stream);
    if (!client->in_handler)
        take_kept_requests(client);
}

void kvr_client_relayed(struct kvr_client *client, bool keep)
{
    if (!client->stream.closing)
        answered(client, keep && client->keep_alive);
}

void kvr_client_relay(struct kvr_client *client, const uv_buf_t *bufs, unsigned count)
{
    kvr_stream_write(&client->stream, bufs, count);
}
