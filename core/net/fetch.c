#include "fetch.h"

#include <string.h>

#include "check.h"
#include "chunked.h"
#include "list.h"
#include "memory.h"
#include "stream.h"

#define DEFAULT_TIMEOUT_NS 5000000000u
#define DEFAULT_MAX_BYTES  (4u << 20)
#define HEAD_BYTES_MAX     65536u

enum framing { FRAMING_NONE, FRAMING_SIZED, FRAMING_CHUNKED, FRAMING_TO_THE_END };

struct kvr_fetch {
    struct kvr_stream stream;
    uv_timer_t timer;
    uv_connect_t connect;
    struct kvr_loop *loop;
    void *context;
    void (*on_done)(void *context, const struct kvr_fetch_result *result);
    struct kvr_buffer request;    /* freed once it is on its way */
    struct kvr_buffer head_bytes; /* of the answer */
    struct kvr_buffer body;
    struct kvr_slice method; /* in request_method */
    char request_method[16];
    size_t scanned; /* of head_bytes */
    size_t max_bytes;
    uint64_t started_ns;
    uint64_t deadline_ns;
    int deferred_code; /* found before the loop ran; reported by the timer */
    unsigned handles;  /* open ones; the last to close frees */
    bool last_look;    /* the deadline has passed; sockets are looked at once more */
    bool connected;
    bool head_done;
    bool over; /* on_done was called, or must not be any more */
    enum framing framing;
    struct kvr_chunked chunked;
    struct kvr_http_head head; /* slices into head_bytes */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct kvr_fetch *fetch_of(struct kvr_stream *stream)
{
    return KVR_LIST_ENTRY(stream, struct kvr_fetch, stream);
}

static void release(struct kvr_fetch *fetch)
{
    if (--fetch->handles > 0)
        return;
    kvr_buffer_deinit(&fetch->request);
    kvr_buffer_deinit(&fetch->head_bytes);
    kvr_buffer_deinit(&fetch->body);
    kvr_free(fetch);
}

static void on_stream_closed(struct kvr_stream *stream)
{
    release(fetch_of(stream));
}

static void on_timer_closed(uv_handle_t *handle)
{
    release(handle->data);
}

static void dispose(struct kvr_fetch *fetch)
{
    fetch->over = true;
    kvr_stream_close(&fetch->stream);
    if (!uv_is_closing((uv_handle_t *)&fetch->timer))
        uv_close((uv_handle_t *)&fetch->timer, on_timer_closed);
}

static bool is_own_fault(int uv_code)
{
    return uv_code == UV_EMFILE || uv_code == UV_ENFILE || uv_code == UV_EADDRNOTAVAIL ||
           uv_code == UV_ENOBUFS || uv_code == UV_ENOMEM;
}

static void finish(struct kvr_fetch *fetch, int uv_code, bool timed_out)
{
    if (fetch->over)
        return;
    fetch->over = true;
    bool never_connected = uv_code && !timed_out && uv_code != UV_EINVAL && !fetch->connected;
    struct kvr_fetch_result result = {
        .uv_code = uv_code,
        .timed_out = timed_out,
        .own_fault = never_connected && is_own_fault(uv_code),
        .connect_failed = never_connected && !is_own_fault(uv_code),
        .duration_ns = kvr_loop_now() - fetch->started_ns,
    };
    if (uv_code == 0) {
        result.status = fetch->head.status;
        result.head = &fetch->head;
        result.body = kvr_buffer_slice(&fetch->body);
    }
    fetch->on_done(fetch->context, &result);
    dispose(fetch);
}

/* ---- the answer ---- */

static void take_body(struct kvr_fetch *fetch, const char *data, size_t len)
{
    size_t used = 0;
    while (used < len && !fetch->over) {
        struct kvr_slice piece = kvr_slice_make(data + used, len - used);
        int64_t n = (int64_t)piece.len;
        if (fetch->framing == FRAMING_CHUNKED)
            n = kvr_chunked_next(&fetch->chunked, data + used, len - used, &piece);
        else if (fetch->framing == FRAMING_SIZED)
            piece.len = smaller(piece.len, fetch->head.content_length - fetch->body.len);
        if (n < 0) {
            finish(fetch, UV_EPROTO, false);
            return;
        }
        if (fetch->body.len + piece.len > fetch->max_bytes) {
            finish(fetch, UV_EMSGSIZE, false);
            return;
        }
        kvr_buffer_append_slice(&fetch->body, piece);
        used += (size_t)n;
        if ((fetch->framing == FRAMING_CHUNKED && kvr_chunked_done(&fetch->chunked)) ||
            (fetch->framing == FRAMING_SIZED && fetch->body.len == fetch->head.content_length))
            finish(fetch, 0, false);
    }
}

static void choose_framing(struct kvr_fetch *fetch)
{
    const struct kvr_http_head *head = &fetch->head;
    if (!kvr_http_response_has_body(head->status, fetch->method))
        fetch->framing = FRAMING_NONE;
    else if (head->chunked)
        fetch->framing = FRAMING_CHUNKED;
    else if (head->has_length)
        fetch->framing = head->content_length ? FRAMING_SIZED : FRAMING_NONE;
    else
        fetch->framing = FRAMING_TO_THE_END;
}

/* Takes one head from head_bytes, if it is there. Interim ones (1xx) are dropped. False: wait for
 * more, or it is over. */
static bool take_head(struct kvr_fetch *fetch)
{
    struct kvr_buffer *bytes = &fetch->head_bytes;
    int64_t size = kvr_http_find_head(bytes->data, bytes->len, &fetch->scanned, NULL);
    size_t seen = size > 0 ? (size_t)size : bytes->len;
    if (size >= 0 && seen > HEAD_BYTES_MAX) {
        finish(fetch, UV_EMSGSIZE, false);
        return false;
    }
    if (size == 0)
        return false;
    if (size < 0 || kvr_http_parse_response(bytes->data, (size_t)size, &fetch->head, NULL) < 0) {
        finish(fetch, UV_EPROTO, false);
        return false;
    }
    if (fetch->head.status >= 200) {
        fetch->head_done = true;
        return true;
    }
    if (fetch->head.status == 101) { /* nobody asked to switch */
        finish(fetch, UV_EPROTO, false);
        return false;
    }
    kvr_buffer_consume(bytes, (size_t)size);
    fetch->scanned = 0;
    return bytes->len > 0;
}

static void on_data(struct kvr_stream *stream, char *data, size_t len)
{
    struct kvr_fetch *fetch = fetch_of(stream);
    if (fetch->over)
        return;
    if (fetch->head_done) {
        take_body(fetch, data, len);
        return;
    }
    kvr_buffer_append(&fetch->head_bytes, data, len);
    while (!fetch->head_done)
        if (!take_head(fetch))
            return;
    choose_framing(fetch);
    size_t size = fetch->head.size;
    if (fetch->framing == FRAMING_NONE)
        finish(fetch, 0, false);
    else if (fetch->framing == FRAMING_SIZED && fetch->head.content_length > fetch->max_bytes)
        finish(fetch, UV_EMSGSIZE, false);
    else
        take_body(fetch, fetch->head_bytes.data + size, fetch->head_bytes.len - size);
}

static void on_end(struct kvr_stream *stream, int uv_code)
{
    struct kvr_fetch *fetch = fetch_of(stream);
    bool whole = uv_code == UV_EOF && fetch->head_done && fetch->framing == FRAMING_TO_THE_END;
    finish(fetch, whole ? 0 : uv_code, false);
}

static const struct kvr_stream_events events = {
    .on_data = on_data,
    .on_end = on_end,
    .on_closed = on_stream_closed,
};

/* ---- the request ---- */

static void on_connected(uv_connect_t *connect, int status)
{
    struct kvr_fetch *fetch = connect->data;
    if (fetch->over)
        return;
    if (status < 0) {
        finish(fetch, status, false);
        return;
    }
    fetch->connected = true;
    kvr_stream_start(&fetch->stream);
    uv_buf_t buf = uv_buf_init(fetch->request.data, (unsigned)fetch->request.len);
    kvr_stream_write(&fetch->stream, &buf, 1);
    kvr_buffer_deinit(&fetch->request);
}

static void on_timer(uv_timer_t *timer);

static void start_timer(struct kvr_fetch *fetch, uint64_t ms)
{
    KVR_CHECK(uv_timer_start(&fetch->timer, on_timer, ms, 0) == 0);
}

/* Timers run before sockets are read: after a loop that was held up, the answer may be there
 * already. So the deadline counts only when one more look at the sockets has brought nothing. */
static void on_timer(uv_timer_t *timer)
{
    struct kvr_fetch *fetch = timer->data;
    uint64_t now_ns = kvr_loop_now();
    if (fetch->deferred_code) {
        finish(fetch, fetch->deferred_code, false);
    } else if (now_ns < fetch->deadline_ns) { /* the loop's clock was behind when it was set */
        start_timer(fetch, (fetch->deadline_ns - now_ns + 999999) / 1000000);
    } else if (!fetch->last_look) {
        fetch->last_look = true;
        start_timer(fetch, 1);
    } else {
        finish(fetch, UV_ETIMEDOUT, true);
    }
}

/* Whether text may stand in a head line: no controls, and no blanks if `one_word`. */
static bool is_clean(struct kvr_slice text, bool one_word)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c < ' ' || c == 0x7f || (one_word && c == ' '))
            return false;
    }
    return true;
}

