#include "exchange.h"

#include <string.h>

#include "check.h"
#include "exchange_parts.h"
#include "forward.h"
#include "ingress.h"
#include "memory.h"
#include "rejection.h"

/* Faults of this host: they say nothing about the replica. */
static const char *own_fault(int uv_code)
{
    switch (uv_code) {
    case UV_EMFILE:
    case UV_ENFILE:
        return "out_of_descriptors";
    case UV_EADDRNOTAVAIL:
        return "out_of_ports";
    case UV_ENOMEM:
    case UV_ENOBUFS:
        return "out_of_memory";
    default:
        return NULL;
    }
}

static struct kvr_upstream_pool *pool_of(const struct kvr_exchange *exchange)
{
    return exchange->ingress->replicas[exchange->replica].pool;
}

static void let_go_of_upstream(struct kvr_exchange *exchange)
{
    if (exchange->upstream)
        kvr_upstream_drop(exchange->upstream);
    exchange->upstream = NULL;
}

/* Parses what was kept of the request and fills a submission from it, for another decision. */
static const struct kvr_http_head *reread(struct kvr_exchange *exchange,
                                          struct kvr_submission *submission)
{
    struct kvr_ingress *ingress = exchange->ingress;
    struct kvr_error error;
    const char *data = exchange->kept.data;
    int rc = kvr_http_parse_request(data, exchange->kept_head, &ingress->retry_head, &error);
    KVR_CHECK(rc == 0); /* it was parsed before */
    if (submission) {
        struct kvr_slice body =
            kvr_slice_make(data + exchange->kept_head, exchange->kept.len - exchange->kept_head);
        rc = kvr_ingress_read(ingress, &ingress->retry_head, body, submission, &error);
        KVR_CHECK(rc == 0);
        submission->user = exchange;
    }
    return &ingress->retry_head;
}

static void write_request(struct kvr_exchange *exchange, const struct kvr_http_head *head,
                          struct kvr_slice body)
{
    struct kvr_ingress *ingress = exchange->ingress;
    const struct kvr_replica *replica = &ingress->router.replicas.slots[exchange->replica];
    const struct kvr_request_record *record =
        kvr_router_request(&ingress->router, exchange->request);
    const struct kvr_ingress_replica *ours = &ingress->replicas[exchange->replica];
    bool preserve = ingress->options.preserve_host && head->host.len;
    ingress->head_out.len = 0;
    kvr_forward_request(
        &ingress->head_out, head,
        &(struct kvr_forward_request){
            .authority =
                preserve ? head->host : kvr_slice_make(replica->name, replica->authority_len),
            .rank = replica->rank,
            .key = kvr_slice_of(ours->key),
            .keeps_credentials = exchange->key != NULL,
            .keeps_conversation = ours->keeps_conversations,
            .strip = ingress->options.strip_headers,
            .strip_count = ingress->options.strip_headers_count,
            .request_id = kvr_slice_of(record->id),
            .peer = kvr_slice_of(exchange->client->peer),
            .body_len = body.len,
            .has_body = head->has_length || head->chunked,
        });
    uv_buf_t bufs[2] = {uv_buf_init(ingress->head_out.data, (unsigned)ingress->head_out.len),
                        uv_buf_init((char *)body.data, (unsigned)body.len)};
    exchange->state = KVR_EXCHANGE_SENT;
    exchange->sent_ns = 0; /* until a busy turn's end, an earlier try's would stand */
    kvr_upstream_write(exchange->upstream, bufs, body.len ? 2 : 1);
}

static void write_kept(struct kvr_exchange *exchange)
{
    const struct kvr_http_head *head = reread(exchange, NULL);
    write_request(exchange, head,
                  kvr_slice_make(exchange->kept.data + exchange->kept_head,
                                 exchange->kept.len - exchange->kept_head));
}

/* This dispatch failed before a body byte: the router decides what comes next. */
void kvr_exchange_move(struct kvr_exchange *exchange, bool replica_fault, const char *why)
{
    struct kvr_ingress *ingress = exchange->ingress;
    let_go_of_upstream(exchange);
    kvr_buffer_deinit(&exchange->answer);
    exchange->state = KVR_EXCHANGE_CONNECTING;
    exchange->resent = false;
    exchange->last_failure = why;
    struct kvr_submission again;
    reread(exchange, &again);
    kvr_router_failed(&ingress->router, kvr_loop_now(), exchange->request, replica_fault, &again);
    kvr_ingress_act(ingress);
    kvr_router_settle(&ingress->router);
}

/* There is no connection: whose fault that is, and its name. */
static void move_unconnected(struct kvr_exchange *exchange, int uv_code)
{
    const char *own = own_fault(uv_code);
    bool late = uv_code == UV_ETIMEDOUT;
    exchange->ingress->counters.timeouts[KVR_TIME_CONNECT] += late;
    if (!own)
        kvr_resolver_doubt(&exchange->ingress->resolver, exchange->replica, true);
    kvr_exchange_move(exchange, !own, own ? own : late ? "connect_timeout" : "connect_failed");
}

