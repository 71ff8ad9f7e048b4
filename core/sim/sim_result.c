/* What comes out of a simulation: counts as requests end, their records, and the summary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "sim_parts.h"

/* ---- while it runs ---- */

static void add_sample(struct kvr_samples *samples, double value)
{
    if (samples->len == samples->capacity) {
        samples->capacity = samples->capacity ? samples->capacity * 2 : 1024;
        samples->items = kvr_realloc(samples->items, samples->capacity * sizeof *samples->items);
    }
    samples->items[samples->len++] = value;
}

static void keep_record(struct kvr_sim *sim, const struct kvr_sim_record *record)
{
    uint64_t at = sim->records_first + sim->records_len++;
    uint64_t page = at / KVR_SIM_PAGE;
    if (page >= sim->pages_capacity) {
        uint64_t capacity = sim->pages_capacity ? sim->pages_capacity * 2 : 64;
        sim->pages = kvr_realloc(sim->pages, capacity * sizeof *sim->pages);
        memset(sim->pages + sim->pages_capacity, 0,
               (capacity - sim->pages_capacity) * sizeof *sim->pages);
        sim->pages_capacity = capacity;
    }
    if (!sim->pages[page])
        sim->pages[page] = kvr_alloc(KVR_SIM_PAGE * sizeof **sim->pages);
    sim->pages[page][at % KVR_SIM_PAGE] = *record;
}

/* Reasons are interned as scripts first use them: looked at once each. */
static bool is_deflection(struct kvr_sim *sim, uint16_t reason)
{
    static const char mark[] = "_deflected";
    while (sim->reasons_known <= reason) {
        const char *text = kvr_reason_text(sim->reasons_known);
        size_t len = strlen(text);
        sim->deflecting[sim->reasons_known++] =
            len > sizeof mark - 1 && strcmp(text + len - (sizeof mark - 1), mark) == 0;
    }
    return sim->deflecting[reason];
}

static void count_decision(struct kvr_sim *sim, const struct kvr_sim_record *record)
{
    struct kvr_sim_counts *counts = &sim->counts;
    if (record->replica == UINT16_MAX)
        return;
    sim->nodes[record->replica].seen.requests++;
    KVR_CHECK(record->reason < KVR_REASONS_MAX);
    counts->reasons[record->reason]++;
    counts->spilled += record->declined != UINT16_MAX;
    counts->cold += record->reason == sim->reason_cold;
    counts->deflected += is_deflection(sim, record->reason);
    counts->fallbacks += record->fallback;
    counts->moved += record->moves > 0;
}

/* What was believed of the replica against what the engine found, as the router counts it. */
static void count_belief(struct kvr_sim *sim, const struct kvr_sim_record *record)
{
    double bytes = kvr_router_block_bytes(&sim->router, record->match_blocks);
    double all = record->prompt_bytes;
    uint64_t believed = all > 0 ? (uint64_t)(bytes * record->prompt_tokens / all + 0.5) : 0;
    sim->counts.believed_tokens += believed;
    sim->counts.honoured_tokens +=
        believed < record->cached_tokens ? believed : record->cached_tokens;
}

static void count_success(struct kvr_sim *sim, struct kvr_sim_record *record)
{
    struct kvr_sim_counts *counts = &sim->counts;
    struct kvr_sim_replica *seen = &sim->nodes[record->replica].seen;
    bool late = record->ttft_ms > sim->options.slo_ttft_ms;
    bool slow = record->itl_p50_ms > sim->options.slo_itl_ms;
    record->good = !late && !slow;
    counts->success++;
    counts->late_ttft += late;
    counts->slow_itl += slow;
    counts->good += record->good;
    counts->prompt_tokens += record->prompt_tokens;
    counts->cached_tokens += record->cached_tokens;
    counts->output_tokens += record->output_tokens;
    counts->preemptions += record->preemptions;
    seen->good += record->good;
    seen->prompt_tokens += record->prompt_tokens;
    seen->cached_tokens += record->cached_tokens;
    add_sample(&sim->ttft, record->ttft_ms);
    add_sample(&sim->e2el, record->e2el_ms);
    if (record->output_tokens > 1) {
        add_sample(&sim->itl, record->itl_p50_ms);
        add_sample(&sim->itl_max, record->itl_max_ms);
    }
    count_belief(sim, record);
}