static bool write_request(struct kvr_fetch *fetch, const struct kvr_fetch_options *options)
{
    struct kvr_slice path = options->path.len ? options->path : kvr_slice_of("/");
    if (!is_clean(fetch->method, true) || !is_clean(path, true) || !is_clean(options->host, true) ||
        !is_clean(options->bearer, false) || options->method.len >= sizeof fetch->request_method)
        return false;
    struct kvr_buffer *out = &fetch->request;
    kvr_buffer_append_slice(out, fetch->method);
    kvr_buffer_append_text(out, " ");
    kvr_buffer_append_slice(out, path);
    kvr_buffer_append_text(out, " HTTP/1.1\r\nHost: ");
    kvr_buffer_append_slice(out, options->host);
    kvr_buffer_append_text(out, "\r\nUser-Agent: kvroute/" KVR_VERSION
                                "\r\nAccept: */*\r\nConnection: close\r\n");
    if (options->bearer.len) {
        kvr_buffer_append_text(out, "Authorization: Bearer ");
        kvr_buffer_append_slice(out, options->bearer);
        kvr_buffer_append_text(out, "\r\n");
    }
    kvr_buffer_append_slice(out, options->headers);
    bool bodyless = kvr_slice_is(fetch->method, "GET") || kvr_slice_is(fetch->method, "HEAD");
    if (options->body.len || !bodyless)
        kvr_buffer_printf(out, "Content-Length: %zu\r\n", options->body.len);
    kvr_buffer_append_text(out, "\r\n");
    kvr_buffer_append_slice(out, options->body);
    return true;
}

