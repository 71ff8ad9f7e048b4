/* The part of router.h that is about a request after its dispatch. */
#include <math.h>

#include "decide.h"
#include "gate.h"
#include "memory.h"
#include "observe.h"
#include "planning.h"
#include "row.h"

#define TTFT_WEIGHT        0.1 /* of one request in a replica's averages */
#define ERROR_WEIGHT       0.05
#define PREFILL_WEIGHT     0.1
#define OUTPUT_WEIGHT      0.1
#define PREFILL_TOKENS_MIN 64 /* fewer say more of the fixed cost than of the rate */

/* Is the replica it was sent to still the same one, for blame and praise? */
static bool same_replica(const struct kvr_router *router, const struct kvr_request_record *record)
{
    if (record->replica == KVR_NO_REPLICA)
        return false;
    const struct kvr_replica *replica = &router->replicas.slots[record->replica];
    return replica->member && replica->generation == record->replica_generation;
}

void kvr_router_believe(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                        const uint64_t *chain, uint32_t len)
{
    kvr_router_settle(router);
    const struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    if (len && record->admitted && same_replica(router, record))
        kvr_prefix_index_admit(&router->index, now_ns, chain, len, record->replica);
}

void kvr_router_decided(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request)
{
    kvr_request_at(&router->requests, request)->decided_ns = now_ns;
}

void kvr_router_sent(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    if (record->sent_ns == 0 && record->waited_ns == 0)
        kvr_histogram_add(&router->metrics.overhead_us, (now_ns - record->received_ns) / 1000);
    record->sent_ns = now_ns;
    kvr_observe(router, now_ns, record, KVR_SEEN_DISPATCHED, NULL);
}

void kvr_router_first_byte(struct kvr_router *router, uint64_t now_ns,
                           struct kvr_request_ref request, uint16_t status)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    record->first_byte_ns = now_ns;
    record->got_first_byte = true;
    record->upstream_status = status;
    kvr_observe(router, now_ns, record, KVR_SEEN_FIRST_BYTE, NULL);
}

void kvr_router_first_token(struct kvr_router *router, uint64_t now_ns,
                            struct kvr_request_ref request)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    if (record->got_first_token)
        return;
    record->got_first_token = true;
    record->first_token_ns = now_ns;
    kvr_ledger_first_token(&router->ledger, record->ticket);
    uint64_t ttft_ns = now_ns - record->received_ns;
    kvr_histogram_add(&router->metrics.ttft_us, ttft_ns / 1000);
    kvr_gate_answered(router, now_ns, record, ttft_ns);
    if (!same_replica(router, record))
        return;
    struct kvr_load *load = &router->loads[record->replica];
    kvr_ewma_add(&load->ttft_ms, (double)ttft_ns / 1e6, TTFT_WEIGHT);
    /* What it did alone says how fast it prefills: others in flight would hide it. */
    if (record->uncached_tokens >= PREFILL_TOKENS_MIN && record->chosen_in_flight < 1 &&
        now_ns > record->sent_ns && record->sent_ns)
        kvr_ewma_add(&load->prefill_tokens_per_s,
                     record->uncached_tokens * 1e9 / (double)(now_ns - record->sent_ns),
                     PREFILL_WEIGHT);
}

void kvr_router_bytes(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request)
{
    const struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    if (same_replica(router, record))
        kvr_health_bytes(&router->health, record->replica, now_ns);
}

/* Ends the dispatch under way: the ticket, the hold, and what happened to the replica. */
static void leave_replica(struct kvr_router *router, uint64_t now_ns,
                          struct kvr_request_record *record, bool replica_fault, bool good)
{
    if (record->replica == KVR_NO_REPLICA || record->ticket.generation == 0)
        return;
    kvr_ledger_close(&router->ledger, record->ticket);
    router->queue.epoch++;
    record->ticket = (struct kvr_ticket){0, 0};
    if (record->active_chain)
        kvr_active_blocks_remove(&router->active, record->replica, record->active_chain,
                                 record->active_len);
    kvr_free(record->active_chain);
    record->active_chain = NULL;
    if (!same_replica(router, record))
        return;
    if (replica_fault || good)
        kvr_ewma_add(&router->loads[record->replica].error_rate, replica_fault, ERROR_WEIGHT);
    if (replica_fault && kvr_health_broke(&router->health, record->replica, now_ns))
        kvr_prefix_index_purge(&router->index, record->replica);
}

void kvr_router_failed(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                       bool replica_fault, const struct kvr_submission *again)
{
    kvr_router_settle(router);
    router->now_ns = now_ns;
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    KVR_CHECK(record->replica != KVR_NO_REPLICA && !record->got_first_byte);
    kvr_observe(router, now_ns, record, KVR_SEEN_FAILED, NULL);
    if (record->admitted)
        kvr_prefix_index_withdraw(&router->index, again->chain, again->chain_len, record->replica,
                                  record->admission);
    record->admitted = false;
    uint32_t failed = record->replica;
    leave_replica(router, now_ns, record, replica_fault, false);
    record->excluded[record->excluded_count++] = (uint16_t)failed; /* and its hold with it */
    record->replica = KVR_NO_REPLICA;
    if (record->moves == router->options.moves) {
        kvr_decide_reject(router, now_ns, request, KVR_REJECT_ALL_FAILED);
        return;
    }
    record->moves++;
    router->metrics.moves++;
    kvr_decide(router, now_ns, request, again->chain);
}

