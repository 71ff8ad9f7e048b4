/* GET /metrics: the router's families, and behind them those of sockets, files and the process. */
#include <sys/resource.h>

#include "admin_call.h"
#include "metrics_text.h"

#define PAGE_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct count {
    const char *name; /* value of the one label */
    uint64_t value;
};

static void write_counts(struct kvr_prom_writer *prom, const char *family, enum kvr_prom_type type,
                         const char *help, const char *label, const struct count *counts, size_t n)
{
    kvr_prom_family(prom, family, type, help);
    for (size_t i = 0; i < n; i++) {
        kvr_prom_label(prom, label, kvr_slice_of(counts[i].name));
        kvr_prom_uint(prom, counts[i].value);
    }
}

#define WRITE_COUNTS(prom, family, type, help, label, counts)                                      \
    write_counts(prom, family, type, help, label, counts, sizeof(counts) / sizeof *(counts))

/* ---- sockets ---- */

/* The ingress may listen on several addresses: they count together. */
struct sockets {
    uint64_t open, accepted, refused, malformed, timed_out, held;
};

static void add_listener(struct sockets *sockets, const struct kvr_listener *listener)
{
    sockets->open += listener->connections;
    sockets->accepted += listener->counters.accepted;
    sockets->refused += listener->counters.refused_connections;
    sockets->malformed += listener->counters.refused_requests;
    sockets->timed_out += listener->counters.timed_out;
    sockets->held += listener->held_bytes;
}

static void write_listeners(const struct kvr_admin_call *call, struct kvr_prom_writer *prom)
{
    struct sockets in = {0}, admin = {0};
    for (uint32_t i = 0; i < call->ingress->listeners_count; i++)
        add_listener(&in, &call->ingress->listeners[i]);
    add_listener(&admin, &call->admin->listener);
#define BOTH(member)                                                                               \
    {                                                                                              \
        {"ingress", in.member},                                                                    \
        {                                                                                          \
            "admin", admin.member                                                                  \
        }                                                                                          \
    }
    const struct count open[] = BOTH(open), accepted[] = BOTH(accepted), refused[] = BOTH(refused),
                       malformed[] = BOTH(malformed), timed_out[] = BOTH(timed_out),
                       held[] = BOTH(held);
#undef BOTH
    WRITE_COUNTS(prom, "client_connections", KVR_PROM_GAUGE, "Open client connections.", "listener",
                 open);
    WRITE_COUNTS(prom, "client_connections_accepted_total", KVR_PROM_COUNTER,
                 "Client connections accepted.", "listener", accepted);
    WRITE_COUNTS(prom, "client_connections_refused_total", KVR_PROM_COUNTER,
                 "Client connections closed at once: there were too many.", "listener", refused);
    WRITE_COUNTS(prom, "client_requests_refused_total", KVR_PROM_COUNTER,
                 "Requests refused before routing: malformed, or over a limit.", "listener",
                 malformed);
    WRITE_COUNTS(prom, "client_timeouts_total", KVR_PROM_COUNTER,
                 "Client connections closed for being idle or slow.", "listener", timed_out);
    WRITE_COUNTS(prom, "client_held_bytes", KVR_PROM_GAUGE, "Bytes of requests held.", "listener",
                 held);
    kvr_prom_counter(prom, "admin_requests_total", call->admin->counters.requests,
                     "Requests to the admin interface.");
    kvr_prom_counter(prom, "admin_denied_total", call->admin->counters.denied,
                     "Of those, refused for want of the token.");
}

static void write_exchanges(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_ingress_counters *counters = &ingress->counters;
    uint64_t timeouts = 0;
    for (int i = 0; i < KVR_TIME_LIMITS; i++)
        timeouts += counters->timeouts[i];
    const struct count faults[] = {{"bad_body", counters->bad_bodies},
                                   {"timeout", timeouts},
                                   {"lost_mid_stream", counters->lost_mid_stream},
                                   {"malformed_answer", counters->malformed_answers}};
    kvr_prom_gauge(prom, "exchanges_open", ingress->exchanges_count,
                   "Requests that have a client and have not ended.");
    kvr_prom_gauge(prom, "request_held_bytes", (double)ingress->held_bytes,
                   "Bytes of requests held: coming in, and kept for another try.");
    WRITE_COUNTS(prom, "exchange_faults_total", KVR_PROM_COUNTER,
                 "What went wrong with requests, by kind.", "kind", faults);
    kvr_prom_counter(prom, "stale_resends_total", counters->stale_resends,
                     "Requests sent again because a reused connection was dead.");
    kvr_prom_counter(prom, "gather_waits_total", ingress->loop->pace.waits,
                     "Times the busy loop waited to take streams' events together.");
    kvr_prom_gauge(prom, "gathering", ingress->loop->pace.on, "1 while it does.");
    kvr_prom_gauge(prom, "draining", ingress->draining, "1 while it ends.");
}