struct kvr_fetch *
kvr_fetch_start(struct kvr_loop *loop, const struct kvr_fetch_options *options, void *context,
                void (*on_done)(void *context, const struct kvr_fetch_result *result))
{
    struct kvr_fetch *fetch = kvr_alloc_zero(1, sizeof *fetch);
    fetch->loop = loop;
    fetch->context = context;
    fetch->on_done = on_done;
    fetch->max_bytes = options->max_bytes ? options->max_bytes : DEFAULT_MAX_BYTES;
    fetch->started_ns = kvr_loop_now();
    fetch->deadline_ns =
        fetch->started_ns + (options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS);
    struct kvr_slice method = options->method.len ? options->method : kvr_slice_of("GET");
    fetch->method.data = fetch->request_method;
    fetch->method.len = smaller(method.len, sizeof fetch->request_method);
    memcpy(fetch->request_method, method.data, fetch->method.len);

    kvr_stream_init(&fetch->stream, loop, &events);
    KVR_CHECK(uv_timer_init(loop->uv, &fetch->timer) == 0);
    fetch->handles = 2;
    fetch->timer.data = fetch;
    fetch->connect.data = fetch;
    if (write_request(fetch, options))
        fetch->deferred_code =
            uv_tcp_connect(&fetch->connect, &fetch->stream.tcp, options->address, on_connected);
    else
        fetch->deferred_code = UV_EINVAL;
    uint64_t timeout_ns = fetch->deadline_ns - fetch->started_ns;
    start_timer(fetch, fetch->deferred_code ? 0 : (timeout_ns + 999999) / 1000000);
    return fetch;
}

void kvr_fetch_cancel(struct kvr_fetch *fetch)
{
    if (!fetch->over)
        dispose(fetch);
}
