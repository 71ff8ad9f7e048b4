#include "listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "address.h"
#include "check.h"
#include "listener_sweep.h"
#include "log.h"

#define SWEEP_MS      250
#define COMPLAIN_NS   1000000000u /* between two log lines of one kind */
#define KEPT_NS       1000000000u /* an idle connection, before it must make room */
#define RESERVE_SHARE 16 /* of all descriptors are kept from clients: replicas need them, too */
#define BACKLOG       1024

static const struct kvr_listener_options default_options = {
    .connections_max = 16384,
    .header_bytes_max = 65536,
    .header_count_max = KVR_HTTP_HEADERS_MAX,
    .body_bytes_max = 32u << 20,
    .bodies_total_max = 1ull << 30,
    .idle_ns = 75000000000u,
    .request_ns = 30000000000u,
    .write_stall_ns = 30000000000u,
};

/* A new client is worth more than one that only keeps its connection open. */
static bool make_room(struct kvr_listener *listener)
{
    uint64_t now = kvr_loop_now();
    KVR_LIST_FOREACH (link, &listener->idle) {
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        if (now - client->since_ns < KEPT_NS)
            return false;
        if (kvr_client_unsent(client) || client->stream.read) /* ... or its next request is here */
            continue;
        listener->counters.made_room++;
        kvr_client_close(client);
        return true;
    }
    return false;
}

bool kvr_listener_has_room(struct kvr_listener *listener, int fd)
{
    uint32_t most = listener->options.descriptors_max;
    /* The lowest free number is given: it tells how many are in use, without a call. */
    if (most && fd >= 0 && (uint32_t)fd >= most - most / RESERVE_SHARE) {
        listener->counters.out_of_descriptors++;
        (void)make_room(listener); /* for the next one */
        return false;
    }
    if (listener->connections <= listener->options.connections_max)
        return true;
    listener->counters.out_of_connections++;
    return make_room(listener);
}

static void complain(struct kvr_listener *listener, int status)
{
    listener->counters.refused_connections++;
    listener->counters.out_of_descriptors += status == UV_EMFILE || status == UV_ENFILE;
    uint64_t now = kvr_loop_now();
    if (listener->complained_ns && now - listener->complained_ns < COMPLAIN_NS)
        return;
    listener->complained_ns = now;
    kvr_log(KVR_LOG_WARN, "accept failed on %s: %s", listener->address, uv_strerror(status));
}

static void on_connection(uv_stream_t *server, int status)
{
    struct kvr_listener *listener = server->data;
    if (status >= 0)
        kvr_client_accept(listener, -1);
    else
        complain(listener, status);
}

/* Whoever has connected by now and was not accepted yet: no more than can wait. */
static void accept_waiting(struct kvr_listener *listener)
{
    int server = -1;
    KVR_CHECK(uv_fileno((uv_handle_t *)&listener->tcp, &server) == 0);
    for (int i = 0; i <= BACKLOG; i++) {
        int fd = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            kvr_client_accept(listener, fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                complain(listener, uv_translate_sys_error(errno));
            return;
        }
    }
}

static void describe_bound(struct kvr_listener *listener)
{
    struct sockaddr_storage bound;
    int len = sizeof bound;
    KVR_CHECK(uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&bound, &len) == 0);
    kvr_address_name(&bound, listener->address, sizeof listener->address);
}

/* Listens, and accepts unless it is to wait with that. */
static int listen_on(struct kvr_listener *listener, const char *address,
                     const struct sockaddr_storage *bind_to)
{
    int fd = kvr_address_descriptor(address);
    listener->handed = fd >= 0;
    int rc = listener->handed ? uv_tcp_open(&listener->tcp, fd)
                              : uv_tcp_bind(&listener->tcp, (const struct sockaddr *)bind_to, 0);
    if (rc)
        return rc;
    if (!listener->options.waits)
        return uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    /* That an address is in use, libuv tells only after the bind. */
    struct sockaddr_storage bound;
    int len = sizeof bound;
    rc = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&bound, &len);
    if (rc)
        return rc;
    KVR_CHECK(uv_fileno((uv_handle_t *)&listener->tcp, &fd) == 0);
    return listen(fd, BACKLOG) == 0 ? 0 : uv_translate_sys_error(errno);
}

void kvr_listener_open(struct kvr_listener *listener)
{
    KVR_CHECK(listener->listening && listener->options.waits);
    listener->options.waits = false;
    int rc = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, on_connection);
    if (rc)
        complain(listener, rc);
}

