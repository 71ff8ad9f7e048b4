/* The measured runs of experiments/data/vllm-measured, and the same requests through the engine. */
#ifndef MEASURED_RUN_H
#define MEASURED_RUN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "memory.h"
#include "rng.h"

#define MEASURED_MAX        300
#define MEASURED_BLOCKS_MAX 512
#define MEASURED_REPLICAS   2

struct measured_request {
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    double arrival_s;
    double ttft_s;
    double tpot_s;
    double last_s; /* when its last token came */
    uint32_t blocks_len;
    uint64_t blocks[MEASURED_BLOCKS_MAX];
};

struct measured_run {
    struct measured_request requests[MEASURED_MAX];
    uint32_t len;
};

/* What the engine makes of it. */
struct predicted {
    double ttft_s[MEASURED_MAX];
    double tpot_s[MEASURED_MAX];
    double last_s[MEASURED_MAX];
    uint64_t preemptions;
};

static inline FILE *measured_open(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/experiments/data/vllm-measured/%s", KVR_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    KVR_CHECK(file);
    return file;
}

/* Runs of ids, "1-147 3 9-11", as hashes. */
static inline uint32_t measured_blocks(const char *text, uint64_t *blocks)
{
    uint32_t len = 0;
    char *end;
    for (; *text && *text != '\n'; text = end) {
        unsigned long first = strtoul(text, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        KVR_CHECK(first > 0 && last >= first && len + (last - first) < MEASURED_BLOCKS_MAX);
        while (first <= last)
            blocks[len++] = kvr_mix64(first++);
        end += *end == ' ';
    }
    return len;
}

static inline void measured_read(const char *name, struct measured_run *run)
{
    FILE *file = measured_open(name);
    char line[8192];
    run->len = 0;
    KVR_CHECK(fgets(line, sizeof line, file)); /* the names of its columns */
    while (fgets(line, sizeof line, file)) {
        struct measured_request *request = &run->requests[run->len++];
        double queued_s, scheduled_s, first_s;
        int at = 0;
        int read = sscanf(line, "%*u,%u,%u,%lf,%lf,%lf,%lf,%lf,%n", &request->prompt_tokens,
                          &request->output_tokens, &request->arrival_s, &queued_s, &scheduled_s,
                          &first_s, &request->last_s, &at);
        KVR_CHECK(read == 7 && at > 0 && request->output_tokens > 1);
        request->ttft_s = first_s - queued_s;
        request->tpot_s = (request->last_s - first_s) / (request->output_tokens - 1);
        request->blocks_len = measured_blocks(line + at, request->blocks);
        KVR_CHECK(request->blocks_len == request->prompt_tokens / KVR_BLOCK_TOKENS);
    }
    fclose(file);
    KVR_CHECK(run->len == MEASURED_MAX);
}

static inline void measured_events(struct kvr_engine *engine, struct predicted *predicted)
{
    struct kvr_engine_event event;
    while (kvr_engine_next_event(engine, &event)) {
        if (event.kind != KVR_ENGINE_FINISHED)
            continue;
        uint64_t decode_ns = event.time_ns - event.first_token_ns;
        predicted->ttft_s[event.request] =
            (double)(event.first_token_ns - event.submitted_ns) * 1e-9;
        predicted->tpot_s[event.request] = (double)decode_ns * 1e-9 / (event.token - 1);
        predicted->last_s[event.request] = (double)event.time_ns * 1e-9;
        predicted->preemptions += event.preemptions;
    }
}

/* vLLM's choice among its data-parallel replicas: least of 4 x waiting + running. */
static inline uint32_t measured_choose(const struct kvr_engine *engines, uint32_t replicas)
{
    uint32_t best = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < replicas; i++) {
        struct kvr_engine_gauges gauges = kvr_engine_gauges(&engines[i]);
        uint64_t score = 4 * (uint64_t)gauges.waiting + gauges.running;
        if (score < least) {
            least = score;
            best = i;
        }
    }
    return best;
}

/* Sends the requests at their arrival times. */
static inline void measured_predict(const struct measured_run *run,
                                    const struct kvr_profile *profile, uint32_t replicas,
                                    struct predicted *predicted)
{
    static struct kvr_engine engines[MEASURED_REPLICAS];
    memset(predicted, 0, sizeof *predicted);
    for (uint32_t i = 0; i < replicas; i++) {
        int failed = kvr_engine_init(
            &engines[i], &(struct kvr_engine_options){.profile = profile, .seed = i}, NULL);
        KVR_CHECK(!failed);
    }
    uint32_t order[MEASURED_MAX];
    for (uint32_t i = 0; i < run->len; i++) { /* by arrival; they nearly are */
        uint32_t at = i;
        while (at > 0 && run->requests[order[at - 1]].arrival_s > run->requests[i].arrival_s) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (uint32_t i = 0; i < run->len; i++) {
        const struct measured_request *request = &run->requests[order[i]];
        uint64_t now_ns = (uint64_t)(request->arrival_s * 1e9);
        for (uint32_t k = 0; k < replicas; k++)
            kvr_engine_advance(&engines[k], now_ns);
        struct kvr_engine_handle handle;
        int failed = kvr_engine_submit(&engines[measured_choose(engines, replicas)], now_ns,
                                       &(struct kvr_engine_request){
                                           .id = order[i],
                                           .blocks = request->blocks,
                                           .blocks_len = request->blocks_len,
                                           .prompt_tokens = request->prompt_tokens,
                                           .output_tokens = request->output_tokens,
                                       },
                                       &handle);
        KVR_CHECK(!failed);
    }
    for (uint32_t k = 0; k < replicas; k++) {
        kvr_engine_advance(&engines[k], 3600ull * 1000000000);
        KVR_CHECK(kvr_engine_next_time(&engines[k]) == KVR_ENGINE_NEVER);
        measured_events(&engines[k], predicted);
        kvr_engine_deinit(&engines[k]);
    }
}

static inline int measured_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Lower quantile of `len` values. */
static inline double measured_quantile(const double *values, uint32_t len, double q)
{
    double *sorted = kvr_alloc(len * sizeof *sorted);
    memcpy(sorted, values, len * sizeof *sorted);
    qsort(sorted, len, sizeof *sorted, measured_compare);
    double value = sorted[(uint32_t)((len - 1) * q)];
    kvr_free(sorted);
    return value;
}

#endif