void kvr_sim_count(struct kvr_sim *sim, struct kvr_sim_request *request)
{
    struct kvr_sim_record *record = &request->record;
    if (request->measured) {
        count_decision(sim, record);
        if (record->outcome == KVR_OUTCOME_SUCCESS)
            count_success(sim, record);
        else if (record->outcome == KVR_OUTCOME_FAILED)
            sim->counts.failed++;
        else if (record->outcome == KVR_OUTCOME_DROPPED)
            sim->counts.dropped++;
        else
            sim->counts.timed_out += request->given_up;
    } else if (record->outcome == KVR_OUTCOME_SUCCESS) {
        record->good = record->ttft_ms <= sim->options.slo_ttft_ms &&
                       record->itl_p50_ms <= sim->options.slo_itl_ms;
    }
    if (sim->options.records)
        keep_record(sim, record);
}

/* ---- records and rows ---- */

const struct kvr_sim_record *kvr_sim_records(const struct kvr_sim *sim, uint64_t first,
                                             uint32_t *len)
{
    *len = 0;
    uint64_t end = sim->records_first + sim->records_len;
    if (first < sim->records_first || first >= end)
        return NULL;
    uint64_t in_page = KVR_SIM_PAGE - first % KVR_SIM_PAGE;
    *len = (uint32_t)(end - first < in_page ? end - first : in_page);
    return &sim->pages[first / KVR_SIM_PAGE][first % KVR_SIM_PAGE];
}

void kvr_sim_forget_records(struct kvr_sim *sim, uint64_t first)
{
    uint64_t end = sim->records_first + sim->records_len;
    if (first > end)
        first = end;
    if (first <= sim->records_first)
        return;
    for (uint64_t page = sim->records_first / KVR_SIM_PAGE; page < first / KVR_SIM_PAGE; page++) {
        kvr_free(sim->pages[page]);
        sim->pages[page] = NULL;
    }
    sim->records_len = end - first;
    sim->records_first = first;
}

const char *kvr_sim_rows(const struct kvr_sim *sim, size_t *len)
{
    *len = sim->router.rows.len;
    return sim->router.rows.data;
}

void kvr_sim_take_rows(struct kvr_sim *sim, size_t len)
{
    kvr_buffer_consume(&sim->router.rows, len);
}

void kvr_sim_records_deinit(struct kvr_sim *sim)
{
    for (uint64_t i = 0; i < sim->pages_capacity; i++)
        kvr_free(sim->pages[i]);
    kvr_free(sim->pages);
    kvr_free(sim->ttft.items);
    kvr_free(sim->itl.items);
    kvr_free(sim->itl_max.items);
    kvr_free(sim->e2el.items);
}

/* ---- the summary ---- */

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Of sorted samples, interpolated between the two next ones. Beyond `len` all are infinite, up to
 * `all`. */
static double quantile(const double *sorted, uint64_t len, uint64_t all, double share)
{
    if (all == 0)
        return (double)NAN;
    double at = share * (double)(all - 1);
    uint64_t low = (uint64_t)at;
    double part = at - (double)low;
    double a = low < len ? sorted[low] : (double)INFINITY;
    double b = low + 1 < len ? sorted[low + 1] : low + 1 < all ? (double)INFINITY : a;
    return part > 0 && a < (double)INFINITY ? a + (b - a) * part : a;
}

static struct kvr_sim_quantiles quantiles(struct kvr_samples *samples)
{
    uint64_t len = samples->len;
    double sum = 0;
    if (len)
        qsort(samples->items, len, sizeof *samples->items, compare);
    for (uint64_t i = 0; i < len; i++)
        sum += samples->items[i];
    return (struct kvr_sim_quantiles){
        .mean = len ? sum / (double)len : (double)NAN,
        .p50 = quantile(samples->items, len, len, 0.50),
        .p90 = quantile(samples->items, len, len, 0.90),
        .p95 = quantile(samples->items, len, len, 0.95),
        .p99 = quantile(samples->items, len, len, 0.99),
        .max = len ? samples->items[len - 1] : (double)NAN,
    };
}

