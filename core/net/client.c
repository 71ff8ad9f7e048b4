#include "client.h"

#include <string.h>

#include "check.h"
#include "client_body.h"
#include "client_refusal.h"
#include "client_request.h"
#include "listener.h"
#include "memory.h"

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
            kvr_client_take(client, data, len);
            return;
        }
        kvr_buffer_append(&client->in, data, len);
        break;
    }
    kvr_client_take_kept(client);
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
        kvr_client_take_kept(client);
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
