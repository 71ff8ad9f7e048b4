/* The part of decide.h that fills the view: facts of the request and of each replica, as one
 * decision sees them. */
#include <math.h>
#include <string.h>

#include "decide.h"

double kvr_router_block_bytes(const struct kvr_router *router, uint32_t blocks)
{
    double narrow = router->options.block_bytes;
    double until = router->options.wide_after ? (double)router->options.wide_after : 1e18;
    double bytes = blocks * narrow;
    if (bytes <= until)
        return bytes;
    /* Blocks that start at or after `until` are wide. */
    double narrow_blocks = ceil(until / narrow);
    return narrow_blocks * narrow + (blocks - narrow_blocks) * KVR_PROMPT_WIDE_BYTES;
}

static double milliseconds(uint64_t ns)
{
    return (double)(int64_t)ns / 1e6;
}

static double age_ms(uint64_t now_ns, uint64_t since_ns)
{
    return since_ns == 0 ? (double)NAN : milliseconds(now_ns > since_ns ? now_ns - since_ns : 0);
}

bool kvr_decide_is_excluded(const struct kvr_request_record *record, uint32_t replica)
{
    for (uint16_t i = 0; i < record->excluded_count; i++)
        if (record->excluded[i] == replica)
            return true;
    return false;
}

static void fill_request(struct kvr_router *router, uint64_t now_ns,
                         const struct kvr_request_record *record, const uint64_t *chain)
{
    struct kvr_request_view *view = &router->picture.request;
    view->now_ms = milliseconds(now_ns);
    view->prompt_bytes = (double)record->prompt_bytes;
    view->prompt_tokens = (double)record->prompt_tokens;
    view->max_tokens = (double)record->max_tokens;
    view->priority = (double)record->priority;
    view->slo_ttft_ms = (double)record->slo_ttft_ms;
    view->chain = (const struct kvr_block_key *)(const void *)chain;
    view->chain_len = record->chain_len;
    view->block_bytes = router->options.block_bytes;
    view->serial = record->model->serial;
    view->model = kvr_hash32(record->model->hash);
    view->session = kvr_hash32(record->session);
    view->tenant = kvr_hash32(record->tenant);
    view->routing_key = kvr_hash32(record->routing_key);
    view->turn = record->turn;
    view->attempt = record->excluded_count;
    view->stream = record->stream;
}

/* When this request's key last went to each replica, as ages in the rows. */
static void fill_key_ages(struct kvr_router *router, uint64_t now_ns,
                          const struct kvr_request_record *record)
{
    const struct kvr_model *model = record->model;
    struct kvr_replica_view *rows = router->picture.rows;
    uint32_t count = kvr_window_pairs(&router->keys, now_ns, record->model_key, router->pairs,
                                      router->options.replicas_max);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t row = 0; row < model->members_count; row++)
            if (rows[row].id == router->pairs[i].replica)
                rows[row].key_age_ms = age_ms(now_ns, router->pairs[i].last_ns);
}

/* Which rows the plan has for this request's key, or its handover, while that moves it. */
static void fill_assigned(struct kvr_router *router, uint64_t now_ns,
                          const struct kvr_request_record *record)
{
    struct kvr_picture *picture = &router->picture;
    uint32_t count, members = record->model->members_count;
    uint64_t key = record->model_key;
    const uint16_t *assigned = NULL;
    if (router->handover)
        assigned =
            kvr_handover_lookup(router->handover, now_ns, key, record->model->serial, &count);
    if (!assigned)
        assigned = kvr_plan_lookup(router->plan, key, &count);
    picture->view.planned = count > 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = router->plan_replicas[assigned[i]];
        uint32_t row = 0;
        while (row < members && picture->ids[row] != id)
            row++;
        if (row < members)
            picture->rows[row].assigned = 1;
    }
}

/* Most replicas have no weight and hold nothing of most prompts, and a division costs as much as
 * half the rest of a row. */
static inline double quotient(double dividend, double divisor)
{
    return divisor == 1.0 || dividend == 0.0 ? dividend : dividend / divisor;
}

static void fill_work(struct kvr_router *router, uint64_t now_ns, uint32_t count)
{
    struct kvr_replica_view *rows = router->picture.rows;
    for (uint32_t i = 0; i < count; i++)
        rows[i].recent_uncached_tokens =
            (double)kvr_window_total_at(&router->work, now_ns, rows[i].id);
}