/* The row has named them: their slots may be given away. */
static void release_holds(struct kvr_router *router, struct kvr_request_record *record)
{
    for (uint16_t i = 0; i < record->excluded_count; i++)
        kvr_decide_release(router, record->excluded[i]);
    kvr_decide_release(router, record->replica);
    kvr_decide_release(router, record->preferred);
    if (record->shadows)
        kvr_shadow_answers_release(router, record->shadows);
}

static void count_belief(struct kvr_router *router, const struct kvr_request_record *record,
                         const struct kvr_ending *ending)
{
    if (!(router->needs & KVR_NEEDS_MATCH) || !record->routed || ending->cached_tokens < 0 ||
        ending->prompt_tokens <= 0 || record->prompt_bytes <= 0)
        return;
    /* In engine tokens, by this request's own ratio of bytes to tokens. */
    double bytes = kvr_router_block_bytes(router, record->match_blocks);
    double predicted = bytes * (double)ending->prompt_tokens / (double)record->prompt_bytes;
    uint64_t believed = (uint64_t)(predicted + 0.5);
    uint64_t actual = (uint64_t)ending->cached_tokens;
    struct kvr_belief_counts *belief = &router->metrics.belief;
    belief->requests++;
    belief->predicted_tokens += believed;
    belief->honoured_tokens += believed < actual ? believed : actual;
    if (believed > actual) {
        belief->over_requests++;
        belief->over_tokens += believed - actual;
    } else if (believed < actual) {
        belief->under_requests++;
        belief->under_tokens += actual - believed;
    }
}

/* What an answer says of its replica. Several at once, or one in one piece, tell no gap. */
static void measure_answer(struct kvr_router *router, uint64_t now_ns,
                           const struct kvr_request_record *record, const struct kvr_ending *ending)
{
    if (ending->outcome != KVR_OUTCOME_SUCCESS || ending->output_tokens <= 0 || !record->routed ||
        record->choices != 1 || !same_replica(router, record))
        return;
    struct kvr_load *load = &router->loads[record->replica];
    double tokens = (double)ending->output_tokens;
    kvr_ewma_add(&load->output_tokens, tokens, OUTPUT_WEIGHT);
    if (record->stream && record->got_first_token && tokens > 1)
        kvr_ewma_add(&load->token_ms,
                     (double)(now_ns - record->first_token_ns) / 1e6 / (tokens - 1), OUTPUT_WEIGHT);
}

static void count_ending(struct kvr_router *router, const struct kvr_ending *ending)
{
    struct kvr_metrics *metrics = &router->metrics;
    metrics->outcomes[ending->outcome]++;
    metrics->bytes_in += ending->bytes_in;
    metrics->bytes_out += ending->bytes_out;
    if (ending->prompt_tokens > 0)
        metrics->prompt_tokens += (uint64_t)ending->prompt_tokens;
    if (ending->cached_tokens > 0)
        metrics->cached_tokens += (uint64_t)ending->cached_tokens;
    if (ending->output_tokens > 0)
        metrics->output_tokens += (uint64_t)ending->output_tokens;
}

void kvr_router_finish(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                       const struct kvr_ending *ending)
{
    kvr_router_settle(
        router); /* the row tells of shadows; a chain that waited goes with its record */
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    router->now_ns = now_ns;
    if (record->queued)
        kvr_queue_remove(&router->queue, &router->requests, record, now_ns);
    count_ending(router, ending);
    kvr_gate_ended(router, now_ns, record, ending);
    if (record->replica != KVR_NO_REPLICA)
        kvr_histogram_add(&router->metrics.total_us, (now_ns - record->received_ns) / 1000);
    count_belief(router, record, ending);
    measure_answer(router, now_ns, record, ending);
    kvr_planning_saw(router, now_ns, record, ending);
    bool good = ending->outcome == KVR_OUTCOME_SUCCESS;
    kvr_observe(router, now_ns, record, good ? KVR_SEEN_DONE : KVR_SEEN_FAILED, ending);
    if (record->routed && ending->prompt_tokens > 0 && record->choices == 1)
        kvr_model_learn(record->model, (double)record->prompt_bytes, (double)ending->prompt_tokens);
    if (router->options.rows)
        kvr_row_write(router, now_ns, record, ending);
    leave_replica(router, now_ns, record, ending->replica_fault, good);
    release_holds(router, record);
    kvr_script_record_release(record->policy);
    kvr_script_record_release(record->spill);
    kvr_free(record->tag);
    kvr_free(record->model_name);
    kvr_free(record->chain);
    kvr_request_close(&router->requests, request);
}

void kvr_router_refused(struct kvr_router *router, uint64_t now_ns,
                        const struct kvr_submission *submission, const struct kvr_ending *ending)
{
    struct kvr_request_record record = {0};
    kvr_router_settle(router);
    router->now_ns = now_ns;
    router->metrics.submitted++;
    router->sequence++;
    kvr_decide_describe(router, &record, submission);
    count_ending(router, ending);
    if (router->options.rows)
        kvr_row_write(router, now_ns, &record, ending);
    kvr_free(record.tag);
    kvr_free(record.model_name);
}
