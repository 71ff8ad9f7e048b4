#include "router.h"

#include <math.h>
#include <string.h>

#include "decide.h"
#include "memory.h"
#include "rng.h"
#include "row.h"

#define TTFT_WEIGHT        0.1 /* of one request in a replica's averages */
#define ERROR_WEIGHT       0.05
#define PREFILL_WEIGHT     0.1
#define KEYS_WINDOW_NS     180000000000u /* as long as Preble looks back */
#define PREFILL_TOKENS_MIN 64            /* fewer say more of the fixed cost than of the rate */

static void fill_defaults(struct kvr_router_options *options)
{
    if (options->replicas_max == 0)
        options->replicas_max = 64;
    if (options->requests_max == 0)
        options->requests_max = 16384;
    if (options->vnodes == 0)
        options->vnodes = KVR_RING_VNODES_DEFAULT;
    if (options->block_bytes == 0)
        options->block_bytes = KVR_PROMPT_BLOCK_BYTES;
    if (!(options->bytes_per_token > 0))
        options->bytes_per_token = 4;
    if (options->hit_rate_window_ns == 0)
        options->hit_rate_window_ns = 10000000000u;
    if (options->moves > KVR_MOVES_MAX)
        options->moves = KVR_MOVES_MAX;
    options->index.replicas_max = options->replicas_max;
}

void kvr_router_init(struct kvr_router *router, const struct kvr_router_options *options)
{
    memset(router, 0, sizeof *router);
    router->options = *options;
    fill_defaults(&router->options);
    const struct kvr_router_options *o = &router->options;
    kvr_replica_table_init(&router->replicas, o->replicas_max);
    router->loads = kvr_alloc_zero(o->replicas_max, sizeof *router->loads);
    for (uint32_t i = 0; i < o->replicas_max; i++)
        kvr_load_init(&router->loads[i]);
    kvr_ledger_init(&router->ledger, o->requests_max, router->loads, o->replicas_max);
    kvr_health_init(&router->health, &o->health, &router->replicas);
    kvr_prefix_index_init(&router->index, &o->index);
    kvr_model_table_init(&router->models, o->replicas_max, o->vnodes, o->bytes_per_token);
    kvr_window_init(&router->keys, &(struct kvr_window_options){.span_ns = KEYS_WINDOW_NS,
                                                                .replicas_max = o->replicas_max});
    router->pairs = kvr_alloc_zero(o->replicas_max, sizeof *router->pairs);
    kvr_picture_init(&router->picture, o->replicas_max);
    kvr_request_table_init(&router->requests, o->requests_max);
    kvr_block_ids_init(&router->block_ids, 0);
    router->match = kvr_alloc_zero(o->replicas_max, sizeof *router->match);
    router->policy = kvr_slot_create(KVR_SCRIPT_POLICY, &router->picture, o->seed);
    router->spill = kvr_slot_create(KVR_SCRIPT_SPILL, &router->picture, o->seed + 1);
    router->canary = kvr_slot_create(KVR_SCRIPT_POLICY, &router->picture, o->seed + 2);
    router->reason_fallback = kvr_reason_intern(kvr_slice_of("fallback"));
    router->reason_opaque = kvr_reason_intern(kvr_slice_of("opaque"));
}

void kvr_router_deinit(struct kvr_router *router)
{
    KVR_CHECK(router->requests.open == 0);
    kvr_slot_destroy(router->policy);
    kvr_slot_destroy(router->spill);
    kvr_slot_destroy(router->canary);
    for (size_t i = 0; i < sizeof router->records / sizeof router->records[0]; i++)
        kvr_script_record_release(router->records[i]);
    kvr_free(router->match);
    kvr_block_ids_deinit(&router->block_ids);
    kvr_request_table_deinit(&router->requests);
    kvr_picture_deinit(&router->picture);
    kvr_free(router->pairs);
    kvr_window_deinit(&router->keys);
    kvr_model_table_deinit(&router->models);
    kvr_prefix_index_deinit(&router->index);
    kvr_health_deinit(&router->health);
    kvr_ledger_deinit(&router->ledger);
    kvr_free(router->loads);
    kvr_replica_table_deinit(&router->replicas);
    kvr_buffer_deinit(&router->rows);
}

static void copy_text(char *to, size_t room, struct kvr_slice from)
{
    size_t len = from.len < room - 1 ? from.len : room - 1;
    memcpy(to, from.data ? from.data : "", len);
    to[len] = '\0';
}

/* A session is always on the same side, whatever the share's neighbours do. */
static bool is_canary(const struct kvr_router *router, const struct kvr_submission *submission)
{
    if (!(router->options.canary_share > 0) || !kvr_slot_info(router->canary))
        return false;
    uint64_t key = submission->session ? submission->session : router->sequence;
    return (double)(kvr_mix64(key ^ 0x63616e617279) >> 11) * 0x1.0p-53 <
           router->options.canary_share;
}

