#include "upstream.h"

#include <string.h>

#include "check.h"
#include "memory.h"

static struct kvr_upstream *upstream_of(struct kvr_stream *stream)
{
    return KVR_LIST_ENTRY(stream, struct kvr_upstream, stream);
}

static void leave_list(struct kvr_upstream *upstream)
{
    kvr_list_remove(&upstream->link);
    if (upstream->state == KVR_UPSTREAM_IDLE)
        upstream->pool->idle_count--;
    upstream->state = KVR_UPSTREAM_BUSY;
}

static void close_now(struct kvr_upstream *upstream)
{
    leave_list(upstream);
    upstream->user = NULL;
    kvr_stream_close(&upstream->stream);
}

static void fail(struct kvr_upstream *upstream, int uv_code)
{
    void *user = upstream->user;
    bool stale = upstream->reused && user && upstream->stream.bytes_in == upstream->bytes_before;
    upstream->pool->stale += stale;
    const struct kvr_upstream_events *events = upstream->pool->events;
    close_now(upstream);
    if (user)
        events->on_failed(user, uv_code, stale);
}

static void on_data(struct kvr_stream *stream, char *data, size_t len)
{
    struct kvr_upstream *upstream = upstream_of(stream);
    if (!upstream->user) {
        close_now(upstream);
        return;
    }
    upstream->pool->events->on_bytes(upstream->user, data, len);
}

static void on_end(struct kvr_stream *stream, int uv_code)
{
    fail(upstream_of(stream), uv_code);
}

static void on_sent(struct kvr_stream *stream)
{
    struct kvr_upstream *upstream = upstream_of(stream);
    if (upstream->user)
        upstream->pool->events->on_sent(upstream->user);
}

static void on_closed(struct kvr_stream *stream)
{
    struct kvr_upstream *upstream = upstream_of(stream);
    struct kvr_upstream_pool *pool = upstream->pool;
    kvr_free(upstream->connect);
    kvr_free(upstream);
    KVR_CHECK(pool->count > 0);
    pool->count--;
    if (pool->closing && pool->count == 0 && pool->on_closed)
        pool->on_closed(pool);
}

static const struct kvr_stream_events stream_events = {
    .on_data = on_data, .on_end = on_end, .on_sent = on_sent, .on_closed = on_closed};

static void set_address(struct kvr_upstream_pool *pool, const struct sockaddr *address)
{
    memset(&pool->address, 0, sizeof pool->address);
    if (address)
        memcpy(&pool->address, address,
               address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                              : sizeof(struct sockaddr_in));
}

void kvr_upstream_pool_init(struct kvr_upstream_pool *pool, struct kvr_loop *loop,
                            const struct kvr_upstream_events *events,
                            const struct sockaddr *address)
{
    *pool = (struct kvr_upstream_pool){
        .loop = loop,
        .events = events,
        .idle_ns = 4000000000u,
        .connect_ns = 5000000000u,
        .idle_max = 256,
    };
    set_address(pool, address);
    kvr_list_init(&pool->idle);
    kvr_list_init(&pool->connecting);
}

void kvr_upstream_pool_move(struct kvr_upstream_pool *pool, const struct sockaddr *address)
{
    pool->epoch++;
    set_address(pool, address);
    KVR_LIST_FOREACH (link, &pool->idle)
        close_now(KVR_LIST_ENTRY(link, struct kvr_upstream, link));
}

void kvr_upstream_pool_close(struct kvr_upstream_pool *pool)
{
    pool->closing = true;
    KVR_LIST_FOREACH (link, &pool->idle)
        close_now(KVR_LIST_ENTRY(link, struct kvr_upstream, link));
    if (pool->count == 0 && pool->on_closed)
        pool->on_closed(pool);
}