struct pool_family {
    const char *name;
    enum kvr_prom_type type;
    const char *help;
    uint64_t (*read)(const struct kvr_upstream_pool *pool);
};

static uint64_t read_open(const struct kvr_upstream_pool *pool)
{
    return pool->count;
}

static uint64_t read_idle(const struct kvr_upstream_pool *pool)
{
    return pool->idle_count;
}

static uint64_t read_opened(const struct kvr_upstream_pool *pool)
{
    return pool->opened;
}

static uint64_t read_reused(const struct kvr_upstream_pool *pool)
{
    return pool->reused;
}

static uint64_t read_stale(const struct kvr_upstream_pool *pool)
{
    return pool->stale;
}

static const struct pool_family pool_families[] = {
    {"replica_connections", KVR_PROM_GAUGE, "Connections to the replica.", read_open},
    {"replica_connections_idle", KVR_PROM_GAUGE, "Of those, kept for reuse.", read_idle},
    {"replica_connections_opened_total", KVR_PROM_COUNTER, "Connections opened.", read_opened},
    {"replica_connections_reused_total", KVR_PROM_COUNTER, "Times one was reused.", read_reused},
    {"replica_connections_stale_total", KVR_PROM_COUNTER, "Reused ones that were dead.",
     read_stale},
};

static void write_pools(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_replica_table *replicas = &ingress->router.replicas;
    for (size_t i = 0; i < sizeof pool_families / sizeof pool_families[0]; i++) {
        const struct pool_family *family = &pool_families[i];
        kvr_prom_family(prom, family->name, family->type, family->help);
        for (uint32_t slot = 0; slot < replicas->end; slot++) {
            const struct kvr_upstream_pool *pool = ingress->replicas[slot].pool;
            if (!pool || !replicas->slots[slot].member)
                continue;
            kvr_prom_label(prom, "replica", kvr_slice_of(replicas->slots[slot].name));
            kvr_prom_uint(prom, family->read(pool));
        }
    }
}

/* ---- the background ---- */

static void write_rounds(struct kvr_prom_writer *prom, const char *family, const char *help,
                         const struct kvr_rounds_counters *counters)
{
    const struct count results[] = {{"answered", counters->answered},
                                    {"failed", counters->failed},
                                    {"timed_out", counters->timed_out},
                                    {"absent", counters->absent},
                                    {"dropped", counters->dropped}};
    WRITE_COUNTS(prom, family, KVR_PROM_COUNTER, help, "result", results);
}

static void write_background(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_prober_counters *probes = &ingress->prober.counters;
    const struct count results[] = {{"passed", probes->passed},
                                    {"failed", probes->failed},
                                    {"timed_out", probes->timed_out},
                                    {"dropped", probes->dropped},
                                    {"unsent", probes->unsent}};
    WRITE_COUNTS(prom, "probes_total", KVR_PROM_COUNTER, "Health probes, by result.", "result",
                 results);
    write_rounds(prom, "scrapes_total", "Readings of engines' metrics pages, by result.",
                 &ingress->scraper.rounds.counters);
    kvr_prom_counter(prom, "scrapes_unread_total", ingress->scraper.unread,
                     "Metrics pages of no known engine.");
    write_rounds(prom, "model_lists_total", "Readings of replicas' model lists, by result.",
                 &ingress->model_list.rounds.counters);
    kvr_prom_counter(prom, "model_lists_malformed_total", ingress->model_list.malformed,
                     "Answers that were no model list.");
    kvr_prom_counter(prom, "models_over_limit_total", ingress->model_list.over_limit,
                     "Models left out of lists that were too long.");
    const struct kvr_resolver_counters *names = &ingress->resolver.counters;
    kvr_prom_counter(prom, "name_lookups_total", names->lookups, "Look-ups of replicas' names.");
    kvr_prom_counter(prom, "name_lookup_failures_total", names->failures,
                     "Look-ups without an answer.");
    kvr_prom_counter(prom, "replica_moves_total", names->moves,
                     "Times a replica's name led to another address.");
    const struct kvr_reloader_counters *files = &ingress->scripts.reloader.counters;
    kvr_prom_counter(prom, "script_file_events_total", files->events,
                     "Changes that the system told of folders with scripts.");
    kvr_prom_counter(prom, "script_file_reports_total", files->reports,
                     "Scripts read again because their file changed.");
}

