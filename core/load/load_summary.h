/* A report for people and for programs: the table of `vllm bench serve`, with lines of our own
 * below those it has, and the same as one JSON object with its names. */
#ifndef KVR_LOAD_SUMMARY_H
#define KVR_LOAD_SUMMARY_H

#include <stdio.h>

#include "buffer.h"
#include "load_report.h"
#include "workload.h"

#define KVR_LOAD_PERCENTILES_MAX 16

struct kvr_load_heading {
    struct kvr_workload *workload; /* borrowed */
    const char *url;
    const char *api; /* "chat" or "completions" */
    const char *model;
    double time_scale;
    double duration_ms; /* 0: not limited */
    double warmup_ms;
    double percentiles[KVR_LOAD_PERCENTILES_MAX]; /* in (0, 100) */
    uint32_t percentiles_len;
    uint64_t connections; /* opened */
    uint64_t resent;
};

void kvr_load_summary_print(const struct kvr_load_heading *heading,
                            const struct kvr_load_report *report, FILE *out);
/* Appends the object, without a line feed. */
void kvr_load_summary_json(const struct kvr_load_heading *heading,
                           const struct kvr_load_report *report, struct kvr_buffer *out);

#endif
