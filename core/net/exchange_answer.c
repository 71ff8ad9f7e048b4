#include "exchange_parts.h"

#include <string.h>

#include "check.h"
#include "digits.h"
#include "forward.h"
#include "ingress.h"

#define REPLY_BYTES_MAX (256u << 10) /* longer replies leave no belief */
#define ANSWER_HEAD_MAX (64u << 10)

static bool is_complete(const struct kvr_exchange *exchange)
{
    switch (exchange->framing) {
    case KVR_BODY_NONE:
        return true;
    case KVR_BODY_SIZED:
        return exchange->body_left == 0;
    case KVR_BODY_CHUNKED:
        return kvr_chunked_done(&exchange->chunked);
    default:
        return false;
    }
}

static char *put(char *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

#define PUT(at, literal)   put(at, literal, sizeof(literal) - 1)
#define PUT_TEXT(at, text) put(at, text, strlen(text))

/* Our headers: why this replica. */
static void put_explanation(struct kvr_buffer *out, const struct kvr_exchange *exchange)
{
    const struct kvr_router *router = &exchange->ingress->router;
    const struct kvr_request_record *record = kvr_router_request(router, exchange->request);
    char *at = kvr_buffer_reserve(out, KVR_REPLICA_NAME_MAX + KVR_SCRIPT_NAME_MAX +
                                           KVR_REASON_LEN_MAX + KVR_REQUEST_ID_MAX + 256);
    at = PUT(at, "x-kvroute-replica: ");
    at = PUT_TEXT(at, router->replicas.slots[exchange->replica].name);
    if (record->policy) {
        at = PUT(at, "\r\nx-kvroute-policy: ");
        at = PUT_TEXT(at, record->policy->info.name);
    }
    at = PUT(at, "\r\nx-kvroute-reason: ");
    at = PUT_TEXT(at, kvr_reason_text(record->reason));
    at = PUT(at, "\r\nx-kvroute-request-id: ");
    at = PUT_TEXT(at, record->id);
    at = PUT(at, "\r\nx-kvroute-match: ");
    at = kvr_put_uint(at, (uint64_t)kvr_router_block_bytes(router, record->match_blocks));
    at = PUT(at, "\r\n");
    out->len = (size_t)(at - out->data);
}

/* The answer is whole: the row, the client's next request, the connection back to its pool. */
static void complete(struct kvr_exchange *exchange, bool keep_client)
{
    struct kvr_client *client = exchange->client;
    struct kvr_upstream *upstream = exchange->upstream;
    if (upstream && exchange->keep_upstream)
        kvr_upstream_release(upstream);
    else if (upstream)
        kvr_upstream_drop(upstream);
    exchange->upstream = NULL;
    client->user = NULL;
    exchange->client = NULL;
    bool good = exchange->status < 400;
    kvr_exchange_finish(exchange, good ? KVR_OUTCOME_SUCCESS : KVR_OUTCOME_FAILED, NULL,
                        exchange->status, false);
    kvr_client_relayed(client, keep_client);
}

/* Takes payload: it is read for usage, and its first byte or first token noted. */
static void take_payload(struct kvr_exchange *exchange, struct kvr_slice payload, bool last,
                         uint64_t now_ns)
{
    exchange->body_bytes += payload.len;
    if (!exchange->reading || payload.len == 0)
        return;
    bool had_content = exchange->usage.first_content_ns != 0;
    if (last)
        kvr_usage_reader_feed_last(&exchange->usage, payload.data, payload.len, now_ns);
    else
        kvr_usage_reader_feed(&exchange->usage, payload.data, payload.len, now_ns);
    if (!had_content && exchange->usage.first_content_ns)
        kvr_router_first_token(&exchange->ingress->router, now_ns, exchange->request);
}

/* Follows the framing over data. Returns how many bytes belong to this answer, or negative. */
static int64_t follow(struct kvr_exchange *exchange, const char *data, size_t len, uint64_t now_ns)
{
    struct kvr_pace *pace = &exchange->ingress->loop->pace;
    size_t used = 0;
    switch (exchange->framing) {
    case KVR_BODY_NONE:
        return 0;
    case KVR_BODY_SIZED:
        used = len < exchange->body_left ? len : (size_t)exchange->body_left;
        exchange->body_left -= used;
        take_payload(exchange, kvr_slice_make(data, used), exchange->body_left == 0, now_ns);
        return (int64_t)used;
    case KVR_BODY_CHUNKED:
        pace->reads++;
        while (used < len && !kvr_chunked_done(&exchange->chunked)) {
            struct kvr_slice piece;
            int64_t n = kvr_chunked_next(&exchange->chunked, data + used, len - used, &piece);
            if (n < 0)
                return n;
            used += (size_t)n;
            pace->events += piece.len > 0;
            take_payload(exchange, piece, false, now_ns);
            if (exchange->unchunk && piece.len) {
                uv_buf_t buf = uv_buf_init((char *)piece.data, (unsigned)piece.len);
                kvr_client_relay(exchange->client, &buf, 1);
            }
        }
        return (int64_t)used;
    default:
        pace->reads++;
        pace->events++;
        take_payload(exchange, kvr_slice_make(data, len), false, now_ns);
        return (int64_t)len;
    }
}

/* Writes our head, if it is still to be written, and what follows of the body, in one go. */
static void relay(struct kvr_exchange *exchange, struct kvr_slice head, char *data, size_t len)
{
    uv_buf_t bufs[2] = {uv_buf_init((char *)head.data, (unsigned)head.len),
                        uv_buf_init(data, (unsigned)len)};
    bool body = len && !exchange->unchunk;
    if (head.len && body)
        kvr_client_relay(exchange->client, bufs, 2);
    else if (head.len)
        kvr_client_relay(exchange->client, bufs, 1);
    else if (body)
        kvr_client_relay(exchange->client, bufs + 1, 1);
}

/* Body bytes, after `head` (ours, possibly empty). May end the exchange. */
static void relay_body(struct kvr_exchange *exchange, struct kvr_slice head, char *data, size_t len,
                       uint64_t now_ns)
{
    struct kvr_ingress *ingress = exchange->ingress;
    if (exchange->unchunk)
        relay(exchange, head, NULL, 0); /* follow writes the payload behind it */
    int64_t used = follow(exchange, data, len, now_ns);
    if (used < 0) {
        ingress->counters.malformed_answers++;
        kvr_exchange_lose(exchange, "malformed_answer", true);
        return;
    }
    if (!exchange->unchunk)
        relay(exchange, head, data, (size_t)used);
    if (is_complete(exchange)) {
        /* More than the answer: nobody asked for it, so the connection is not to be trusted. */
        if ((size_t)used < len)
            exchange->keep_upstream = false;
        bool until_close = exchange->unchunk || exchange->framing == KVR_BODY_UNTIL_CLOSE;
        complete(exchange, !until_close);
        return;
    }
    if (exchange->upstream &&
        kvr_client_unsent(exchange->client) > ingress->options.stream_buffer_bytes) {
        ingress->counters.pauses += !exchange->upstream->stream.paused;
        kvr_stream_pause(&exchange->upstream->stream);
    }
}

static void set_framing(struct kvr_exchange *exchange, const struct kvr_http_head *head)
{
    exchange->framing = KVR_BODY_UNTIL_CLOSE;
    if (exchange->head_only || !kvr_http_response_has_body(head->status, kvr_slice_of("")))
        exchange->framing = KVR_BODY_NONE;
    else if (head->chunked)
        exchange->framing = KVR_BODY_CHUNKED;
    else if (head->has_length)
        exchange->framing = KVR_BODY_SIZED;
    exchange->body_left = head->content_length;
    exchange->chunked = (struct kvr_chunked){0};
    exchange->unchunk = exchange->framing == KVR_BODY_CHUNKED && exchange->client->http10;
    exchange->keep_upstream = head->keep_alive && exchange->framing != KVR_BODY_UNTIL_CLOSE;
}

static void begin_reading(struct kvr_exchange *exchange, const struct kvr_http_head *head)
{
    struct kvr_slice type = kvr_http_header(head, "content-type");
    bool stream = type.len >= 17 && (strncasecmp(type.data, "text/event-stream", 17) == 0 ||
                                     strncasecmp(type.data, "application/x-ndj", 17) == 0);
    kvr_usage_reader_init(&exchange->usage, stream ? KVR_USAGE_STREAM : KVR_USAGE_BODY);
    exchange->reading = true;
    if (exchange->tail) {
        exchange->usage.reply = &exchange->reply;
        exchange->usage.reply_max = REPLY_BYTES_MAX;
    }
}

/* The first body byte is here, or there will be none: from now on this answer is the client's. */
static void commit(struct kvr_exchange *exchange, const struct kvr_http_head *head, char *data,
                   size_t len, uint64_t now_ns)
{
    struct kvr_ingress *ingress = exchange->ingress;
    struct kvr_buffer *out = &ingress->head_out;
    struct kvr_buffer *extra = &ingress->extra_out;
    extra->len = 0;
    if (ingress->options.headers)
        put_explanation(extra, exchange);
    const struct kvr_client *client = exchange->client;
    bool until_close = exchange->unchunk || exchange->framing == KVR_BODY_UNTIL_CLOSE;
    out->len = 0;
    kvr_forward_answer(out, head,
                       &(struct kvr_forward_answer){
                           .extra = kvr_buffer_slice(extra),
                           .chunked = exchange->framing == KVR_BODY_CHUNKED && !exchange->unchunk,
                           .sized = head->has_length && head->status != 204,
                           .length = head->content_length,
                           .close = until_close || !client->keep_alive,
                           .keep_alive_10 = client->http10,
                       });
    exchange->status = head->status;
    exchange->state = KVR_EXCHANGE_RELAYING;
    kvr_exchange_let_go_of_request(exchange);
    kvr_router_first_byte(&ingress->router, now_ns, exchange->request, head->status);
    if (exchange->reads_usage && head->status < 400 &&
        !kvr_http_header(head, "content-encoding").len)
        begin_reading(exchange, head);
    relay_body(exchange, kvr_buffer_slice(out), data, len, now_ns);
}

static void refuse_answer(struct kvr_exchange *exchange)
{
    exchange->ingress->counters.malformed_answers++;
    kvr_exchange_move(exchange, true, "malformed_answer");
}

/* An engine that sheds load answers 503: full, not down. Once, another is asked. */
static bool is_full(const struct kvr_exchange *exchange, const struct kvr_http_head *head)
{
    struct kvr_router *router = &exchange->ingress->router;
    return head->status == 503 && !exchange->told_full && exchange->reads_usage &&
           kvr_router_can_move(router, exchange->request);
}

/* Is there a byte of the body, or its end? A chunk's size is none. Negative: malformed. */
static int has_begun(const struct kvr_exchange *exchange, const char *data, size_t len)
{
    if (exchange->framing != KVR_BODY_CHUNKED)
        return len > 0 || is_complete(exchange);
    struct kvr_chunked chunked = {0};
    struct kvr_slice piece = {NULL, 0};
    for (size_t used = 0; used < len && piece.len == 0 && !kvr_chunked_done(&chunked);) {
        int64_t n = kvr_chunked_next(&chunked, data + used, len - used, &piece);
        if (n < 0)
            return (int)n;
        used += (size_t)n;
    }
    return piece.len > 0 || kvr_chunked_done(&chunked);
}

/* The head is there, at the start of data, which is what is held if `owned`: it is the client's
 * once the body begins. */
static void hold_or_commit(struct kvr_exchange *exchange, char *data, size_t len, bool owned,
                           uint64_t now_ns)
{
    struct kvr_http_head *head = &exchange->ingress->answer_head;
    struct kvr_buffer *held = &exchange->answer;
    set_framing(exchange, head);
    size_t rest = len - head->size;
    int begun = has_begun(exchange, data + head->size, rest);
    if (begun < 0) {
        refuse_answer(exchange);
    } else if (begun) {
        struct kvr_buffer whole = *held; /* the slices of head may lie in it */
        *held = (struct kvr_buffer){0};
        commit(exchange, head, data + head->size, rest, now_ns);
        kvr_buffer_deinit(&whole);
    } else {
        if (!owned)
            kvr_buffer_append(held, data, len);
        else
            kvr_buffer_consume(held, (size_t)(data - held->data));
        exchange->state = KVR_EXCHANGE_HELD;
    }
}

/* Bytes until the body begins. Interim answers (1xx) are dropped: they are for this hop. */
static void take_head(struct kvr_exchange *exchange, char *data, size_t len, uint64_t now_ns)
{
    struct kvr_http_head *head = &exchange->ingress->answer_head;
    struct kvr_buffer *held = &exchange->answer;
    bool owned = held->len > 0;
    if (owned) {
        kvr_buffer_append(held, data, len);
        data = held->data;
        len = held->len;
    }
    for (;;) {
        size_t scanned = 0;
        int64_t size = (int64_t)kvr_http_plain_response(data, len, head);
        bool plain = size > 0;
        if (!plain)
            size = kvr_http_find_head(data, len, &scanned, NULL);
        if (size < 0 || (size == 0 && len > ANSWER_HEAD_MAX)) {
            refuse_answer(exchange);
            return;
        }
        if (size == 0) {
            if (!owned)
                kvr_buffer_append(held, data, len);
            else if (data != held->data)
                kvr_buffer_consume(held, (size_t)(data - held->data));
            return;
        }
        if ((!plain && kvr_http_parse_response(data, (size_t)size, head, NULL) != 0) ||
            head->status == 101) {
            refuse_answer(exchange);
            return;
        }
        if (head->status >= 200)
            break;
        data += size;
        len -= (size_t)size;
        if (len == 0) {
            held->len = 0;
            return;
        }
    }
    if (is_full(exchange, head)) {
        exchange->told_full = true;
        kvr_exchange_move(exchange, false, "replica_full");
        return;
    }
    hold_or_commit(exchange, data, len, owned, now_ns);
}

void kvr_exchange_take_answer(void *user, char *data, size_t len)
{
    struct kvr_exchange *exchange = user;
    uint64_t now_ns = kvr_loop_now();
    exchange->bytes_ns = now_ns;
    kvr_router_bytes(&exchange->ingress->router, now_ns, exchange->request);
    if (exchange->state == KVR_EXCHANGE_RELAYING) {
        relay_body(exchange, kvr_slice_make(NULL, 0), data, len, now_ns);
        return;
    }
    take_head(exchange, data, len, now_ns);
}

bool kvr_exchange_end_held(struct kvr_exchange *exchange, int uv_code)
{
    struct kvr_http_head *head = &exchange->ingress->answer_head;
    struct kvr_buffer *held = &exchange->answer;
    if (exchange->state != KVR_EXCHANGE_HELD || exchange->framing != KVR_BODY_UNTIL_CLOSE ||
        uv_code != UV_EOF)
        return false;
    int rc = kvr_http_parse_response(held->data, held->len, head, NULL);
    KVR_CHECK(rc == 0); /* it was parsed before */
    if (head->status < 300)
        return false;
    struct kvr_buffer whole = *held;
    *held = (struct kvr_buffer){0};
    commit(exchange, head, whole.data + head->size, 0, kvr_loop_now());
    kvr_buffer_deinit(&whole);
    complete(exchange, false);
    return true;
}

void kvr_exchange_answer_ended(struct kvr_exchange *exchange, int uv_code)
{
    if (exchange->framing == KVR_BODY_UNTIL_CLOSE && uv_code == UV_EOF)
        complete(exchange, false);
    else
        kvr_exchange_lose(exchange, "lost_mid_stream", true);
}
