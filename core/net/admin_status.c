/* The commands of admin.h that look at the whole. */
#include <unistd.h>

#include "admin_call.h"
#include "log.h"
#include "metrics_text.h"

#define REQUESTS_SHOWN_MAX 200

static void write_latency(struct kvr_json_writer *json, const char *key,
                          const struct kvr_histogram *histogram)
{
    kvr_json_object_begin(json, key);
    kvr_json_uint(json, "count", histogram->count);
    kvr_json_double(json, "p50_ms", (double)kvr_histogram_quantile(histogram, 0.5) / 1e3);
    kvr_json_double(json, "p99_ms", (double)kvr_histogram_quantile(histogram, 0.99) / 1e3);
    kvr_json_double(json, "max_ms", (double)histogram->max / 1e3);
    kvr_json_object_end(json);
}

static void write_requests(struct kvr_json_writer *json, const struct kvr_router *router)
{
    const struct kvr_metrics *metrics = &router->metrics;
    kvr_json_object_begin(json, "requests");
    kvr_json_uint(json, "received", metrics->submitted);
    kvr_json_uint(json, "open", router->requests.open);
    kvr_json_uint(json, "waiting", router->queue.count);
    kvr_json_object_begin(json, "outcomes");
    for (int i = 0; i < KVR_OUTCOMES; i++)
        kvr_json_uint(json, kvr_outcome_name((enum kvr_outcome)i), metrics->outcomes[i]);
    kvr_json_object_end(json);
    kvr_json_object_begin(json, "rejections");
    for (int i = 0; i < KVR_REJECTIONS; i++)
        kvr_json_uint(json, kvr_metrics_rejection_name((enum kvr_rejection)i),
                      metrics->rejections[i]);
    kvr_json_object_end(json);
    write_latency(json, "overhead", &metrics->overhead_us);
    write_latency(json, "ttft", &metrics->ttft_us);
    write_latency(json, "total", &metrics->total_us);
    kvr_json_object_end(json);
}

static void write_decisions(struct kvr_json_writer *json, const struct kvr_metrics *metrics)
{
    kvr_json_object_begin(json, "decisions");
    kvr_json_uint(json, "fallbacks", metrics->fallbacks);
    kvr_json_uint(json, "spills", metrics->spills);
    kvr_json_uint(json, "moves", metrics->moves);
    kvr_json_uint(json, "canary", metrics->canary);
    kvr_json_uint(json, "baseline", metrics->baseline);
    kvr_json_object_begin(json, "reasons");
    for (uint16_t i = 0; i < kvr_reason_count(); i++)
        if (metrics->decisions[i])
            kvr_json_uint(json, kvr_reason_text(i), metrics->decisions[i]);
    kvr_json_object_end(json);
    kvr_json_object_end(json);
}

static void write_tokens(struct kvr_json_writer *json, const struct kvr_metrics *metrics)
{
    const struct kvr_belief_counts *belief = &metrics->belief;
    kvr_json_object_begin(json, "tokens");
    kvr_json_uint(json, "prompt", metrics->prompt_tokens);
    kvr_json_uint(json, "cached", metrics->cached_tokens);
    kvr_json_uint(json, "output", metrics->output_tokens);
    kvr_json_object_end(json);
    kvr_json_object_begin(json, "belief");
    kvr_json_uint(json, "requests", belief->requests);
    kvr_json_uint(json, "predicted_tokens", belief->predicted_tokens);
    kvr_json_uint(json, "honoured_tokens", belief->honoured_tokens);
    kvr_json_uint(json, "over_requests", belief->over_requests);
    kvr_json_uint(json, "over_tokens", belief->over_tokens);
    kvr_json_uint(json, "under_requests", belief->under_requests);
    kvr_json_uint(json, "under_tokens", belief->under_tokens);
    kvr_json_object_end(json);
}

static void write_fleet(struct kvr_json_writer *json, const struct kvr_router *router)
{
    const struct kvr_replica_table *replicas = &router->replicas;
    uint32_t rotation = 0, down = 0, draining = 0;
    for (uint32_t i = 0; i < replicas->end; i++) {
        const struct kvr_replica *replica = &replicas->slots[i];
        if (!replica->member)
            continue;
        rotation += kvr_replica_in_rotation(replica);
        down += replica->operational == KVR_DOWN;
        draining += replica->administrative == KVR_DRAINING;
    }
    kvr_json_object_begin(json, "replicas");
    kvr_json_uint(json, "members", replicas->count);
    kvr_json_uint(json, "in_rotation", rotation);
    kvr_json_uint(json, "down", down);
    kvr_json_uint(json, "draining", draining);
    kvr_json_uint(json, "in_flight", router->ledger.open);
    kvr_json_object_end(json);
}

static void write_index_size(struct kvr_json_writer *json,
                             const struct kvr_prefix_index_stats *stats)
{
    kvr_json_uint(json, "blocks", stats->blocks);
    kvr_json_uint(json, "blocks_max", stats->blocks_max);
    kvr_json_uint(json, "beliefs", stats->holders);
    kvr_json_uint(json, "bytes", stats->bytes);
    kvr_json_uint(json, "bytes_max", stats->bytes_max);
}

