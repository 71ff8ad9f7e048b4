#include "emu_metrics.h"

#include <string.h>

static const double first_token_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                            .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                            20,   40,   80,  160, 640, 2560};
static const double inter_token_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                            .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double request_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double output_bounds[] = {1, 2, 5, 10, 20};
static const double step_bounds[] = {1,   8,    16,   32,   64,   128,  256,
                                     512, 1024, 2048, 4096, 8192, 16384};

const char *const kvr_emu_handlers[KVR_EMU_HANDLERS] = {"/v1/chat/completions",
                                                        "/v1/completions",
                                                        "/v1/responses",
                                                        "/v1/messages",
                                                        "/v1/embeddings",
                                                        "/generate",
                                                        "/v1/models",
                                                        "/health",
                                                        "/metrics",
                                                        "none"};

/* ---- histograms ---- */

static void init(struct kvr_emu_histogram *histogram, const double *bounds, size_t len)
{
    *histogram = (struct kvr_emu_histogram){.len = (uint32_t)len};
    memcpy(histogram->bounds, bounds, len * sizeof *bounds);
}

/* 1, 2, 5, 10, ... up to the longest that a request can be. */
static void init_tokens(struct kvr_emu_histogram *histogram, uint32_t most)
{
    static const double mantissas[] = {1, 2, 5};
    *histogram = (struct kvr_emu_histogram){0};
    for (double power = 1;; power *= 10) {
        for (int i = 0; i < 3; i++) {
            if (mantissas[i] * power > most || histogram->len == KVR_EMU_BUCKETS_MAX)
                return;
            histogram->bounds[histogram->len++] = mantissas[i] * power;
        }
    }
}

static void observe(struct kvr_emu_histogram *histogram, double value)
{
    uint32_t i = 0;
    while (i < histogram->len && value > histogram->bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->count++;
    histogram->sum += value;
}

double kvr_emu_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* ---- what happens ---- */

#define INIT(histogram, bounds) init(histogram, bounds, sizeof(bounds) / sizeof((bounds)[0]))

void kvr_emu_metrics_init(struct kvr_emu_metrics *metrics, uint32_t max_model_len,
                          const struct kvr_engine_counters *before, uint64_t now_s)
{
    memset(metrics, 0, sizeof *metrics);
    INIT(&metrics->first_token, first_token_bounds);
    INIT(&metrics->inter_token, inter_token_bounds);
    INIT(&metrics->per_token, inter_token_bounds);
    INIT(&metrics->total, request_bounds);
    INIT(&metrics->queue, request_bounds);
    INIT(&metrics->inference, request_bounds);
    INIT(&metrics->prefill, request_bounds);
    INIT(&metrics->decode, request_bounds);
    init_tokens(&metrics->prompt_tokens, max_model_len);
    init_tokens(&metrics->generation_tokens, max_model_len);
    init_tokens(&metrics->computed_tokens, max_model_len);
    init_tokens(&metrics->max_tokens, max_model_len);
    INIT(&metrics->outputs, output_bounds);
    INIT(&metrics->step_tokens, step_bounds);
    metrics->before = *before;
    metrics->started_s = now_s;
}

void kvr_emu_metrics_token(struct kvr_emu_metrics *metrics, const struct kvr_emu_choice *choice,
                           uint64_t time_ns)
{
    if (time_ns != metrics->step_ns && metrics->step_tokens_so_far) {
        observe(&metrics->step_tokens, (double)metrics->step_tokens_so_far);
        metrics->step_tokens_so_far = 0;
    }
    metrics->step_ns = time_ns;
    metrics->step_tokens_so_far += 1 + (choice->started ? 0 : choice->prompt_tokens);
    if (choice->started) {
        observe(&metrics->inter_token, kvr_emu_seconds(choice->last_token_ns, time_ns));
        return;
    }
    observe(&metrics->first_token, kvr_emu_seconds(choice->arrived_ns, time_ns));
    metrics->tokens_cached_last = choice->cached_tokens;
    metrics->tokens_prompt_last = choice->prompt_tokens;
}

void kvr_emu_metrics_finished(struct kvr_emu_metrics *metrics, const struct kvr_emu_choice *choice)
{
    double decode = kvr_emu_seconds(choice->first_token_ns, choice->last_token_ns);
    observe(&metrics->total, kvr_emu_seconds(choice->arrived_ns, choice->last_token_ns));
    observe(&metrics->queue, kvr_emu_seconds(choice->arrived_ns, choice->admitted_ns));
    observe(&metrics->inference, kvr_emu_seconds(choice->admitted_ns, choice->last_token_ns));
    observe(&metrics->prefill, kvr_emu_seconds(choice->admitted_ns, choice->first_token_ns));
    observe(&metrics->decode, decode);
    observe(&metrics->prompt_tokens, choice->prompt_tokens);
    observe(&metrics->generation_tokens, choice->tokens);
    observe(&metrics->computed_tokens, choice->prompt_tokens - choice->cached_tokens);
    observe(&metrics->max_tokens, choice->max_tokens);
    observe(&metrics->outputs, choice->siblings);
    if (choice->tokens > 1)
        observe(&metrics->per_token, decode / (choice->tokens - 1));
}

uint32_t kvr_emu_metrics_handler(struct kvr_slice path)
{
    uint32_t i = 0;
    while (i < KVR_EMU_HANDLERS - 1 && !kvr_slice_is(path, kvr_emu_handlers[i]))
        i++;
    return i;
}

void kvr_emu_metrics_http(struct kvr_emu_metrics *metrics, uint32_t handler, uint16_t status)
{
    metrics->http[handler][status / 100 % 6]++;
}