static double estimate_tokens(const struct kvr_router *router, const struct kvr_model *model,
                              const struct kvr_submission *submission)
{
    double tokens = submission->prompt_tokens;
    if (isnan(tokens))
        tokens = submission->prompt_bytes / kvr_model_bytes_per_token(&router->models, model);
    return tokens + submission->extra_tokens;
}

static void open_record(struct kvr_router *router, struct kvr_request_record *record,
                        const struct kvr_submission *submission)
{
    record->user = submission->user;
    copy_text(record->id, sizeof record->id, submission->request_id);
    if (submission->tag.len)
        record->tag = kvr_strndup(submission->tag.data, submission->tag.len < KVR_REQUEST_TAG_MAX
                                                            ? submission->tag.len
                                                            : KVR_REQUEST_TAG_MAX);
    record->model = kvr_model_get(&router->models, submission->model);
    record->model->serial++;
    record->endpoint = submission->endpoint;
    record->session_source = submission->session_source;
    record->session = submission->session;
    record->tenant = submission->tenant;
    record->routing_key = submission->routing_key ? submission->routing_key : submission->session;
    record->sequence = router->sequence;
    record->replica = KVR_NO_REPLICA;
    record->preferred = KVR_NO_REPLICA;
    record->routed = submission->routed;
    record->stream = submission->stream;
    record->turn = submission->turn;
    record->choices = submission->choices ? submission->choices : 1;
    record->chain_len = submission->chain_len;
    record->prompt_bytes = (float)submission->prompt_bytes;
    record->prompt_tokens = (float)estimate_tokens(router, record->model, submission);
    record->max_tokens = (float)submission->max_tokens;
    record->received_ns = submission->received_ns;
}

struct kvr_request_ref kvr_router_submit(struct kvr_router *router, uint64_t now_ns,
                                         const struct kvr_submission *submission)
{
    kvr_router_settle(router);
    struct kvr_request_ref ref = kvr_request_open(&router->requests);
    router->metrics.submitted++;
    router->sequence++;
    if (ref.generation == 0) {
        router->metrics.rejections[KVR_REJECT_REQUESTS_MAX]++;
        return ref;
    }
    struct kvr_request_record *record = kvr_request_at(&router->requests, ref);
    open_record(router, record, submission);
    record->canary = submission->routed && is_canary(router, submission);
    router->metrics.canary += record->canary;
    kvr_decide(router, now_ns, ref, submission);
    return ref;
}

bool kvr_router_next_action(struct kvr_router *router, struct kvr_action *action)
{
    if (router->actions_count == 0)
        return false;
    *action = router->actions[router->actions_first];
    router->actions_first =
        (router->actions_first + 1) % (sizeof router->actions / sizeof router->actions[0]);
    router->actions_count--;
    return true;
}

void kvr_router_settle(struct kvr_router *router)
{
    if (!router->pending.chain)
        return;
    uint32_t stamp =
        kvr_prefix_index_admit(&router->index, router->pending.now_ns, router->pending.chain,
                               router->pending.len, router->pending.replica);
    router->pending.chain = NULL;
    struct kvr_request_ref ref = router->pending.request;
    struct kvr_request_record *record = &router->requests.records[ref.slot];
    if (record->generation != ref.generation)
        return;
    record->admission = stamp;
    record->admitted = true;
}

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

static void observe(struct kvr_router *router, uint64_t now_ns,
                    const struct kvr_request_record *record, uint32_t kind,
                    const struct kvr_ending *ending)
{
    struct kvr_slot *slot = record->canary ? router->canary : router->policy;
    const struct kvr_script_info *info = kvr_slot_info(slot);
    if (!info || !info->observes || record->replica == KVR_NO_REPLICA || !record->routed)
        return;
    struct kvr_observation *seen = &router->picture.observation;
    *seen = (struct kvr_observation){
        .now_ms = (double)now_ns / 1e6,
        .ttft_ms = (double)NAN,
        .total_ms = (double)NAN,
        .prompt_tokens = (double)NAN,
        .cached_tokens = (double)NAN,
        .output_tokens = (double)NAN,
        .kind = kind,
        .replica = record->replica,
        .session = kvr_hash32(record->session),
        .routing_key = kvr_hash32(record->routing_key),
        .match_blocks = record->match_blocks,
        .model = kvr_hash32(record->model->hash),
    };
    if (record->first_token_ns)
        seen->ttft_ms = (double)(record->first_token_ns - record->received_ns) / 1e6;
    if (ending) {
        seen->total_ms = (double)(now_ns - record->received_ns) / 1e6;
        if (ending->prompt_tokens >= 0)
            seen->prompt_tokens = (double)ending->prompt_tokens;
        if (ending->cached_tokens >= 0)
            seen->cached_tokens = (double)ending->cached_tokens;
        if (ending->output_tokens >= 0)
            seen->output_tokens = (double)ending->output_tokens;
    }
    kvr_slot_observe(slot);
}