static void on_sweep(uv_timer_t *timer)
{
    kvr_listener_sweep(timer->data, kvr_loop_now());
}

#define DEFAULT_OPTION(name)                                                                       \
    if (listener->options.name == 0)                                                               \
    listener->options.name = default_options.name

int kvr_listener_start(struct kvr_listener *listener, struct kvr_loop *loop, const char *address,
                       const struct kvr_handler *handler,
                       const struct kvr_listener_options *options, struct kvr_error *error)
{
    struct sockaddr_storage bind_to;
    int rc = kvr_address_parse(address, &bind_to, error);
    if (rc)
        return rc;
    memset(listener, 0, sizeof *listener);
    listener->loop = loop;
    listener->handler = *handler;
    listener->options = options ? *options : default_options;
    DEFAULT_OPTION(connections_max);
    DEFAULT_OPTION(header_bytes_max);
    DEFAULT_OPTION(header_count_max);
    DEFAULT_OPTION(body_bytes_max);
    DEFAULT_OPTION(bodies_total_max);
    DEFAULT_OPTION(idle_ns);
    DEFAULT_OPTION(request_ns);
    DEFAULT_OPTION(write_stall_ns);
    listener->held_total =
        listener->options.held_total ? listener->options.held_total : &listener->own_total;
    kvr_list_init(&listener->idle);
    kvr_list_init(&listener->receiving);
    kvr_list_init(&listener->answering);
    kvr_list_init(&listener->leaving);
    KVR_CHECK(uv_tcp_init(loop->uv, &listener->tcp) == 0);
    KVR_CHECK(uv_timer_init(loop->uv, &listener->sweep) == 0);
    listener->tcp.data = listener;
    listener->sweep.data = listener;
    rc = listen_on(listener, address, &bind_to);
    if (rc) {
        uv_close((uv_handle_t *)&listener->tcp, NULL);
        uv_close((uv_handle_t *)&listener->sweep, NULL);
        return kvr_error_set(error, KVR_E_IO, "cannot listen on %s: %s", address, uv_strerror(rc));
    }
    listener->listening = true;
    describe_bound(listener);
    KVR_CHECK(uv_timer_start(&listener->sweep, on_sweep, SWEEP_MS, SWEEP_MS) == 0);
    return 0;
}

static void stop_listening(struct kvr_listener *listener)
{
    listener->stopping = true;
    if (listener->listening)
        uv_close((uv_handle_t *)&listener->tcp, NULL);
    listener->listening = false;
}

void kvr_listener_stop(struct kvr_listener *listener)
{
    if (listener->listening && !listener->handed)
        accept_waiting(listener);
    stop_listening(listener);
    KVR_LIST_FOREACH (link, &listener->answering)
        KVR_LIST_ENTRY(link, struct kvr_client, link)->keep_alive = false;
    kvr_listener_dismiss_idle(listener, kvr_loop_now());
}

bool kvr_listener_parting(const struct kvr_listener *listener)
{
    return listener->stopping && !kvr_list_empty(&listener->idle);
}

uint32_t kvr_listener_unfinished(const struct kvr_listener *listener)
{
    uint32_t count = 0;
    KVR_LIST_FOREACH (link, &listener->receiving)
        count++;
    KVR_LIST_FOREACH (link, &listener->leaving)
        count += kvr_client_unsent(KVR_LIST_ENTRY(link, struct kvr_client, link)) > 0;
    return count;
}

void kvr_listener_close(struct kvr_listener *listener)
{
    stop_listening(listener);
    if (!uv_is_closing((uv_handle_t *)&listener->sweep))
        uv_close((uv_handle_t *)&listener->sweep, NULL);
    KVR_LIST_FOREACH (link, &listener->idle)
        kvr_client_dismiss(KVR_LIST_ENTRY(link, struct kvr_client, link));
    KVR_LIST_FOREACH (link, &listener->leaving) {
        /* The kernel goes on sending what it has; a reset would take that back. */
        struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
        if (kvr_client_unsent(client) == 0)
            kvr_client_close(client);
    }
    kvr_listener_lose(listener, &listener->answering);
    struct kvr_list *lists[] = {&listener->receiving, &listener->leaving};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        KVR_LIST_FOREACH (link, lists[i])
            kvr_client_abort(KVR_LIST_ENTRY(link, struct kvr_client, link));
    }
}

bool kvr_listener_closed(const struct kvr_listener *listener)
{
    return listener->connections == 0;
}