static void write_rows(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom)
{
    const struct kvr_row_log *log = &ingress->row_log;
    const struct kvr_row_log_counters *counters = &log->counters;
    const struct count dropped[] = {{"buffer_full", counters->dropped_full},
                                    {"write_failed", counters->dropped_failed}};
    if (!ingress->options.rows.path)
        return;
    kvr_prom_counter(prom, "rows_written_total", counters->rows, "Rows written.");
    kvr_prom_counter(prom, "row_bytes_written_total", counters->bytes, "Bytes of rows written.");
    WRITE_COUNTS(prom, "rows_dropped_total", KVR_PROM_COUNTER, "Rows lost, by cause.", "cause",
                 dropped);
    kvr_prom_gauge(prom, "row_waiting_bytes", (double)log->waiting.len,
                   "Bytes of rows not yet being written.");
    kvr_prom_gauge(prom, "rows_failing", log->failing, "1 when the last write failed.");
    kvr_prom_counter(prom, "row_file_rotations_total", counters->rotations, "Rotations by size.");
    kvr_prom_counter(prom, "row_file_reopens_total", counters->reopens,
                     "Times a new file was opened after an outside change.");
    kvr_prom_counter(prom, "row_file_reopen_failures_total", counters->reopen_failures,
                     "Times that failed and the old file was kept.");
}

/* ---- the process: names that every exporter uses, without our prefix ---- */

static double seconds(const uv_timeval_t *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static void write_process(const struct kvr_ingress *ingress, struct kvr_buffer *out)
{
    struct kvr_prom_writer prom = {.out = out, .prefix = ""};
    size_t rss = 0;
    uv_rusage_t usage = {0};
    struct rlimit files = {0};
    int64_t started_ms =
        ((int64_t)ingress->started_ns + ingress->router.options.wall_offset_ns) / 1000000;
    (void)uv_resident_set_memory(&rss);
    (void)uv_getrusage(&usage);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    kvr_prom_gauge(&prom, "process_resident_memory_bytes", (double)rss, "Resident memory.");
    kvr_prom_gauge(&prom, "process_start_time_seconds", (double)started_ms / 1e3,
                   "Start of the process, Unix time.");
    kvr_prom_family(&prom, "process_cpu_seconds_total", KVR_PROM_COUNTER, "CPU time used.");
    kvr_prom_double(&prom, seconds(&usage.ru_utime) + seconds(&usage.ru_stime));
    kvr_prom_gauge(&prom, "process_max_fds", (double)files.rlim_cur,
                   "Descriptors that may be open.");
}

void kvr_admin_metrics(struct kvr_admin_call *call)
{
    struct kvr_buffer page = {0};
    struct kvr_prom_writer prom = {.out = &page, .prefix = KVR_METRICS_PREFIX};
    kvr_metrics_text_write(&call->ingress->router, call->now_ns, &page);
    kvr_prom_family(&prom, "build_info", KVR_PROM_GAUGE, "1, with what was built.");
    kvr_prom_label(&prom, "version", kvr_slice_of(KVR_VERSION));
    kvr_prom_uint(&prom, 1);
    write_listeners(call, &prom);
    write_exchanges(call->ingress, &prom);
    kvr_admin_write_limits(call->ingress, &prom);
    kvr_admin_write_plan(call->ingress, &prom);
    kvr_admin_write_clients(call->ingress, &prom);
    write_pools(call->ingress, &prom);
    write_background(call->ingress, &prom);
    write_rows(call->ingress, &prom);
    write_process(call->ingress, &page);
    kvr_admin_answer_as(call, PAGE_TYPE, &page);
    kvr_buffer_deinit(&page);
}
