/* The part of load_summary.h that is for people. */
#include <math.h>
#include <string.h>

#include "load_summary.h"

#define WIDTH 50

static void print_rule(FILE *out, const char *title, char line)
{
    int len = (int)strlen(title);
    int left = (WIDTH - len) / 2;
    for (int i = 0; i < left; i++)
        fputc(line, out);
    fputs(title, out);
    for (int i = left + len; i < WIDTH; i++)
        fputc(line, out);
    fputc('\n', out);
}

static void print_count(FILE *out, const char *label, uint64_t count)
{
    fprintf(out, "%-40s %-10llu\n", label, (unsigned long long)count);
}

static void print_number(FILE *out, const char *label, double value)
{
    if (isnan(value))
        fprintf(out, "%-40s %-10s\n", label, "-");
    else
        fprintf(out, "%-40s %-10.2f\n", label, value);
}

static void print_section(FILE *out, const struct kvr_load_heading *heading, const char *title,
                          const char *name, const struct kvr_sketch *sketch)
{
    char label[64];
    print_rule(out, title, '-');
    snprintf(label, sizeof label, "Mean %s (ms):", name);
    print_number(out, label, kvr_sketch_mean(sketch) * 1e-6);
    snprintf(label, sizeof label, "Median %s (ms):", name);
    print_number(out, label, kvr_sketch_quantile(sketch, 0.5) * 1e-6);
    for (uint32_t i = 0; i < heading->percentiles_len; i++) {
        double percent = heading->percentiles[i];
        snprintf(label, sizeof label, "P%g %s (ms):", percent, name);
        print_number(out, label, kvr_sketch_quantile(sketch, percent / 100) * 1e-6);
    }
}

static void print_counts(FILE *out, const struct kvr_load_heading *heading,
                         const struct kvr_load_report *report)
{
    const struct kvr_workload_options *workload = kvr_workload_options(heading->workload);
    print_count(out, "Successful requests:", report->succeeded);
    print_count(out, "Failed requests:", kvr_load_report_failed(report));
    if (!report->open)
        print_count(out, "Users (closed loop):", kvr_workload_users(heading->workload));
    else if (workload->rate > 0)
        print_number(out, "Request rate configured (RPS):", workload->rate);
    print_number(out, "Benchmark duration (s):", kvr_load_report_window_s(report));
    print_count(out, "Total input tokens:", report->input_tokens);
    print_count(out, "Total generated tokens:", report->output_tokens);
    print_number(out, "Request throughput (req/s):",
                 kvr_load_report_rate(report, (double)report->succeeded));
    if (report->goodput.count)
        print_number(
            out, "Request goodput (req/s):", kvr_load_report_rate(report, (double)report->good));
    print_number(out, "Output token throughput (tok/s):",
                 kvr_load_report_rate(report, (double)report->output_tokens));
    print_count(out, "Peak concurrent requests:", report->in_flight_most);
    print_number(
        out, "Total token throughput (tok/s):",
        kvr_load_report_rate(report, (double)(report->input_tokens + report->output_tokens)));
}

static void print_driver(FILE *out, const struct kvr_load_heading *heading,
                         const struct kvr_load_report *report)
{
    print_rule(out, report->open ? "Open-loop Driver" : "Closed-loop Driver", '-');
    print_number(out, "Cached input tokens (%):", kvr_load_report_cached_share(report) * 100);
    if (heading->time_scale != 1)
        print_number(out, "Time scale (simulated s a second):", heading->time_scale);
    if (report->warmups)
        print_count(out, "Requests of the warm-up, left out:", report->warmups);
    print_number(out,
                 "P99 lateness of requests (ms):", kvr_sketch_quantile(&report->late, 0.99) * 1e-6);
    if (report->gap.count) {
        print_number(out, "Median client gap (ms):", kvr_sketch_quantile(&report->gap, 0.5) * 1e-6);
        print_number(out, "P99 client gap (ms):", kvr_sketch_quantile(&report->gap, 0.99) * 1e-6);
    }
    print_number(out, "CPU of the driver (% of a core):", report->cpu_share * 100);
}

static void print_failures(FILE *out, const struct kvr_load_report *report)
{
    char label[64];
    bool any = kvr_load_report_failed(report) || report->failures[KVR_LOAD_CANCELLED];
    if (any)
        print_rule(out, "Failures", '-');
    for (unsigned i = 1; i < KVR_LOAD_FAILURES; i++) {
        if (report->failures[i] == 0)
            continue;
        snprintf(label, sizeof label, "%s:", kvr_load_failure_name((enum kvr_load_failure)i));
        print_count(out, label, report->failures[i]);
    }
    for (unsigned i = 0; i < KVR_LOAD_STATUSES_MAX && report->statuses[i].count; i++) {
        snprintf(label, sizeof label, "  status %u:", report->statuses[i].status);
        print_count(out, label, report->statuses[i].count);
    }
}

void kvr_load_summary_print(const struct kvr_load_heading *heading,
                            const struct kvr_load_report *report, FILE *out)
{
    print_rule(out, " Serving Benchmark Result ", '=');
    print_counts(out, heading, report);
    print_section(out, heading, "Time to First Token", "TTFT", &report->ttft);
    print_section(out, heading, "Time per Output Token (excl. 1st token)", "TPOT", &report->tpot);
    print_section(out, heading, "Inter-token Latency", "ITL", &report->itl);
    print_section(out, heading, "End-to-end Latency", "E2EL", &report->e2el);
    print_driver(out, heading, report);
    print_failures(out, report);
    print_rule(out, "", '=');
    unsigned raised = kvr_load_report_flags(report);
    for (unsigned flag = 1; flag <= KVR_LOAD_FLAG_LAST; flag <<= 1)
        if (raised & flag)
            fprintf(out, "flagged: %s\n", kvr_load_flag_meaning(flag));
}
