#include "listener_sweep.h"

#include "client_refusal.h"

#define LINGER_NS 2000000000u /* how long a client may stay after its last answer has gone out */

static void close_idle(struct kvr_listener *listener, uint64_t now)
{
    KVR_LIST_FOREACH (link, &listener->idle) {
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        if (now - client->since_ns < listener->options.idle_ns)
            return; /* the list is in order of age */
        listener->counters.timed_out++;
        listener->counters.idle++;
        kvr_client_close(client);
    }
}

void kvr_listener_dismiss_idle(struct kvr_listener *listener, uint64_t now)
{
    KVR_LIST_FOREACH (link, &listener->idle) {
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        if (now - client->since_ns < listener->options.parting_ns)
            return;
        kvr_stream_read(&client->stream);
        bool idle = client->state == KVR_CLIENT_HEAD && !client->receiving;
        if (idle && !client->stream.closing)
            kvr_client_dismiss(client);
    }
}

/* A trickle holds a connection, a steady stream of a large body does not: what has come buys time
 * for the rest. */
static void refuse_slow(struct kvr_listener *listener, uint64_t now)
{
    uint64_t limit_ns = listener->options.request_ns;
    KVR_LIST_FOREACH (link, &listener->receiving) {
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        uint64_t bought_ns = (uint64_t)client->in.len * (1000000000u / KVR_SLOWEST_BYTES);
        uint64_t age_ns = now - client->since_ns;
        if (age_ns < limit_ns)
            return;
        if (age_ns < limit_ns + bought_ns)
            continue;
        listener->counters.timed_out++;
        listener->counters.slow++;
        kvr_client_refuse(client, NULL, KVR_REFUSE_SLOW, NULL);
    }
}

/* A reader that takes nothing holds our memory, and maybe an engine's slot. */
static bool is_stalled(struct kvr_client *client, size_t unsent, uint64_t now)
{
    if (unsent == 0 || unsent != client->stalled) {
        client->stalled = unsent;
        client->since_ns = now;
        return false;
    }
    return now - client->since_ns >= client->listener->options.write_stall_ns;
}

void kvr_listener_lose(struct kvr_listener *listener, struct kvr_list *list)
{
    while (!kvr_list_empty(list)) {
        struct kvr_client *client = KVR_LIST_ENTRY(list->next, struct kvr_client, link);
        listener->handler.on_gone(listener->handler.context, client);
        kvr_client_abort(client);
    }
}

/* Also those that have left while we did not read them, for all that they had sent ahead. What the
 * going of one lets happen may move any other to another list, so they are picked out before the
 * first goes. */
static void cut_stalled(struct kvr_listener *listener, uint64_t now)
{
    struct kvr_list stalled;
    kvr_list_init(&stalled);
    KVR_LIST_FOREACH (link, &listener->answering) {
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        bool left = client->stream.paused && kvr_stream_peer_left(&client->stream);
        if (!left && !is_stalled(client, kvr_client_unsent(client), now))
            continue;
        listener->counters.timed_out += !left;
        listener->counters.stalled += !left;
        kvr_list_remove(&client->link);
        kvr_list_append(&stalled, &client->link);
    }
    kvr_listener_lose(listener, &stalled);
}

/* A slow reader gets all of its last answer; then the connection may stay only a little. */
static void see_off(struct kvr_listener *listener, uint64_t now)
{
    KVR_LIST_FOREACH (link, &listener->leaving) {
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        size_t unsent = kvr_client_unsent(client);
        if (unsent ? !is_stalled(client, unsent, now) : now - client->since_ns < LINGER_NS)
            continue;
        listener->counters.timed_out++;
        listener->counters.stalled += unsent > 0;
        if (unsent)
            kvr_client_abort(client);
        else
            kvr_client_close(client);
    }
}

void kvr_listener_sweep(struct kvr_listener *listener, uint64_t now)
{
    if (listener->stopping)
        kvr_listener_dismiss_idle(listener, now);
    close_idle(listener, now);
    refuse_slow(listener, now);
    cut_stalled(listener, now);
    see_off(listener, now);
}