/* From the first to the end of the last request's share of time. */
static double window_s(const struct kvr_sim *sim)
{
    uint64_t requests = sim->counts.requests;
    if (sim->stop_ns != UINT64_MAX && sim->last_request == UINT64_MAX && sim->warmup_requests == 0)
        return (double)(sim->stop_ns - sim->warmup_ns) / 1e9;
    if (requests < 2)
        return (double)NAN;
    double span = (double)(sim->last_sent_ns - sim->first_measured_ns) / 1e9;
    return span * (double)requests / (double)(requests - 1);
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static void summarise_replicas(const struct kvr_sim *sim, struct kvr_sim_result *result)
{
    double most = 0, least = INFINITY, all = 0;
    for (uint32_t i = 0; i < sim->nodes_len; i++) {
        double requests = sim->nodes[i].seen.requests;
        most = fmax(most, requests);
        least = fmin(least, requests);
        all += requests;
        result->steps += (double)sim->nodes[i].engine.counters.steps;
    }
    result->busiest_share = share(most, all);
    result->quietest_share = share(least, all);
    result->imbalance = share(most * sim->nodes_len, all);
}

static void summarise_run(const struct kvr_sim *sim, struct kvr_sim_result *result)
{
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&sim->router.index, &stats);
    result->sent = (double)sim->sent;
    result->ended = (double)sim->ended;
    result->simulated_s = (double)(sim->now_ns - KVR_SIM_ORIGIN_NS) / 1e9;
    result->events = (double)sim->events;
    result->index_blocks = stats.blocks;
    result->index_evicted = (double)stats.counters.blocks_evicted;
    result->hash = sim->hash;
    for (int role = 0; role < KVR_ROLES; role++) {
        const struct kvr_script_counters *counters = kvr_slot_counters(sim->router.slots[role]);
        result->script_errors += (double)(counters->errors + counters->bad_results +
                                          counters->runaways + counters->memory);
    }
}

void kvr_sim_result(struct kvr_sim *sim, struct kvr_sim_result *result)
{
    const struct kvr_sim_counts *c = &sim->counts;
    uint64_t answered = c->success + c->failed + c->dropped;
    *result = (struct kvr_sim_result){
        .requests = (double)c->requests,
        .window_s = window_s(sim),
        .success = (double)c->success,
        .failed = (double)c->failed,
        .dropped = (double)c->dropped,
        .unfinished = (double)(c->requests - answered),
        .timed_out = (double)c->timed_out,
        .good = (double)c->good,
        .late_ttft = (double)c->late_ttft,
        .slow_itl = (double)c->slow_itl,
        .prompt_tokens = (double)c->prompt_tokens,
        .cached_tokens = (double)c->cached_tokens,
        .output_tokens = (double)c->output_tokens,
        .hit_rate = share((double)c->cached_tokens, (double)c->prompt_tokens),
        .recomputed_per_request =
            share((double)(c->prompt_tokens - c->cached_tokens), (double)c->success),
        .ttft = quantiles(&sim->ttft),
        .itl = quantiles(&sim->itl),
        .itl_max = quantiles(&sim->itl_max),
        .e2el = quantiles(&sim->e2el),
        .spilled = (double)c->spilled,
        .cold = (double)c->cold,
        .deflected = (double)c->deflected,
        .fallbacks = (double)c->fallbacks,
        .moved = (double)c->moved,
        .preemptions = (double)c->preemptions,
        .believed_tokens = (double)c->believed_tokens,
        .honoured_tokens = (double)c->honoured_tokens,
        .honoured = share((double)c->honoured_tokens, (double)c->believed_tokens),
        .backlog = share((double)sim->unanswered, (double)c->requests),
    };
    result->goodput_per_s = result->good / result->window_s;
    result->throughput_per_s = result->success / result->window_s;
    result->ttft_p99_all = quantile(sim->ttft.items, sim->ttft.len, c->requests, 0.99);
    summarise_replicas(sim, result);
    summarise_run(sim, result);
}

int kvr_sim_replica(const struct kvr_sim *sim, uint32_t replica, struct kvr_sim_replica *result)
{
    if (replica >= sim->nodes_len)
        return KVR_E_NOT_FOUND;
    const struct kvr_sim_node *node = &sim->nodes[replica];
    struct kvr_engine_gauges gauges = kvr_engine_gauges(&node->engine);
    *result = node->seen;
    result->steps = (double)node->engine.counters.steps;
    result->preemptions = (double)node->engine.counters.preemptions;
    result->running = gauges.running;
    result->waiting = gauges.waiting;
    result->kv_usage = gauges.kv_usage;
    result->in_flight = sim->router.loads[replica].in_flight;
    return KVR_OK;
}

const char *kvr_sim_reason_name(const struct kvr_sim *sim, uint32_t reason)
{
    (void)sim;
    return reason < kvr_reason_count() ? kvr_reason_text((uint16_t)reason) : NULL;
}

double kvr_sim_reason_count(const struct kvr_sim *sim, uint32_t reason)
{
    return reason < KVR_REASONS_MAX ? (double)sim->counts.reasons[reason] : 0;
}