static void write_rows(struct kvr_json_writer *json, const struct kvr_ingress *ingress)
{
    if (!ingress->options.rows.path) {
        kvr_json_null(json, "rows");
        return;
    }
    const struct kvr_row_log *log = &ingress->row_log;
    kvr_json_object_begin(json, "rows");
    kvr_json_text(json, "path", ingress->options.rows.path);
    kvr_json_bool(json, "failing", log->failing);
    kvr_json_uint(json, "written", log->counters.rows);
    kvr_json_uint(json, "bytes", log->counters.bytes);
    kvr_json_uint(json, "waiting_bytes", log->waiting.len);
    kvr_json_uint(json, "dropped", log->counters.dropped_full + log->counters.dropped_failed);
    kvr_json_uint(json, "rotations", log->counters.rotations);
    kvr_json_uint(json, "reopens", log->counters.reopens);
    kvr_json_uint(json, "reopen_failures", log->counters.reopen_failures);
    kvr_json_object_end(json);
}

static void write_connections(struct kvr_json_writer *json, const char *key,
                              const struct kvr_listener *listener)
{
    kvr_json_object_begin(json, key);
    kvr_json_text(json, "address", listener->address);
    kvr_json_uint(json, "open", listener->connections);
    kvr_json_uint(json, "accepted", listener->counters.accepted);
    kvr_json_uint(json, "refused", listener->counters.refused_connections);
    kvr_json_uint(json, "refused_requests", listener->counters.refused_requests);
    kvr_json_uint(json, "timed_out", listener->counters.timed_out);
    kvr_json_uint(json, "held_bytes", listener->held_bytes);
    kvr_json_object_end(json);
}

static void write_client_keys(struct kvr_json_writer *json, const struct kvr_client_keys *keys)
{
    if (!kvr_client_keys_on(keys)) {
        kvr_json_null(json, "client_keys");
        return;
    }
    uint64_t limited = 0;
    for (uint32_t i = 0; i < keys->count; i++)
        for (int limit = 0; limit < KVR_QUOTA_LIMITS; limit++)
            limited += keys->items[i]->quota.refused[limit];
    kvr_json_object_begin(json, "client_keys");
    kvr_json_uint(json, "absent", keys->absent);
    kvr_json_uint(json, "unknown", keys->unknown);
    kvr_json_uint(json, "limited", limited);
    kvr_json_object_end(json);
}

static void write_exchanges(struct kvr_json_writer *json, const struct kvr_ingress *ingress)
{
    const struct kvr_ingress_counters *counters = &ingress->counters;
    kvr_json_object_begin(json, "exchanges");
    kvr_json_uint(json, "open", ingress->exchanges_count);
    kvr_json_uint(json, "bad_bodies", counters->bad_bodies);
    kvr_json_uint(json, "stale_resends", counters->stale_resends);
    uint64_t timeouts = 0;
    for (int i = 0; i < KVR_TIME_LIMITS; i++)
        timeouts += counters->timeouts[i];
    kvr_json_uint(json, "timeouts", timeouts);
    kvr_json_uint(json, "lost_mid_stream", counters->lost_mid_stream);
    kvr_json_uint(json, "malformed_answers", counters->malformed_answers);
    kvr_json_object_end(json);
}

void kvr_admin_status(struct kvr_admin_call *call)
{
    const struct kvr_ingress *ingress = call->ingress;
    const struct kvr_router *router = &ingress->router;
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&router->index, &stats);
    uint64_t uptime_ms = (call->now_ns - ingress->started_ns) / 1000000;
    size_t rss = 0;
    (void)uv_resident_set_memory(&rss);
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "version", KVR_VERSION);
    kvr_json_int(&json, "pid", getpid());
    kvr_json_double(&json, "uptime_s", (double)uptime_ms / 1e3);
    kvr_json_uint(&json, "rss_bytes", rss);
    kvr_json_bool(&json, "draining", ingress->draining);
    kvr_json_array_begin(&json, "listeners");
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        write_connections(&json, NULL, &ingress->listeners[i]);
    kvr_json_array_end(&json);
    write_connections(&json, "admin", &call->admin->listener);
    write_requests(&json, router);
    write_exchanges(&json, ingress);
    write_client_keys(&json, &ingress->client_keys);
    write_decisions(&json, &router->metrics);
    write_tokens(&json, &router->metrics);
    write_fleet(&json, router);
    kvr_admin_write_scripts(ingress, &json, "scripts");
    kvr_json_double(&json, "canary_share", router->options.canary_share);
    kvr_json_bool(&json, "canary_by_key", router->options.canary_by_key);
    kvr_admin_write_gate(ingress, &json, "gate");
    kvr_json_object_begin(&json, "index");
    write_index_size(&json, &stats);
    kvr_json_object_end(&json);
    write_rows(&json, ingress);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* ---- the index ---- */