/* A connection for the dispatch. True when it is ready to be written to. */
static bool connect_to(struct kvr_exchange *exchange, bool fresh)
{
    int uv_code = 0;
    bool ready = false;
    exchange->state = KVR_EXCHANGE_CONNECTING;
    exchange->upstream = kvr_upstream_acquire(pool_of(exchange), exchange, fresh, &ready, &uv_code);
    if (!exchange->upstream) {
        /* Not from inside the action: the request may not be kept yet. */
        exchange->connect_error = uv_code;
        return false;
    }
    return ready;
}

void kvr_exchange_refuse(struct kvr_exchange *exchange, const struct kvr_api_error *error,
                         const char *message)
{
    struct kvr_ingress *ingress = exchange->ingress;
    struct kvr_client *client = exchange->client;
    const struct kvr_request_record *record =
        kvr_router_request(&ingress->router, exchange->request);
    struct kvr_buffer lines = {0};
    if (ingress->options.headers)
        kvr_buffer_printf(&lines, "x-kvroute-request-id: %s\r\n", record->id);
    client->user = NULL;
    exchange->client = NULL;
    kvr_exchange_finish(exchange, KVR_OUTCOME_DROPPED, error->code, error->status, false);
    kvr_client_error(client, error, kvr_buffer_slice(&lines), message);
    kvr_buffer_deinit(&lines);
}

static void reject(struct kvr_exchange *exchange, enum kvr_rejection rejection)
{
    const struct kvr_request_record *record =
        kvr_router_request(&exchange->ingress->router, exchange->request);
    char message[512];
    kvr_rejection_message(rejection, kvr_request_model_name(record), exchange->last_failure,
                          message, sizeof message);
    kvr_exchange_refuse(exchange, &kvr_rejection_answer(rejection)->error, message);
}

void kvr_exchange_act(struct kvr_exchange *exchange, const struct kvr_action *action)
{
    exchange->request = action->request;
    kvr_router_decided(&exchange->ingress->router, kvr_loop_now(), action->request);
    if (action->kind == KVR_ACTION_REJECT) {
        reject(exchange, action->rejection);
        return;
    }
    exchange->replica = action->replica;
    bool ready = connect_to(exchange, false);
    if (exchange->fresh) {
        exchange->ready = ready; /* begin goes on from here, with the request still in place */
        return;
    }
    if (!exchange->upstream)
        move_unconnected(exchange, exchange->connect_error);
    else if (ready)
        write_kept(exchange);
}

static void keep_request(struct kvr_exchange *exchange, const struct kvr_request *request)
{
    exchange->kept_head = (uint32_t)request->head_bytes.len;
    if (request->owned) {
        exchange->kept = *request->owned;
        *request->owned = (struct kvr_buffer){0};
    } else {
        size_t size = request->head_bytes.len + request->body.len;
        exchange->kept.capacity = kvr_spares_size(size);
        exchange->kept.data = kvr_spares_take(&exchange->ingress->spares, size);
        kvr_buffer_append_slice(&exchange->kept, request->head_bytes);
        kvr_buffer_append_slice(&exchange->kept, request->body);
    }
    exchange->ingress->held_bytes += exchange->kept.capacity;
}

void kvr_exchange_let_go_of_request(struct kvr_exchange *exchange)
{
    struct kvr_buffer *kept = &exchange->kept;
    exchange->ingress->held_bytes -= kept->capacity;
    kvr_spares_give(&exchange->ingress->spares, kept->data, kept->capacity);
    *kept = (struct kvr_buffer){0};
}

static void keep_chain(struct kvr_exchange *exchange, const struct kvr_submission *submission)
{
    if (!exchange->ingress->options.router.row_blocks || submission->chain_len == 0)
        return;
    size_t size = submission->chain_len * sizeof *exchange->chain;
    exchange->chain = kvr_alloc(size);
    memcpy(exchange->chain, submission->chain, size);
    exchange->chain_len = submission->chain_len;
}

static struct kvr_exchange *open_exchange(struct kvr_ingress *ingress, struct kvr_client *client,
                                          const struct kvr_request *request,
                                          struct kvr_submission *submission,
                                          const struct kvr_exchange_terms *terms)
{
    struct kvr_exchange *exchange = kvr_spares_take(&ingress->spares, sizeof *exchange);
    memset(exchange, 0, sizeof *exchange);
    exchange->ingress = ingress;
    exchange->client = client;
    exchange->request_bytes = request->body.len;
    exchange->started_ns = submission->received_ns;
    exchange->limits = terms->limits;
    exchange->key = terms->key;
    exchange->head_only = client->head_only;
    exchange->reads_usage = submission->routed;
    exchange->fresh = true;
    kvr_list_append(&ingress->exchanges, &exchange->link);
    ingress->exchanges_count++;
    ingress->loop->pace.open++;
    client->user = exchange;
    submission->user = exchange;
    keep_chain(exchange, submission);
    if (ingress->options.replies && submission->chain_len) {
        exchange->tail = kvr_alloc(sizeof *exchange->tail);
        *exchange->tail = ingress->prompt.tail;
    }
    return exchange;
}

