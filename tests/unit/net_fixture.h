/* A loop and peers in it, for tests of core/net. Everything runs in one thread: a test starts
 * something and lets the loop run until a condition holds. */
#ifndef NET_FIXTURE_H
#define NET_FIXTURE_H

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buffer.h"
#include "listener.h"
#include "loop.h"
#include "memory.h"
#include "target.h"

/* The turn that comes will be a busy one, as if the one before had served many sockets. */
static inline void net_make_busy(struct kvr_loop *loop)
{
    loop->served = KVR_LOOP_BUSY;
}

/* Time runs for a test while the machine lets it: a turn of the loop, of which the tick makes one
 * each 5 ms at least, counts for NET_TURN_NS at most. So a machine that stands still breaks no
 * deadline. What the code under test does goes by the clock all the same: "not again" is asserted
 * with intervals of hours, and where a test's point is a time, it is tried until it was calm. */
#define NET_TURN_NS 10000000u
#define NET_CALM_NS 40000000u /* a longer turn: the machine has held it up */

struct net_fixture {
    uv_loop_t uv;
    struct kvr_loop loop;
    uv_timer_t tick; /* so that the loop never sleeps past a deadline */
    uint64_t ran_ns; /* the test's time, see above */
    uint32_t hold_ups;
};

static inline void net_fixture_on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static inline void net_fixture_init(struct net_fixture *fixture)
{
    signal(SIGPIPE, SIG_IGN); /* a peer may write to what the code under test has closed */
    fixture->ran_ns = fixture->hold_ups = 0;
    assert_int_equal(uv_loop_init(&fixture->uv), 0);
    kvr_loop_init(&fixture->loop, &fixture->uv);
    assert_int_equal(uv_timer_init(&fixture->uv, &fixture->tick), 0);
    assert_int_equal(uv_timer_start(&fixture->tick, net_fixture_on_tick, 5, 5), 0);
}

static inline void net_turn(struct net_fixture *fixture, uint64_t *at_ns)
{
    uv_run(&fixture->uv, UV_RUN_ONCE);
    uint64_t now_ns = uv_hrtime();
    uint64_t took_ns = now_ns - *at_ns;
    fixture->ran_ns += took_ns < NET_TURN_NS ? took_ns : NET_TURN_NS;
    fixture->hold_ups += took_ns > NET_CALM_NS;
    *at_ns = now_ns;
}

/* Lets the loop run until *flag is at least `value`; false after `ms` without. */
static inline bool net_run_until(struct net_fixture *fixture, const volatile int *flag, int value,
                                 unsigned ms)
{
    uint64_t deadline = fixture->ran_ns + (uint64_t)ms * 1000000u;
    for (uint64_t at_ns = uv_hrtime(); *flag < value;) {
        if (fixture->ran_ns > deadline)
            return false;
        net_turn(fixture, &at_ns);
    }
    return true;
}

static inline void net_run_for(struct net_fixture *fixture, unsigned ms)
{
    static const int never;
    net_run_until(fixture, &never, 1, ms);
}

/* Runs a scenario until one was calm, which it tells by its result, and has asserted what it is
 * about. On a machine that never is, nothing can be said. */
static inline void net_when_calm(bool (*scenario)(void))
{
    for (int tries = 0; tries < 30; tries++)
        if (scenario())
            return;
    skip();
}

/* Everything must have been closed by now: a handle left open fails the test. */
static inline void net_fixture_deinit(struct net_fixture *fixture)
{
    uv_close((uv_handle_t *)&fixture->tick, NULL);
    kvr_loop_deinit(&fixture->loop);
    uint64_t deadline = uv_hrtime() + 3000000000u;
    while (uv_run(&fixture->uv, UV_RUN_NOWAIT) && uv_hrtime() < deadline)
        ;
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
}

static inline int net_open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static inline struct sockaddr_storage net_address(const char *text)
{
    struct sockaddr_storage address;
    struct kvr_error error = {0};
    assert_int_equal(kvr_address_parse(text, &address, &error), 0);
    return address;
}

/* ---- a peer that answers with given bytes, whatever they are ---- */

