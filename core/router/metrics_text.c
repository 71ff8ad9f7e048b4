#include "metrics_text.h"

#include "utf8.h"

const char *kvr_metrics_rejection_name(enum kvr_rejection rejection)
{
    static const char *const names[KVR_REJECTIONS] = {
        [KVR_REJECT_NO_REPLICAS] = "no_replicas",
        [KVR_REJECT_DRAINING] = "draining",
        [KVR_REJECT_AT_CAPACITY] = "at_capacity",
        [KVR_REJECT_MODEL_NOT_FOUND] = "model_not_found",
        [KVR_REJECT_BY_POLICY] = "refused_by_policy",
        [KVR_REJECT_ALL_FAILED] = "all_replicas_failed",
        [KVR_REJECT_REQUESTS_MAX] = "too_many_requests",
        [KVR_REJECT_QUEUE_FULL] = "queue_full",
        [KVR_REJECT_QUEUE_DEADLINE] = "queue_deadline",
    };
    KVR_CHECK(rejection < KVR_REJECTIONS && names[rejection]);
    return names[rejection];
}

/* ---- requests ---- */

static void write_ends(const struct kvr_metrics *metrics, struct kvr_prom_writer *prom)
{
    kvr_prom_counter(prom, "requests_received_total", metrics->submitted,
                     "Requests whose head could be read, refused ones too.");
    kvr_prom_family(prom, "requests_total", KVR_PROM_COUNTER,
                    "Requests that ended, by outcome; rejected ones are dropped.");
    for (int i = 0; i < KVR_OUTCOMES; i++) {
        kvr_prom_label(prom, "outcome", kvr_slice_of(kvr_outcome_name((enum kvr_outcome)i)));
        kvr_prom_uint(prom, metrics->outcomes[i]);
    }
    kvr_prom_family(prom, "rejections_total", KVR_PROM_COUNTER,
                    "Requests the router refused, by the code its client got.");
    for (int i = 0; i < KVR_REJECTIONS; i++) {
        const char *code = kvr_metrics_rejection_name((enum kvr_rejection)i);
        kvr_prom_label(prom, "code", kvr_slice_of(code));
        kvr_prom_uint(prom, metrics->rejections[i]);
    }
}

static void write_decisions(const struct kvr_metrics *metrics, struct kvr_prom_writer *prom)
{
    kvr_prom_family(prom, "decisions_total", KVR_PROM_COUNTER,
                    "Dispatches, by the reason that the script in force gave.");
    for (uint16_t i = 0; i < kvr_reason_count(); i++) {
        if (metrics->decisions[i] == 0)
            continue;
        kvr_prom_label(prom, "reason", kvr_slice_of(kvr_reason_text(i)));
        kvr_prom_uint(prom, metrics->decisions[i]);
    }
    kvr_prom_counter(prom, "fallbacks_total", metrics->fallbacks,
                     "Decisions made by least in flight because no script made them.");
    kvr_prom_counter(prom, "spills_total", metrics->spills,
                     "Requests that the spill rule moved from their preferred replica.");
    kvr_prom_counter(prom, "moves_total", metrics->moves,
                     "Dispatches to another replica after one that failed.");
    kvr_prom_counter(prom, "canary_requests_total", metrics->canary,
                     "Requests that fell to the canary policy.");
}

static void write_volume(const struct kvr_metrics *metrics, struct kvr_prom_writer *prom)
{
    kvr_prom_counter(prom, "prompt_tokens_total", metrics->prompt_tokens,
                     "Prompt tokens, as engines counted them.");
    kvr_prom_counter(prom, "cached_tokens_total", metrics->cached_tokens,
                     "Prompt tokens that engines took from their caches, as they reported.");
    kvr_prom_counter(prom, "output_tokens_total", metrics->output_tokens,
                     "Generated tokens, as engines counted them.");
    kvr_prom_counter(prom, "request_body_bytes_total", metrics->bytes_in,
                     "Bytes of request bodies.");
    kvr_prom_counter(prom, "response_body_bytes_total", metrics->bytes_out,
                     "Bytes of response bodies.");
}

static void write_belief(const struct kvr_belief_counts *belief, struct kvr_prom_writer *prom)
{
    kvr_prom_counter(prom, "belief_requests_total", belief->requests,
                     "Requests for which both the believed and the cached prefix are known.");
    kvr_prom_counter(prom, "belief_predicted_tokens_total", belief->predicted_tokens,
                     "Tokens believed to be cached on the chosen replica.");
    kvr_prom_counter(prom, "belief_honoured_tokens_total", belief->honoured_tokens,
                     "Tokens of those that were.");
    kvr_prom_counter(prom, "belief_over_requests_total", belief->over_requests,
                     "Requests of which more was believed than was cached.");
    kvr_prom_counter(prom, "belief_over_tokens_total", belief->over_tokens,
                     "Tokens believed to be cached that were not.");
    kvr_prom_counter(prom, "belief_under_requests_total", belief->under_requests,
                     "Requests of which less was believed than was cached.");
    kvr_prom_counter(prom, "belief_under_tokens_total", belief->under_tokens,
                     "Tokens cached that were not believed to be.");
}