enum { DISPATCHED, FIRST_BYTE, DONE, FAILED };

void kvr_router_sent(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    if (record->sent_ns == 0)
        kvr_histogram_add(&router->metrics.overhead_us, (now_ns - record->received_ns) / 1000);
    record->sent_ns = now_ns;
    observe(router, now_ns, record, DISPATCHED, NULL);
}

void kvr_router_first_byte(struct kvr_router *router, uint64_t now_ns,
                           struct kvr_request_ref request, uint16_t status)
{
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    record->first_byte_ns = now_ns;
    record->got_first_byte = true;
    record->upstream_status = status;
    observe(router, now_ns, record, FIRST_BYTE, NULL);
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
    struct kvr_replica *replica = &router->replicas.slots[record->replica];
    kvr_ledger_close(&router->ledger, record->ticket);
    record->ticket = (struct kvr_ticket){0, 0};
    KVR_CHECK(replica->holds > 0);
    replica->holds--;
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
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    KVR_CHECK(record->replica != KVR_NO_REPLICA && !record->got_first_byte);
    observe(router, now_ns, record, FAILED, NULL);
    if (record->admitted)
        kvr_prefix_index_withdraw(&router->index, again->chain, again->chain_len, record->replica,
                                  record->admission);
    record->admitted = false;
    uint32_t failed = record->replica;
    leave_replica(router, now_ns, record, replica_fault, false);
    record->excluded[record->excluded_count++] = (uint16_t)failed;
    if (record->moves == router->options.moves) {
        record->replica = KVR_NO_REPLICA;
        router->metrics.rejections[KVR_REJECT_ALL_FAILED]++;
        router->actions[(router->actions_first + router->actions_count++) %
                        (sizeof router->actions / sizeof router->actions[0])] =
            (struct kvr_action){.kind = KVR_ACTION_REJECT,
                                .request = request,
                                .user = record->user,
                                .rejection = KVR_REJECT_ALL_FAILED};
        return;
    }
    record->moves++;
    router->metrics.moves++;
    kvr_decide(router, now_ns, request, again);
}

static void count_belief(struct kvr_router *router, const struct kvr_request_record *record,
                         const struct kvr_ending *ending)
{
    if (!(router->needs & KVR_NEEDS_MATCH) || !record->routed || ending->cached_tokens < 0 ||
        ending->prompt_tokens <= 0 || record->prompt_bytes <= 0)
        return;
    /* In engine tokens, by this request's own ratio of bytes to tokens. */
    double bytes = (double)record->match_blocks * router->options.block_bytes;
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
    struct kvr_request_record *record = kvr_request_at(&router->requests, request);
    count_ending(router, ending);
    if (record->replica != KVR_NO_REPLICA)
        kvr_histogram_add(&router->metrics.total_us, (now_ns - record->received_ns) / 1000);
    count_belief(router, record, ending);
    bool good = ending->outcome == KVR_OUTCOME_SUCCESS;
    observe(router, now_ns, record, good ? DONE : FAILED, ending);
    if (record->routed && ending->prompt_tokens > 0 && record->choices == 1)
        kvr_model_learn(record->model, (double)record->prompt_bytes, (double)ending->prompt_tokens);
    if (router->options.rows)
        kvr_row_write(router, now_ns, record, ending);
    leave_replica(router, now_ns, record, ending->replica_fault, good);
    kvr_script_record_release(record->policy);
    kvr_script_record_release(record->spill);
    kvr_free(record->tag);
    kvr_request_close(&router->requests, request);
}

const struct kvr_request_record *kvr_router_request(const struct kvr_router *router,
                                                    struct kvr_request_ref request)
{
    return kvr_request_at(&router->requests, request);
}

void kvr_router_verify(const struct kvr_router *router)
{
    kvr_ledger_verify(&router->ledger);
    uint32_t open = 0, dispatched = 0;
    for (uint32_t i = 0; i < router->requests.capacity; i++) {
        const struct kvr_request_record *record = &router->requests.records[i];
        if (record->generation % 2 == 0)
            continue;
        open++;
        dispatched += record->ticket.generation != 0;
    }
    KVR_CHECK(open == router->requests.open);
    KVR_CHECK(dispatched == router->ledger.open);
}