/* The router's first word on a request that is still where it was read. */
static void dispatch_fresh(struct kvr_exchange *exchange, const struct kvr_request *request,
                           const struct kvr_action *action)
{
    kvr_exchange_act(exchange, action);
    if (action->kind == KVR_ACTION_REJECT)
        return;
    /* The request goes out before it is copied: the copy is for a second try only. */
    if (exchange->ready)
        write_request(exchange, request->head, request->body);
    keep_request(exchange, request);
    exchange->fresh = false;
    if (!exchange->upstream)
        move_unconnected(exchange, exchange->connect_error);
}

void kvr_exchange_begin(struct kvr_ingress *ingress, struct kvr_client *client,
                        const struct kvr_request *request, struct kvr_submission *submission,
                        const struct kvr_exchange_terms *terms)
{
    struct kvr_exchange *exchange = open_exchange(ingress, client, request, submission, terms);
    struct kvr_action action;
    exchange->request = kvr_router_submit(&ingress->router, kvr_loop_now(), submission);
    if (exchange->request.generation == 0) {
        const struct kvr_api_error *error = &kvr_rejection_answer(KVR_REJECT_REQUESTS_MAX)->error;
        kvr_exchange_destroy(exchange);
        kvr_ingress_refused(ingress, submission, error->status, error->code);
        kvr_client_error(client, error, kvr_slice_of(""), "limits.requests are open");
        return;
    }
    bool decided = kvr_router_next_action(&ingress->router, &action);
    if (decided && action.user == exchange) {
        dispatch_fresh(exchange, request, &action);
        return;
    }
    /* It waits for a replica. What was decided is about another that waits, if anything. */
    keep_request(exchange, request);
    exchange->fresh = false;
    if (decided)
        kvr_exchange_act(action.user, &action);
    kvr_ingress_act(ingress);
}

void kvr_exchange_cancel(struct kvr_exchange *exchange)
{
    exchange->client->user = NULL;
    exchange->client = NULL;
    uint16_t status = exchange->state == KVR_EXCHANGE_RELAYING ? exchange->status : 0;
    kvr_exchange_finish(exchange, KVR_OUTCOME_CANCELLED, "client_gone", status, false);
}

/* After the first body byte: the client must not take what it has for a whole answer. */
void kvr_exchange_lose(struct kvr_exchange *exchange, const char *why, bool replica_fault)
{
    struct kvr_client *client = exchange->client;
    exchange->ingress->counters.lost_mid_stream++;
    client->user = NULL;
    exchange->client = NULL;
    kvr_exchange_finish(exchange, KVR_OUTCOME_DROPPED, why, exchange->status, replica_fault);
    kvr_client_abort(client);
}

void kvr_exchange_client_drained(struct kvr_exchange *exchange)
{
    if (!exchange->upstream || !exchange->upstream->stream.paused)
        return;
    exchange->bytes_ns = kvr_loop_now(); /* the silence so far was the client's */
    kvr_stream_resume(&exchange->upstream->stream);
}

void kvr_exchange_cut(struct kvr_exchange *exchange)
{
    kvr_exchange_lose(exchange, "shutdown", false);
}

static void on_ready(void *user)
{
    write_kept(user);
}

static void on_sent(void *user)
{
    struct kvr_exchange *exchange = user;
    exchange->sent_ns = exchange->bytes_ns = kvr_loop_now();
    kvr_router_sent(&exchange->ingress->router, exchange->sent_ns, exchange->request);
}

static void on_failed(void *user, int uv_code, bool stale)
{
    struct kvr_exchange *exchange = user;
    struct kvr_ingress *ingress = exchange->ingress;
    exchange->upstream = NULL;
    if (exchange->state == KVR_EXCHANGE_RELAYING) {
        kvr_exchange_answer_ended(exchange, uv_code);
        return;
    }
    /* A replica that was removed meanwhile has no pool: its requests move. */
    if (stale && !exchange->resent && pool_of(exchange)) {
        ingress->counters.stale_resends++;
        exchange->resent = true;
        if (connect_to(exchange, true))
            write_kept(exchange);
        else if (!exchange->upstream)
            move_unconnected(exchange, exchange->connect_error);
        return;
    }
    if (kvr_exchange_end_held(exchange, uv_code))
        return;
    if (exchange->state == KVR_EXCHANGE_CONNECTING)
        move_unconnected(exchange, uv_code);
    else
        kvr_exchange_move(exchange, true, "lost_before_first_byte");
}

const struct kvr_upstream_events kvr_exchange_upstream_events = {
    .on_ready = on_ready,
    .on_sent = on_sent,
    .on_bytes = kvr_exchange_take_answer,
    .on_failed = on_failed,
};
