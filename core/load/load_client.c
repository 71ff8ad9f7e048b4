#include "load_client.h"

#include "check.h"
#include "digits.h"
#include "load_answer.h"
#include "memory.h"

#define SWEEP_MS 250

/* ---- the end of a call ---- */

static void end_call(struct kvr_load_call *call, enum kvr_load_failure failure, uint64_t now_ns)
{
    struct kvr_load_client *client = call->client;
    struct kvr_upstream *upstream = call->upstream;
    call->failure = failure;
    call->ended_ns = now_ns;
    call->upstream = NULL;
    kvr_buffer_deinit(&call->head);
    kvr_list_remove(&call->link);
    client->in_flight--;
    if (upstream && call->keep)
        kvr_upstream_release(upstream);
    else if (upstream)
        kvr_upstream_drop(upstream);
    client->events->on_done(client->context, call);
}

static void fail_call(struct kvr_load_call *call, enum kvr_load_failure failure)
{
    call->keep = false;
    end_call(call, failure, kvr_loop_now());
}

static void finish_call(struct kvr_load_call *call, uint64_t now_ns)
{
    end_call(call, kvr_load_answer_judge(call, now_ns), now_ns);
}

static void on_bytes(void *user, char *data, size_t len)
{
    struct kvr_load_call *call = user;
    uint64_t now_ns = kvr_loop_now();
    int rc = kvr_load_answer_take(call, data, len, now_ns, call->client->answer_head);
    if (rc < 0)
        fail_call(call, KVR_LOAD_MALFORMED);
    else if (rc > 0)
        finish_call(call, now_ns);
}

/* ---- the request ---- */

static void write_request(struct kvr_load_call *call)
{
    struct kvr_load_client *client = call->client;
    struct kvr_load_message message = {.body = &client->body};
    client->body.len = 0;
    client->events->on_write(client->context, call, &message);
    struct kvr_buffer *head = &client->head;
    head->len = 0;
    kvr_buffer_append_slice(head, kvr_buffer_slice(&client->start));
    char *at = kvr_buffer_reserve(head, KVR_DIGITS_MAX);
    head->len += (size_t)(kvr_put_uint(at, client->body.len) - at);
    if (message.session.len) {
        kvr_buffer_append_text(head, "\r\nX-Session-Id: ");
        kvr_buffer_append_slice(head, message.session);
    }
    kvr_buffer_append_text(head, "\r\n\r\n");
    uv_buf_t bufs[2] = {uv_buf_init(head->data, (unsigned)head->len),
                        uv_buf_init(client->body.data, (unsigned)client->body.len)};
    call->sent_ns = kvr_loop_now();
    kvr_upstream_write(call->upstream, bufs, 2);
    kvr_stream_flush(&call->upstream->stream); /* now: what others do in this turn may take long */
}

static void on_ready(void *user)
{
    write_request(user);
}

static void on_sent(void *user)
{
    (void)user;
}

static bool is_own_fault(int uv_code)
{
    return uv_code == UV_EMFILE || uv_code == UV_ENFILE || uv_code == UV_EADDRNOTAVAIL ||
           uv_code == UV_ENOBUFS || uv_code == UV_ENOMEM;
}

/* Takes a connection, and writes if it is one. KVR_LOAD_OK, or what is wrong. */
static enum kvr_load_failure send_call(struct kvr_load_call *call, bool fresh)
{
    bool ready = false;
    int uv_code = 0;
    call->upstream = kvr_upstream_acquire(&call->client->pool, call, fresh, &ready, &uv_code);
    if (!call->upstream)
        return is_own_fault(uv_code) ? KVR_LOAD_OWN_LIMIT : KVR_LOAD_CONNECT;
    if (ready)
        write_request(call);
    return KVR_LOAD_OK;
}

static void on_failed(void *user, int uv_code, bool stale)
{
    struct kvr_load_call *call = user;
    enum kvr_load_failure failure = KVR_LOAD_TRUNCATED;
    bool connected = call->sent_ns != 0;
    call->upstream = NULL;
    if (stale && !call->resent) {
        call->resent = true;
        call->client->resent++;
        failure = send_call(call, true);
        if (failure == KVR_LOAD_OK)
            return;
    } else if (call->framing == KVR_LOAD_TO_THE_END && uv_code == UV_EOF) {
        call->keep = false;
        finish_call(call, kvr_loop_now());
        return;
    } else if (!connected) {
        failure = is_own_fault(uv_code) ? KVR_LOAD_OWN_LIMIT : KVR_LOAD_CONNECT;
    } else if (call->framing == KVR_LOAD_HEAD) {
        failure = KVR_LOAD_LOST;
    }
    fail_call(call, failure);
}

static const struct kvr_upstream_events upstream_events = {
    .on_ready = on_ready, .on_sent = on_sent, .on_bytes = on_bytes, .on_failed = on_failed};

