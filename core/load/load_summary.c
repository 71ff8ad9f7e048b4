#include "load_summary.h"

#include <math.h>

#include "json_writer.h"

static void put_section(struct kvr_json_writer *json, const struct kvr_load_heading *heading,
                        const char *name, const struct kvr_sketch *sketch)
{
    char key[64];
    snprintf(key, sizeof key, "mean_%s_ms", name);
    kvr_json_double(json, key, kvr_sketch_mean(sketch) * 1e-6);
    snprintf(key, sizeof key, "median_%s_ms", name);
    kvr_json_double(json, key, kvr_sketch_quantile(sketch, 0.5) * 1e-6);
    snprintf(key, sizeof key, "std_%s_ms", name);
    kvr_json_double(json, key, kvr_sketch_deviation(sketch) * 1e-6);
    for (uint32_t i = 0; i < heading->percentiles_len; i++) {
        double percent = heading->percentiles[i];
        snprintf(key, sizeof key, "p%g_%s_ms", percent, name);
        kvr_json_double(json, key, kvr_sketch_quantile(sketch, percent / 100) * 1e-6);
    }
}

static void put_spread(struct kvr_json_writer *json, const char *key,
                       const struct kvr_sketch *sketch)
{
    kvr_json_object_begin(json, key);
    kvr_json_double(json, "p50_ms", kvr_sketch_quantile(sketch, 0.5) * 1e-6);
    kvr_json_double(json, "p99_ms", kvr_sketch_quantile(sketch, 0.99) * 1e-6);
    kvr_json_double(json, "max_ms", sketch->count ? (double)sketch->most * 1e-6 : NAN);
    kvr_json_object_end(json);
}

static void put_heading(struct kvr_json_writer *json, const struct kvr_load_heading *heading,
                        const struct kvr_load_report *report)
{
    const struct kvr_workload_options *workload = kvr_workload_options(heading->workload);
    kvr_json_text(json, "driver", report->open ? "open" : "closed");
    kvr_json_text(json, "base_url", heading->url);
    kvr_json_text(json, "endpoint_type", heading->api);
    kvr_json_text(json, "model_id", heading->model);
    kvr_json_text(json, "workload", kvr_workload_name(heading->workload));
    kvr_json_double(json, "time_scale", heading->time_scale);
    kvr_json_double(json, "duration_limit_s",
                    heading->duration_ms > 0 ? heading->duration_ms * 1e-3 : NAN);
    kvr_json_double(json, "warmup_s", heading->warmup_ms * 1e-3);
    if (report->open)
        kvr_json_double(json, "request_rate", workload->rate > 0 ? workload->rate : NAN);
    else
        kvr_json_uint(json, "users", kvr_workload_users(heading->workload));
}

static void put_counts(struct kvr_json_writer *json, const struct kvr_load_report *report)
{
    double tokens = (double)(report->input_tokens + report->output_tokens);
    kvr_json_uint(json, "num_prompts", report->measured);
    kvr_json_uint(json, "completed", report->succeeded);
    kvr_json_uint(json, "failed", kvr_load_report_failed(report));
    kvr_json_uint(json, "good", report->good);
    kvr_json_double(json, "duration", kvr_load_report_window_s(report));
    kvr_json_uint(json, "total_input_tokens", report->input_tokens);
    kvr_json_uint(json, "total_output_tokens", report->output_tokens);
    kvr_json_double(json, "request_throughput",
                    kvr_load_report_rate(report, (double)report->succeeded));
    kvr_json_double(json, "request_goodput",
                    report->goodput.count ? kvr_load_report_rate(report, (double)report->good)
                                          : NAN);
    kvr_json_double(json, "output_throughput",
                    kvr_load_report_rate(report, (double)report->output_tokens));
    kvr_json_double(json, "total_token_throughput", kvr_load_report_rate(report, tokens));
    kvr_json_uint(json, "max_concurrent_requests", report->in_flight_most);
    kvr_json_uint(json, "cached_tokens", report->cached_tokens);
    kvr_json_double(json, "cached_share", kvr_load_report_cached_share(report));
    kvr_json_object_begin(json, "goodput_limits_ms");
    for (unsigned i = 0; i < KVR_LOAD_METRICS; i++)
        if (report->goodput.limit_ms[i] > 0)
            kvr_json_double(json, kvr_load_metric_name((enum kvr_load_metric)i),
                            report->goodput.limit_ms[i]);
    kvr_json_object_end(json);
}

static void put_failures(struct kvr_json_writer *json, const struct kvr_load_report *report)
{
    char key[16];
    kvr_json_object_begin(json, "failures");
    for (unsigned i = 1; i < KVR_LOAD_FAILURES; i++)
        if (report->failures[i] && i != KVR_LOAD_CANCELLED)
            kvr_json_uint(json, kvr_load_failure_name((enum kvr_load_failure)i),
                          report->failures[i]);
    kvr_json_object_end(json);
    kvr_json_object_begin(json, "statuses");
    for (unsigned i = 0; i < KVR_LOAD_STATUSES_MAX && report->statuses[i].count; i++) {
        snprintf(key, sizeof key, "%u", report->statuses[i].status);
        kvr_json_uint(json, key, report->statuses[i].count);
    }
    if (report->statuses_other)
        kvr_json_uint(json, "other", report->statuses_other);
    kvr_json_object_end(json);
    kvr_json_uint(json, "cancelled", report->failures[KVR_LOAD_CANCELLED]);
}

static void put_driver(struct kvr_json_writer *json, const struct kvr_load_heading *heading,
                       const struct kvr_load_report *report)
{
    put_spread(json, "lateness", &report->late);
    if (!report->open)
        put_spread(json, "client_gap", &report->gap);
    kvr_json_uint(json, "warmup_requests", report->warmups);
    kvr_json_uint(json, "sent", report->started);
    kvr_json_hex64(json, "body_hash", report->body_hash);
    kvr_json_uint(json, "connections", heading->connections);
    kvr_json_uint(json, "resent", heading->resent);
    kvr_json_uint(json, "rows_dropped", report->rows_dropped);
    kvr_json_double(json, "wall_s", report->wall_s);
    kvr_json_double(json, "cpu_share", report->cpu_share);
    unsigned raised = kvr_load_report_flags(report);
    kvr_json_array_begin(json, "flags");
    for (unsigned flag = 1; flag <= KVR_LOAD_FLAG_LAST; flag <<= 1)
        if (raised & flag)
            kvr_json_text(json, NULL, kvr_load_flag_name(flag));
    kvr_json_array_end(json);
}

void kvr_load_summary_json(const struct kvr_load_heading *heading,
                           const struct kvr_load_report *report, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    kvr_json_object_begin(&json, NULL);
    put_heading(&json, heading, report);
    put_counts(&json, report);
    put_section(&json, heading, "ttft", &report->ttft);
    put_section(&json, heading, "tpot", &report->tpot);
    put_section(&json, heading, "itl", &report->itl);
    put_section(&json, heading, "e2el", &report->e2el);
    put_failures(&json, report);
    put_driver(&json, heading, report);
    kvr_json_object_end(&json);
}
