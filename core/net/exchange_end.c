/* The end of an exchange: what its row says, and what the replica is believed to hold now. */

#include "api_reply.h"
#include "exchange_parts.h"
#include "ingress.h"
#include "memory.h"

void kvr_exchange_destroy(struct kvr_exchange *exchange)
{
    struct kvr_ingress *ingress = exchange->ingress;
    if (ingress->cursor == &exchange->link)
        ingress->cursor = exchange->link.next;
    kvr_list_remove(&exchange->link);
    ingress->exchanges_count--;
    ingress->loop->pace.open--;
    if (exchange->client)
        exchange->client->user = NULL;
    kvr_exchange_let_go_of_request(exchange);
    if (exchange->key)
        kvr_client_key_leave(exchange->key);
    kvr_buffer_deinit(&exchange->answer);
    if (exchange->reading)
        kvr_usage_reader_deinit(&exchange->usage);
    kvr_buffer_deinit(&exchange->reply);
    kvr_free(exchange->tail);
    kvr_free(exchange->chain);
    kvr_spares_give(&ingress->spares, exchange, kvr_spares_size(sizeof *exchange));
}

static double milliseconds(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void fill_usage(struct kvr_exchange *exchange, uint64_t now_ns, struct kvr_ending *ending)
{
    struct kvr_usage_reader *reader = &exchange->usage;
    kvr_usage_reader_finish(reader, now_ns);
    ending->prompt_tokens = reader->usage.prompt_tokens;
    ending->output_tokens = reader->usage.completion_tokens;
    ending->cached_tokens = reader->usage.cached_tokens;
    ending->events = reader->content_events;
    ending->done_seen = reader->done_seen;
    if (reader->content_events > 1) {
        struct kvr_usage_gaps gaps = kvr_usage_reader_gaps(reader);
        ending->gap_mean_ms = milliseconds(gaps.mean_ns);
        ending->gap_p50_ms = milliseconds(gaps.median_ns);
        ending->gap_max_ms = milliseconds(gaps.max_ns);
    }
    if ((reader->error_seen || reader->aborted) && ending->outcome == KVR_OUTCOME_SUCCESS) {
        ending->outcome = KVR_OUTCOME_FAILED;
        ending->error = reader->error_seen ? "error_in_answer" : "aborted_by_engine";
    }
    struct kvr_ingress_replica *replica = &exchange->ingress->replicas[exchange->replica];
    /* Engines leave zero out; one that has told a number before means zero by silence. */
    if (ending->cached_tokens >= 0) {
        replica->tells_cached = true;
    } else if (replica->tells_cached && ending->prompt_tokens > 0) {
        ending->cached_tokens = 0;
        ending->cached_inferred = true;
    }
}

/* The reply is the start of the next turn's history, and the engine holds it already. */
static void believe_reply(struct kvr_exchange *exchange, uint64_t now_ns)
{
    struct kvr_ingress *ingress = exchange->ingress;
    if (!exchange->tail || !exchange->reading || exchange->usage.reply_spoiled ||
        exchange->reply.len == 0)
        return;
    kvr_router_settle(&ingress->router);
    kvr_prompt_resume(&ingress->prompt, exchange->tail);
    kvr_api_add_reply(&ingress->prompt, kvr_buffer_slice(&exchange->reply));
    kvr_router_believe(&ingress->router, now_ns, exchange->request, ingress->prompt.chain,
                       ingress->prompt.chain_len);
}

/* The one way out: a row, and the exchange is gone. */
void kvr_exchange_finish(struct kvr_exchange *exchange, enum kvr_outcome outcome, const char *error,
                         uint16_t status, bool replica_fault)
{
    struct kvr_ingress *ingress = exchange->ingress;
    uint64_t now_ns = kvr_loop_now();
    struct kvr_ending ending = kvr_ending_make(outcome, error, status);
    ending.upstream_status = exchange->status;
    ending.replica_fault = replica_fault;
    ending.bytes_in = exchange->request_bytes;
    ending.bytes_out = exchange->body_bytes;
    ending.chain = exchange->chain;
    ending.chain_len = exchange->chain_len;
    if (exchange->reading)
        fill_usage(exchange, now_ns, &ending);
    if (ending.outcome == KVR_OUTCOME_SUCCESS)
        believe_reply(exchange, now_ns);
    if (exchange->upstream)
        kvr_upstream_drop(exchange->upstream);
    exchange->upstream = NULL;
    kvr_router_finish(&ingress->router, now_ns, exchange->request, &ending);
    kvr_exchange_destroy(exchange);
    kvr_ingress_take_rows(ingress);
    kvr_ingress_act(ingress); /* somebody may have waited for this */
}