/* Forgets the request before; memory stays. */
static void reset_call(struct kvr_load_call *call, struct kvr_load_client *client)
{
    KVR_CHECK(!call->upstream);
    float *gaps_ns = call->gaps_ns;
    uint32_t capacity = call->gaps_capacity;
    if (call->reading)
        kvr_usage_reader_deinit(&call->usage);
    *call = (struct kvr_load_call){.client = client,
                                   .gaps_ns = gaps_ns,
                                   .gaps_capacity = capacity,
                                   .labels = {.match_bytes = -1},
                                   .usage = {.usage = {-1, -1, -1}}};
}

bool kvr_load_client_start(struct kvr_load_client *client, struct kvr_load_call *call)
{
    reset_call(call, client);
    call->started_ns = kvr_loop_now();
    call->failure = send_call(call, false);
    if (call->failure != KVR_LOAD_OK) {
        call->ended_ns = call->started_ns;
        return false;
    }
    kvr_list_append(&client->calls, &call->link);
    client->in_flight++;
    return true;
}

void kvr_load_client_drop(struct kvr_load_client *client, struct kvr_load_call *call)
{
    reset_call(call, client);
    call->failure = KVR_LOAD_DROPPED;
    call->started_ns = call->ended_ns = kvr_loop_now();
}

void kvr_load_client_cancel(struct kvr_load_client *client)
{
    while (!kvr_list_empty(&client->calls))
        fail_call(KVR_LIST_ENTRY(client->calls.next, struct kvr_load_call, link),
                  KVR_LOAD_CANCELLED);
}

/* ---- the client ---- */

static void on_sweep(uv_timer_t *timer)
{
    struct kvr_load_client *client = timer->data;
    uint64_t now_ns = kvr_loop_now();
    kvr_upstream_pool_sweep(&client->pool, now_ns);
    while (!kvr_list_empty(&client->calls)) {
        struct kvr_load_call *oldest =
            KVR_LIST_ENTRY(client->calls.next, struct kvr_load_call, link);
        if (now_ns - oldest->started_ns < client->timeout_ns)
            break;
        fail_call(oldest, KVR_LOAD_TIMEOUT);
    }
}

static bool is_clean(struct kvr_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] < ' ' || text.data[i] == 0x7f)
            return false;
    return true;
}

int kvr_load_client_open(struct kvr_load_client *client, struct kvr_loop *loop,
                         const struct kvr_load_client_options *options,
                         const struct kvr_load_client_events *events, void *context,
                         struct kvr_error *error)
{
    const struct kvr_load_target *target = options->target;
    if (options->key && !is_clean(kvr_slice_of(options->key)))
        return kvr_error_set(error, KVR_E_INVALID, "the key holds a control character");
    *client = (struct kvr_load_client){
        .loop = loop, .timeout_ns = options->timeout_ns, .events = events, .context = context};
    kvr_list_init(&client->calls);
    kvr_upstream_pool_init(&client->pool, loop, &upstream_events,
                           (const struct sockaddr *)&target->address);
    client->pool.idle_max = UINT32_MAX;
    client->answer_head = kvr_alloc(sizeof *client->answer_head);
    struct kvr_buffer *start = &client->start;
    kvr_buffer_printf(start,
                      "POST %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: kvroute/" KVR_VERSION
                      "\r\nContent-Type: application/json\r\n",
                      target->base, options->path, target->authority);
    if (options->key) {
        kvr_buffer_append_text(start, "Authorization: Bearer ");
        kvr_buffer_append_text(start, options->key);
        kvr_buffer_append_text(start, "\r\n");
    }
    kvr_buffer_append_slice(start, options->headers);
    kvr_buffer_append_text(start, "Content-Length: ");
    KVR_CHECK(uv_timer_init(loop->uv, &client->sweep) == 0);
    client->sweep.data = client;
    KVR_CHECK(uv_timer_start(&client->sweep, on_sweep, SWEEP_MS, SWEEP_MS) == 0);
    return 0;
}

static void on_pool_closed(struct kvr_upstream_pool *pool)
{
    struct kvr_load_client *client = pool->owner;
    kvr_buffer_deinit(&client->start);
    kvr_buffer_deinit(&client->head);
    kvr_buffer_deinit(&client->body);
    kvr_free(client->answer_head);
    client->on_closed(client->closed_context);
}

static void on_sweep_closed(uv_handle_t *handle)
{
    struct kvr_load_client *client = handle->data;
    client->pool.owner = client;
    client->pool.on_closed = on_pool_closed;
    kvr_upstream_pool_close(&client->pool);
}

void kvr_load_client_close(struct kvr_load_client *client, void *context,
                           void (*on_closed)(void *context))
{
    KVR_CHECK(client->in_flight == 0);
    client->closed_context = context;
    client->on_closed = on_closed;
    uv_close((uv_handle_t *)&client->sweep, on_sweep_closed);
}
