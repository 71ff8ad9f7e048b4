#include "router.h"

#include <math.h>
#include <string.h>

#include "decide.h"
#include "gate.h"
#include "memory.h"
#include "rng.h"

#define TTFT_WEIGHT    0.1 /* of one request in a replica's averages */
#define ERROR_WEIGHT   0.05
#define PREFILL_WEIGHT 0.1
#define KEYS_WINDOW_NS 180000000000u /* as long as Preble looks back */
#define WORK_WINDOW_NS KEYS_WINDOW_NS

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
    options->keys.replicas_max = options->replicas_max;
    if (options->keys.span_ns == 0)
        options->keys.span_ns = KEYS_WINDOW_NS;
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
    kvr_window_init(&router->keys, &o->keys);
    if (o->key_tokens)
        kvr_window_init(&router->key_tokens, &o->keys);
    kvr_window_init(&router->openings, &(struct kvr_window_options){.replicas_max = 1});
    kvr_active_blocks_init(&router->active, o->replicas_max, 0);
    kvr_window_init(&router->work, &(struct kvr_window_options){.span_ns = WORK_WINDOW_NS,
                                                                .cells_max = 2,
                                                                .replicas_max = o->replicas_max});
    router->pairs = kvr_alloc_zero(o->replicas_max, sizeof *router->pairs);
    kvr_picture_init(&router->picture, o->replicas_max);
    kvr_request_table_init(&router->requests, o->requests_max);
    kvr_block_ids_init(&router->block_ids, 0);
    kvr_queue_init(&router->queue, &o->queue);
    router->match = kvr_alloc_zero(o->replicas_max, sizeof *router->match);
    for (int i = 0; i < KVR_ROLES; i++) {
        enum kvr_script_role role = (enum kvr_script_role)i;
        router->slots[role] =
            kvr_slot_create(kvr_role_kind(role), &router->picture, o->seed + (uint64_t)role);
        kvr_slot_set_role(router->slots[role], kvr_role_name(role));
    }
    router->reason_fallback = kvr_reason_intern(kvr_slice_of("fallback"));
    router->reason_opaque = kvr_reason_intern(kvr_slice_of("opaque"));
    router->reason_refused = kvr_reason_intern(kvr_slice_of("refused"));
    router->reason_held = kvr_reason_intern(kvr_slice_of("held"));
}