enum raw_manner {
    RAW_WHOLE,    /* in one write */
    RAW_BYTEWISE, /* a byte a write, a millisecond apart */
};
enum raw_after { RAW_HOLD, RAW_CLOSE, RAW_RESET };

struct raw_peer {
    uv_tcp_t tcp;
    struct kvr_loop *loop;
    char address[32];
    struct kvr_slice answer;
    enum raw_manner manner;
    enum raw_after after;
    struct kvr_buffer seen; /* bytes of all requests */
    int accepted;
    int open;
};

struct raw_connection {
    struct raw_peer *peer;
    uv_tcp_t tcp;
    uv_timer_t timer;
    size_t sent;
    int handles;
    bool answering;
    char memory[4096];
};

static inline void raw_on_handle_closed(uv_handle_t *handle)
{
    struct raw_connection *connection = handle->data;
    if (--connection->handles == 0) {
        connection->peer->open--;
        free(connection);
    }
}

static inline void raw_end(struct raw_connection *connection, bool reset)
{
    if (uv_is_closing((uv_handle_t *)&connection->tcp))
        return;
    uv_close((uv_handle_t *)&connection->timer, raw_on_handle_closed);
    if (!reset || uv_tcp_close_reset(&connection->tcp, raw_on_handle_closed) != 0)
        uv_close((uv_handle_t *)&connection->tcp, raw_on_handle_closed);
}

static inline void raw_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct raw_connection *connection = handle->data;
    *buf = uv_buf_init(connection->memory, sizeof connection->memory);
}

static inline void raw_on_timer(uv_timer_t *timer)
{
    struct raw_connection *connection = timer->data;
    struct raw_peer *peer = connection->peer;
    size_t left = peer->answer.len - connection->sent;
    size_t n = peer->manner == RAW_BYTEWISE && left > 1 ? 1 : left;
    uv_buf_t buf = uv_buf_init((char *)peer->answer.data + connection->sent, (unsigned)n);
    int rc = n ? uv_try_write((uv_stream_t *)&connection->tcp, &buf, 1) : 0;
    if (rc > 0)
        connection->sent += (size_t)rc;
    if (connection->sent < peer->answer.len && (rc > 0 || rc == UV_EAGAIN))
        return;
    uv_timer_stop(timer);
    if (peer->after != RAW_HOLD)
        raw_end(connection, peer->after == RAW_RESET);
}

static inline void raw_on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct raw_connection *connection = stream->data;
    struct raw_peer *peer = connection->peer;
    if (len < 0) {
        raw_end(connection, false);
        return;
    }
    kvr_buffer_append(&peer->seen, buf->base, (size_t)len);
    bool whole = memmem(peer->seen.data, peer->seen.len, "\r\n\r\n", 4) != NULL;
    if (whole && !connection->answering) {
        connection->answering = true;
        uv_timer_start(&connection->timer, raw_on_timer, 0, 1);
    }
}

static inline void raw_on_connection(uv_stream_t *server, int status)
{
    struct raw_peer *peer = server->data;
    assert_int_equal(status, 0);
    struct raw_connection *connection = calloc(1, sizeof *connection);
    connection->peer = peer;
    connection->handles = 2;
    peer->accepted++;
    peer->open++;
    uv_tcp_init(peer->loop->uv, &connection->tcp);
    uv_timer_init(peer->loop->uv, &connection->timer);
    connection->tcp.data = connection;
    connection->timer.data = connection;
    assert_int_equal(uv_accept(server, (uv_stream_t *)&connection->tcp), 0);
    uv_read_start((uv_stream_t *)&connection->tcp, raw_on_alloc, raw_on_read);
}

static inline void raw_peer_start(struct raw_peer *peer, struct kvr_loop *loop)
{
    memset(peer, 0, sizeof *peer);
    peer->loop = loop;
    struct sockaddr_storage any = net_address("127.0.0.1:0");
    uv_tcp_init(loop->uv, &peer->tcp);
    peer->tcp.data = peer;
    assert_int_equal(uv_tcp_bind(&peer->tcp, (struct sockaddr *)&any, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&peer->tcp, 128, raw_on_connection), 0);
    struct sockaddr_in bound;
    int len = sizeof bound;
    uv_tcp_getsockname(&peer->tcp, (struct sockaddr *)&bound, &len);
    snprintf(peer->address, sizeof peer->address, "127.0.0.1:%u",
             (unsigned)(bound.sin_port >> 8 | (bound.sin_port & 0xff) << 8));
}