static void fill_row(struct kvr_router *router, uint64_t now_ns, uint32_t slot,
                     double bytes_per_token, struct kvr_replica_view *row)
{
    const struct kvr_replica *replica = &router->replicas.slots[slot];
    const struct kvr_load *load = &router->loads[slot];
    uint32_t match = router->match[slot];
    row->id = slot;
    row->name = (uint32_t)(replica->id >> 32) | 1;
    row->weight = replica->weight;
    row->ramp = kvr_replica_ramp(replica, now_ns);
    row->in_flight = load->in_flight;
    row->load = quotient(row->in_flight, row->weight * row->ramp);
    row->capacity = replica->capacity == UINT32_MAX ? (double)INFINITY : replica->capacity;
    row->uncached_tokens = (double)(int64_t)load->uncached_tokens; /* one instruction, not ten */
    row->active_tokens = (double)(int64_t)load->prompt_tokens;
    row->remote_in_flight = (double)NAN;
    row->remote_age_ms = (double)NAN;
    row->age_ms = age_ms(now_ns, replica->available_since_ns);
    row->running = load->signals.running;
    row->waiting = load->signals.waiting;
    row->kv_usage = load->signals.kv_usage;
    row->engine_hit_rate = load->hit_rate;
    row->signals_age_ms = age_ms(now_ns, load->signals_ns);
    row->match_blocks = match;
    row->match_tokens = match ? kvr_router_block_bytes(router, match) / bytes_per_token : 0.0;
    double left = router->picture.request.prompt_tokens - row->match_tokens;
    row->prefill_tokens = row->uncached_tokens + (left > 0.0 ? left : 0.0);
    row->resident_blocks = 0;
    row->active_blocks = row->active_match_blocks = 0;
    row->resident_tokens = (double)NAN;
    row->ttft_ms = load->ttft_ms.value;
    row->error_rate = load->error_rate.value;
    row->prefill_tokens_per_s = load->prefill_tokens_per_s.value;
    row->output_tokens = load->output_tokens.value;
    row->token_ms = load->token_ms.value;
    row->recent_uncached_tokens = (double)NAN;
    row->key_age_ms = (double)NAN;
    row->assigned = 0;
    row->operational = replica->operational;
    row->administrative = replica->administrative;
}

static void fill_active(struct kvr_router *router, const struct kvr_request_record *record,
                        const uint64_t *chain)
{
    for (uint32_t i = 0; i < record->model->members_count; i++) {
        struct kvr_replica_view *row = &router->picture.rows[i];
        row->active_blocks = kvr_active_blocks_distinct(&router->active, row->id);
        row->active_match_blocks =
            kvr_active_blocks_match(&router->active, row->id, chain, record->chain_len);
    }
}

void kvr_decide_view(struct kvr_router *router, uint64_t now_ns,
                     const struct kvr_request_record *record, const uint64_t *chain, uint32_t needs)
{
    struct kvr_picture *picture = &router->picture;
    struct kvr_model *model = record->model;
    bool plan = (needs & KVR_NEEDS_PLAN) && router->plan && record->routing_key;
    if (plan)
        kvr_plan_prefetch(router->plan, record->model_key);
    kvr_model_refresh(&router->models, model, &router->replicas);
    double bytes_per_token = kvr_model_bytes_per_token(&router->models, model);
    memset(router->match, 0, router->options.replicas_max * sizeof *router->match);
    if ((needs & KVR_NEEDS_MATCH) && record->chain_len)
        kvr_prefix_index_match(&router->index, now_ns, chain, record->chain_len, router->match);
    fill_request(router, now_ns, record, chain);
    picture->ring = &model->ring;
    picture->keys = needs & KVR_NEEDS_KEYS ? &router->keys : NULL;
    picture->openings = needs & KVR_NEEDS_OPENINGS ? &router->openings : NULL;
    picture->now_ns = now_ns;
    for (uint32_t i = 0; i < model->members_count; i++) {
        uint32_t slot = model->members[i];
        const struct kvr_replica *replica = &router->replicas.slots[slot];
        struct kvr_replica_view *row = &picture->rows[i];
        fill_row(router, now_ns, slot, bytes_per_token, row);
        row->available = kvr_replica_in_rotation(replica) &&
                         !kvr_decide_is_excluded(record, slot) &&
                         router->loads[slot].in_flight < replica->capacity;
        picture->ids[i] = replica->id;
        picture->weights[i] = replica->weight;
    }
    if (needs & KVR_NEEDS_ACTIVE)
        fill_active(router, record, chain);
    if (needs & KVR_NEEDS_WORK)
        fill_work(router, now_ns, model->members_count);
    if ((needs & KVR_NEEDS_KEYS) && record->routing_key)
        fill_key_ages(router, now_ns, record);
    picture->view.planned = 0;
    if (plan)
        fill_assigned(router, now_ns, record);
    kvr_picture_summarise(picture, model->members_count);
}