void kvr_router_deinit(struct kvr_router *router)
{
    KVR_CHECK(router->requests.open == 0);
    for (int role = 0; role < KVR_ROLES; role++) {
        kvr_slot_destroy(router->slots[role]);
        kvr_script_record_release(router->records[role]);
    }
    for (int i = 0; i < KVR_SHADOWS_MAX; i++)
        kvr_shadow_deinit(&router->shadows[i]);
    kvr_free(router->match);
    kvr_block_ids_deinit(&router->block_ids);
    kvr_request_table_deinit(&router->requests);
    kvr_picture_deinit(&router->picture);
    kvr_plan_destroy(kvr_router_install_plan(router, NULL, NULL));
    kvr_envelope_destroy(router->envelope);
    kvr_free(router->pairs);
    kvr_window_deinit(&router->work);
    kvr_active_blocks_deinit(&router->active);
    kvr_window_deinit(&router->openings);
    kvr_window_deinit(&router->keys);
    if (router->options.key_tokens)
        kvr_window_deinit(&router->key_tokens);
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

bool kvr_decide_is_canary(const struct kvr_router *router, const struct kvr_request_record *record,
                          uint64_t sequence)
{
    uint64_t named = router->options.canary_by_key ? record->routing_key : record->session;
    if (router->envelope && router->envelope->left)
        return false;
    if (!(router->options.canary_share > 0) || !kvr_slot_info(router->slots[KVR_ROLE_CANARY]))
        return false;
    uint64_t key = named ? named : sequence;
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

double kvr_router_prompt_tokens(struct kvr_router *router, const struct kvr_submission *submission)
{
    struct kvr_model *model = kvr_model_get(&router->models, &router->replicas, submission->model);
    return estimate_tokens(router, model, submission);
}

void kvr_decide_describe(struct kvr_router *router, struct kvr_request_record *record,
                         const struct kvr_submission *submission)
{
    record->user = submission->user;
    copy_text(record->id, sizeof record->id, submission->request_id);
    if (submission->tag.len)
        record->tag = kvr_strndup(submission->tag.data, submission->tag.len < KVR_REQUEST_TAG_MAX
                                                            ? submission->tag.len
                                                            : KVR_REQUEST_TAG_MAX);
    record->model = kvr_model_get(&router->models, &router->replicas, submission->model);
    record->model->serial++;
    if (kvr_model_is_shared(&router->models, record->model))
        record->model_name =
            kvr_strndup(submission->model.data, submission->model.len < KVR_MODEL_NAME_MAX
                                                    ? submission->model.len
                                                    : KVR_MODEL_NAME_MAX - 1);
    record->endpoint = submission->endpoint;
    record->session_source = submission->session_source;
    record->session = submission->session;
    record->tenant = submission->tenant;
    record->client = submission->client;
    record->routing_key = submission->routing_key ? submission->routing_key : submission->session;
    record->model_key =
        kvr_model_key(kvr_hash32(record->model->hash), kvr_hash32(record->routing_key));
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
    record->priority = (float)submission->priority;
    record->slo_ttft_ms = (float)submission->slo_ttft_ms;
    record->received_ns = submission->received_ns;
}

struct kvr_request_ref kvr_router_submit(struct kvr_router *router, uint64_t now_ns,
                                         const struct kvr_submission *submission)
{
    kvr_router_settle(router);
    router->now_ns = now_ns;
    struct kvr_request_ref ref = kvr_request_open(&router->requests);
    if (ref.generation == 0) {
        router->metrics.rejections[KVR_REJECT_REQUESTS_MAX]++;
        return ref;
    }
    router->metrics.submitted++;
    router->sequence++;
    struct kvr_request_record *record = kvr_request_at(&router->requests, ref);
    kvr_decide_describe(router, record, submission);
    if (record->routed)
        kvr_gate_arrived(router, now_ns, record->routing_key);
    record->canary = record->routed && kvr_decide_is_canary(router, record, router->sequence);
    router->metrics.canary += record->canary;
    kvr_decide(router, now_ns, ref, submission->chain);
    return ref;
}

bool kvr_router_next_action(struct kvr_router *router, struct kvr_action *action)
{
    if (router->actions_count == 0 && router->queue.count)
        kvr_decide_waiting(router);
    if (router->actions_count == 0)
        return false;
    *action = router->actions[router->actions_first];
    router->actions_first =
        (router->actions_first + 1) % (sizeof router->actions / sizeof router->actions[0]);
    router->actions_count--;
    return true;
}

void kvr_router_changed(struct kvr_router *router)
{
    router->queue.epoch++;
}

/* The driver's chain will be gone when the request ends. */
static void count_active(struct kvr_router *router, struct kvr_request_record *record)
{
    const uint64_t *chain = router->pending.chain;
    uint32_t len = router->pending.len;
    if (!kvr_active_blocks_add(&router->active, router->pending.replica, chain, len))
        return;
    record->active_chain = kvr_alloc(len * sizeof *chain);
    memcpy(record->active_chain, chain, len * sizeof *chain);
    record->active_len = len;
}

void kvr_router_settle(struct kvr_router *router)
{
    if (router->pending.request.generation == 0)
        return;
    struct kvr_request_record *record = kvr_request_at(&router->requests, router->pending.request);
    uint64_t now_ns = router->pending.now_ns;
    uint32_t replica = router->pending.replica;
    /* First, while all that the acting policy could see is as it was. */
    if (router->pending.shadows)
        kvr_shadow_look(router);
    if (router->pending.key)
        kvr_window_add(&router->keys, now_ns, router->pending.key, replica, 1);
    if (router->pending.key && router->options.key_tokens)
        kvr_window_add(&router->key_tokens, now_ns, router->pending.key, replica,
                       (uint32_t)fminf(record->prompt_tokens, (float)INT32_MAX));
    if (router->pending.uncached)
        kvr_window_add(&router->work, now_ns, 0, replica, router->pending.uncached);
    if (router->pending.chain && (router->pending.needs & KVR_NEEDS_OPENINGS))
        kvr_picture_count_opening(&router->openings, now_ns, router->pending.chain,
                                  router->pending.len);
    if (router->pending.chain && (router->pending.needs & KVR_NEEDS_ACTIVE))
        count_active(router, record);
    if (router->pending.chain && (router->pending.needs & KVR_NEEDS_MATCH)) {
        record->admission = kvr_prefix_index_admit(&router->index, now_ns, router->pending.chain,
                                                   router->pending.len, replica);
        record->admitted = true;
    }
    router->pending.chain = NULL;
    router->pending.request.generation = 0;
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
    uint32_t waiting = 0;
    for (uint32_t slot = router->queue.first; slot != KVR_QUEUE_END; waiting++) {
        KVR_CHECK(router->requests.records[slot].queued);
        slot = router->requests.records[slot].queue_next;
    }
    KVR_CHECK(waiting == router->queue.count);
}