void kvr_upstream_pool_sweep(struct kvr_upstream_pool *pool, uint64_t now_ns)
{
    while (!kvr_list_empty(&pool->idle)) {
        struct kvr_upstream *oldest = KVR_LIST_ENTRY(pool->idle.prev, struct kvr_upstream, link);
        if (now_ns - oldest->since_ns < pool->idle_ns)
            break;
        close_now(oldest);
    }
    while (!kvr_list_empty(&pool->connecting)) {
        struct kvr_upstream *oldest =
            KVR_LIST_ENTRY(pool->connecting.next, struct kvr_upstream, link);
        if (now_ns - oldest->since_ns < pool->connect_ns)
            break;
        fail(oldest, UV_ETIMEDOUT);
    }
}

static void on_connect(uv_connect_t *connect, int status)
{
    struct kvr_upstream *upstream = connect->data;
    if (upstream->stream.closing)
        return;
    if (status < 0) {
        fail(upstream, status);
        return;
    }
    leave_list(upstream);
    kvr_free(upstream->connect);
    upstream->connect = NULL;
    kvr_stream_start(&upstream->stream);
    upstream->pool->events->on_ready(upstream->user);
}

static struct kvr_upstream *open_new(struct kvr_upstream_pool *pool, void *user, int *uv_code)
{
    struct kvr_upstream *upstream = kvr_alloc_zero(1, sizeof *upstream);
    upstream->pool = pool;
    upstream->epoch = pool->epoch;
    upstream->user = user;
    upstream->since_ns = kvr_loop_coarse(pool->loop);
    upstream->state = KVR_UPSTREAM_CONNECTING;
    kvr_list_init(&upstream->link);
    kvr_stream_init(&upstream->stream, pool->loop, &stream_events);
    upstream->connect = kvr_alloc(sizeof *upstream->connect);
    upstream->connect->data = upstream;
    pool->count++;
    int rc = uv_tcp_connect(upstream->connect, &upstream->stream.tcp,
                            (const struct sockaddr *)&pool->address, on_connect);
    if (rc) {
        *uv_code = rc;
        close_now(upstream);
        return NULL;
    }
    kvr_list_append(&pool->connecting, &upstream->link);
    pool->opened++;
    return upstream;
}

static struct kvr_upstream *first_idle(struct kvr_upstream_pool *pool)
{
    return KVR_LIST_ENTRY(pool->idle.next, struct kvr_upstream, link);
}

struct kvr_upstream *kvr_upstream_acquire(struct kvr_upstream_pool *pool, void *user, bool fresh,
                                          bool *ready, int *uv_code)
{
    /* One that has sent something unasked for is no use. */
    while (!fresh && !kvr_list_empty(&pool->idle) && first_idle(pool)->stream.read)
        close_now(first_idle(pool));
    if (fresh || kvr_list_empty(&pool->idle)) {
        *ready = false;
        return open_new(pool, user, uv_code);
    }
    struct kvr_upstream *upstream = first_idle(pool);
    leave_list(upstream);
    upstream->user = user;
    upstream->reused = true;
    upstream->bytes_before = upstream->stream.bytes_in;
    pool->reused++;
    *ready = true;
    return upstream;
}

void kvr_upstream_write(struct kvr_upstream *upstream, const uv_buf_t *bufs, unsigned count)
{
    KVR_CHECK(upstream->state == KVR_UPSTREAM_BUSY);
    kvr_stream_write(&upstream->stream, bufs, count);
}

void kvr_upstream_release(struct kvr_upstream *upstream)
{
    struct kvr_upstream_pool *pool = upstream->pool;
    KVR_CHECK(upstream->state == KVR_UPSTREAM_BUSY && upstream->user);
    if (pool->closing || upstream->epoch != pool->epoch || pool->idle_count >= pool->idle_max ||
        upstream->stream.ended || upstream->stream.paused || kvr_stream_unsent(&upstream->stream)) {
        close_now(upstream);
        return;
    }
    upstream->user = NULL;
    upstream->state = KVR_UPSTREAM_IDLE;
    upstream->since_ns = kvr_loop_coarse(pool->loop);
    kvr_list_prepend(&pool->idle, &upstream->link);
    pool->idle_count++;
}

void kvr_upstream_drop(struct kvr_upstream *upstream)
{
    if (!upstream->stream.closing)
        close_now(upstream);
}