static void write_durations(const struct kvr_metrics *metrics, struct kvr_prom_writer *prom)
{
    static const uint32_t overhead[] = {10,  20,  30,  50,   75,   100,  150,
                                        200, 300, 500, 1000, 2000, 5000, 20000};
    static const uint32_t ttft[] = {5000,     10000,    20000,    50000,    100000,   200000,
                                    300000,   500000,   1000000,  2000000,  3000000,  5000000,
                                    10000000, 20000000, 30000000, 60000000, 120000000};
    static const uint32_t total[] = {10000,    50000,    100000,    200000,    500000,
                                     1000000,  2000000,  5000000,   10000000,  20000000,
                                     30000000, 60000000, 120000000, 300000000, 600000000};
    kvr_prom_histogram_us(prom, "overhead_seconds", &metrics->overhead_us, overhead,
                          sizeof overhead / sizeof overhead[0],
                          "From a request's last byte in to its last byte out to the replica.");
    kvr_prom_histogram_us(prom, "time_to_first_token_seconds", &metrics->ttft_us, ttft,
                          sizeof ttft / sizeof ttft[0],
                          "From a request's last byte in to the first content event.");
    kvr_prom_histogram_us(prom, "request_duration_seconds", &metrics->total_us, total,
                          sizeof total / sizeof total[0],
                          "From a request's last byte in to its end, of dispatched ones.");
}

void kvr_metrics_text_requests(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    const struct kvr_metrics *metrics = &router->metrics;
    write_ends(metrics, prom);
    kvr_prom_gauge(prom, "requests_open", router->requests.open,
                   "Requests taken in that have not ended.");
    kvr_prom_gauge(prom, "requests_open_limit", router->requests.capacity,
                   "Requests that may be open at once.");
    kvr_prom_gauge(prom, "tickets_open", router->ledger.open,
                   "Requests that a replica holds now; the sum of replica_in_flight.");
    kvr_prom_gauge(prom, "queue_requests", router->queue.count,
                   "Requests that wait for a replica.");
    kvr_prom_gauge(prom, "queue_requests_limit", router->queue.options.max,
                   "Requests that may wait; 0: none, they are refused at once.");
    kvr_prom_counter(prom, "queued_requests_total", router->queue.queued, "Requests that waited.");
    write_decisions(metrics, prom);
    write_volume(metrics, prom);
    write_belief(&metrics->belief, prom);
    write_durations(metrics, prom);
}

/* ---- models ---- */

static bool is_utf8(struct kvr_slice text)
{
    while (text.len) {
        size_t len = kvr_utf8_length(text);
        if (len == 0)
            return false;
        text = kvr_slice_make(text.data + len, text.len - len);
    }
    return true;
}

/* Does a member say that it serves this name? Those that serve any name do not: what a client makes
 * up must not become a label. */
static bool is_listed(const struct kvr_replica_table *replicas, uint64_t hash)
{
    for (uint32_t slot = 0; slot < replicas->end; slot++) {
        const struct kvr_replica *replica = &replicas->slots[slot];
        for (uint32_t i = 0; replica->member && i < replica->models_count; i++)
            if (replica->models[i] == hash)
                return true;
    }
    return false;
}

/* A name has a series of its own if no other name can have the same one: not when it was cut, when
 * it has bytes that the page replaces, or when it is the name of the rest. */
static bool has_series(const struct kvr_replica_table *replicas, const struct kvr_model *model)
{
    struct kvr_slice name = kvr_slice_of(model->name);
    return model->hash && name.len && name.len < KVR_MODEL_NAME_MAX - 1 &&
           !kvr_slice_is(name, "other") && is_utf8(name) && is_listed(replicas, model->hash);
}

void kvr_metrics_text_models(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    const struct kvr_model_table *table = &router->models;
    bool own[KVR_MODELS_MAX];
    for (uint32_t i = 0; i < table->count; i++)
        own[i] = has_series(&router->replicas, &table->models[i]);

    kvr_prom_family(prom, "model_requests_total", KVR_PROM_COUNTER,
                    "Requests by model; other: no name, or one that no replica lists now.");
    uint64_t other = table->models[KVR_MODELS_MAX].serial;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct kvr_model *model = &table->models[i];
        if (!own[i]) {
            other += model->serial;
            continue;
        }
        kvr_prom_label(prom, "model", kvr_slice_of(model->name));
        kvr_prom_uint(prom, model->serial);
    }
    kvr_prom_label(prom, "model", kvr_slice_of("other"));
    kvr_prom_uint(prom, other);

    kvr_prom_family(prom, "model_prompt_bytes_per_token", KVR_PROM_GAUGE,
                    "Bytes of canonical prompt that make a token, as learned.");
    for (uint32_t i = 0; i < table->count; i++) {
        if (!own[i])
            continue;
        kvr_prom_label(prom, "model", kvr_slice_of(table->models[i].name));
        kvr_prom_double(prom, table->models[i].bytes_per_token.value);
    }
}

void kvr_metrics_text_write(const struct kvr_router *router, uint64_t now_ns,
                            struct kvr_buffer *out)
{
    struct kvr_prom_writer prom = {.out = out, .prefix = KVR_METRICS_PREFIX};
    kvr_metrics_text_requests(router, &prom);
    kvr_metrics_text_models(router, &prom);
    kvr_metrics_text_fleet(router, now_ns, &prom);
    kvr_metrics_text_index(router, &prom);
    kvr_metrics_text_scripts(router, &prom);
    kvr_metrics_text_shadows(router, &prom);
    kvr_metrics_text_gate(router, now_ns, &prom);
}