static inline void raw_peer_stop(struct raw_peer *peer)
{
    if (!uv_is_closing((uv_handle_t *)&peer->tcp))
        uv_close((uv_handle_t *)&peer->tcp, NULL);
    kvr_buffer_deinit(&peer->seen);
}

/* ---- an emulated replica: answers by path, with a key if it has one ---- */

struct net_page {
    const char *path;
    uint16_t status;
    const char *body;
    const char *content_type;
    bool silent; /* takes the request and never answers */
    int asked;
};

struct net_replica {
    struct kvr_listener listener;
    struct net_page pages[4];
    const char *key;       /* demanded on every path; NULL none */
    const char *authority; /* demanded as Host; NULL any */
    int refused;           /* requests without the key, or with another Host */
};

static inline void net_replica_on_request(void *context, struct kvr_client *client,
                                          const struct kvr_request *request)
{
    struct net_replica *replica = context;
    char wanted[128];
    snprintf(wanted, sizeof wanted, "Bearer %s", replica->key ? replica->key : "");
    struct kvr_slice given = kvr_http_header(request->head, "authorization");
    if ((replica->key && !kvr_slice_is(given, wanted)) ||
        (replica->authority && !kvr_slice_is(request->head->host, replica->authority))) {
        replica->refused++;
        kvr_client_reply(client, 401, kvr_slice_of(""), kvr_slice_of("application/json"),
                         kvr_slice_of("{\"error\":\"Unauthorized\"}"));
        return;
    }
    for (size_t i = 0; i < sizeof replica->pages / sizeof replica->pages[0]; i++) {
        struct net_page *page = &replica->pages[i];
        if (!page->path || !kvr_slice_is(request->head->target, page->path))
            continue;
        page->asked++;
        if (!page->silent)
            kvr_client_reply(client, page->status, kvr_slice_of(""),
                             kvr_slice_of(page->content_type ? page->content_type : "text/plain"),
                             kvr_slice_of(page->body ? page->body : ""));
        return;
    }
    kvr_client_reply(client, 404, kvr_slice_of(""), kvr_slice_of("text/plain"), kvr_slice_of(""));
}

static inline void net_replica_on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    (void)client;
}

static inline void net_replica_start(struct net_replica *replica, struct kvr_loop *loop,
                                     const char *address)
{
    struct kvr_handler handler = {
        .context = replica, .on_request = net_replica_on_request, .on_gone = net_replica_on_gone};
    struct kvr_error error = {0};
    if (kvr_listener_start(&replica->listener, loop, address ? address : "127.0.0.1:0", &handler,
                           NULL, &error) < 0)
        fail_msg("%s", error.text);
}

static inline void net_replica_stop(struct net_fixture *fixture, struct net_replica *replica)
{
    kvr_listener_close(&replica->listener);
    for (int i = 0; i < 100 && !kvr_listener_closed(&replica->listener); i++)
        net_run_for(fixture, 1);
    assert_true(kvr_listener_closed(&replica->listener));
    net_run_for(fixture, 5);
}

/* Targets of up to 8 replica slots. */
struct net_targets {
    struct sockaddr_storage address[8];
    char authority[8][64];
    const char *key[8];
    bool unknown[8];
    int asked;
};

static inline void net_targets_set(struct net_targets *targets, uint32_t slot, const char *address)
{
    targets->address[slot] = net_address(address);
    snprintf(targets->authority[slot], sizeof targets->authority[slot], "%s", address);
}

static inline bool net_on_target(void *context, uint32_t slot, struct kvr_target *target)
{
    struct net_targets *targets = context;
    targets->asked++;
    if (targets->unknown[slot])
        return false;
    target->address = (struct sockaddr *)&targets->address[slot];
    target->authority = kvr_slice_of(targets->authority[slot]);
    target->key = kvr_slice_of(targets->key[slot]);
    return true;
}

#endif