static void write_index_counters(struct kvr_json_writer *json,
                                 const struct kvr_prefix_index_stats *stats)
{
    const struct kvr_prefix_index_counters *counters = &stats->counters;
    kvr_json_object_begin(json, "counters");
    kvr_json_uint(json, "matches", counters->matches);
    kvr_json_uint(json, "admissions", counters->admissions);
    kvr_json_uint(json, "withdrawals", counters->withdrawals);
    kvr_json_uint(json, "purges", counters->purges);
    kvr_json_uint(json, "blocks_evicted", counters->blocks_evicted);
    kvr_json_uint(json, "blocks_reclaimed", counters->blocks_reclaimed);
    kvr_json_uint(json, "blocks_cut", counters->blocks_cut);
    kvr_json_uint(json, "replica_evicted", counters->replica_evicted);
    kvr_json_uint(json, "sweeps", counters->sweeps);
    kvr_json_object_end(json);
    kvr_json_object_begin(json, "ended");
    kvr_json_uint(json, "expired", stats->beliefs.expired);
    kvr_json_uint(json, "purged", stats->beliefs.voided);
    kvr_json_uint(json, "capacity", stats->beliefs.evicted);
    kvr_json_uint(json, "overflow", stats->beliefs.displaced);
    kvr_json_uint(json, "withdrawn", stats->beliefs.withdrawn);
    kvr_json_object_end(json);
}

void kvr_admin_index(struct kvr_admin_call *call)
{
    const struct kvr_router *router = &call->ingress->router;
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&router->index, &stats);
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_bool(&json, "in_use", (router->needs & KVR_NEEDS_MATCH) != 0);
    kvr_json_uint(&json, "block_bytes", router->options.block_bytes);
    write_index_size(&json, &stats);
    kvr_json_uint(&json, "blocks_per_replica_max", stats.blocks_per_replica_max);
    kvr_json_uint(&json, "overflow", stats.overflow);
    kvr_json_uint(&json, "overflow_max", stats.overflow_max);
    write_index_counters(&json, &stats);
    kvr_json_array_begin(&json, "replicas");
    for (uint32_t i = 0; i < router->replicas.end; i++) {
        if (!router->replicas.slots[i].member)
            continue;
        kvr_json_object_begin(&json, NULL);
        kvr_json_text(&json, "name", router->replicas.slots[i].name);
        kvr_json_uint(&json, "blocks", kvr_prefix_index_believed(&router->index, i));
        kvr_json_object_end(&json);
    }
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* ---- open requests ---- */

static const char *phase_name(const struct kvr_request_record *record)
{
    return record->queued            ? "waiting"
           : record->got_first_token ? "streaming"
           : record->got_first_byte  ? "answering"
           : record->sent_ns         ? "sent"
                                     : "connecting";
}

static void write_open(struct kvr_json_writer *json, const struct kvr_router *router,
                       const struct kvr_exchange *exchange, uint64_t now_ns)
{
    const struct kvr_request_record *record = kvr_router_request(router, exchange->request);
    uint64_t age_us = (now_ns - record->received_ns) / 1000;
    kvr_json_object_begin(json, NULL);
    kvr_json_text(json, "id", record->id);
    kvr_json_uint(json, "sequence", record->sequence);
    kvr_json_double(json, "age_ms", (double)age_us / 1e3);
    kvr_json_text(json, "endpoint", record->endpoint);
    kvr_json_text(json, "model", kvr_request_model_name(record));
    if (record->replica == KVR_NO_REPLICA)
        kvr_json_null(json, "replica");
    else
        kvr_json_text(json, "replica", router->replicas.slots[record->replica].name);
    kvr_json_text(json, "reason", kvr_reason_text(record->reason));
    kvr_json_text(json, "phase", phase_name(record));
    kvr_json_uint(json, "moves", record->moves);
    kvr_json_bool(json, "stream", record->stream);
    kvr_json_uint(json, "bytes_out", exchange->body_bytes);
    if (record->tag)
        kvr_json_text(json, "tag", record->tag);
    if (record->client)
        kvr_json_text(json, "client", record->client);
    kvr_json_object_end(json);
}

void kvr_admin_requests(struct kvr_admin_call *call)
{
    struct kvr_ingress *ingress = call->ingress;
    uint32_t shown = 0;
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_uint(&json, "open", ingress->exchanges_count);
    kvr_json_uint(&json, "shown_max", REQUESTS_SHOWN_MAX);
    kvr_json_array_begin(&json, "requests");
    KVR_LIST_FOREACH (link, &ingress->exchanges) {
        const struct kvr_exchange *exchange = KVR_LIST_ENTRY(link, struct kvr_exchange, link);
        if (shown++ == REQUESTS_SHOWN_MAX)
            break;
        write_open(&json, &ingress->router, exchange, call->now_ns);
    }
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* ---- the log ---- */

void kvr_admin_log(struct kvr_admin_call *call)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct kvr_slice level = call->body->level;
    int i = 0;
    while (i < 4 && !kvr_slice_is(level, names[i]))
        i++;
    if (i == 4) {
        kvr_admin_refuse(call, 400, "invalid_value", "level",
                         "level: error, warn, info or debug is expected, not \"%.*s\"",
                         level.len < 80 ? (int)level.len : 80, level.data);
        return;
    }
    kvr_log_set_level((enum kvr_log_level)i);
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "level", names[i]);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}
