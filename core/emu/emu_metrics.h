/* The metrics page of an emulated replica, in the words of the engine that it plays. Names and
 * bucket bounds are vLLM's; SGLang and llama.cpp have fewer. Times are engine seconds.
 *
 * Gauges and counters come from the engine when the page is asked for; histograms are kept here. As
 * in a real engine, everything starts from zero when the process does. */
#ifndef KVR_EMU_METRICS_H
#define KVR_EMU_METRICS_H

#include <stdint.h>

#include "buffer.h"
#include "emu_answer.h"
#include "engine.h"
#include "histogram.h"

#define KVR_EMU_BUCKETS_MAX 24
#define KVR_EMU_HANDLERS    10 /* paths that are counted apart; the last stands for the rest */

struct kvr_emu_histogram {
    double bounds[KVR_EMU_BUCKETS_MAX];       /* upper, ascending; `len` of them */
    uint64_t counts[KVR_EMU_BUCKETS_MAX + 1]; /* by bucket; the last is above all bounds */
    uint32_t len;
    uint64_t count; /* samples */
    double sum;
};

struct kvr_emu_metrics {
    struct kvr_emu_histogram first_token; /* seconds, as all up to decode */
    struct kvr_emu_histogram inter_token;
    struct kvr_emu_histogram per_token; /* of a request, its mean */
    struct kvr_emu_histogram total;
    struct kvr_emu_histogram queue;
    struct kvr_emu_histogram inference;
    struct kvr_emu_histogram prefill;
    struct kvr_emu_histogram decode;
    struct kvr_emu_histogram prompt_tokens;
    struct kvr_emu_histogram generation_tokens;
    struct kvr_emu_histogram computed_tokens; /* of the prompt, not from the cache */
    struct kvr_emu_histogram max_tokens;      /* asked for */
    struct kvr_emu_histogram outputs;         /* asked for: n */
    struct kvr_emu_histogram step_tokens;     /* prompts that got ready and tokens made, a step */
    uint64_t http[KVR_EMU_HANDLERS][6];       /* answers by path and status class */
    struct kvr_engine_counters before;        /* of the engine when this process started */
    uint64_t started_s;                       /* wall clock */
    uint64_t step_ns;                         /* of the step whose tokens are being counted */
    uint64_t step_tokens_so_far;
    uint64_t tokens_cached_last; /* SGLang's hit rate is that of the last batch */
    uint64_t tokens_prompt_last;
};

/* What the page needs to know beside its own. */
struct kvr_emu_page {
    enum kvr_emu_flavour flavour;
    const char *model;
    const struct kvr_engine *engine;
    uint64_t now_ns;                     /* engine time */
    uint64_t started_ns;                 /* engine time at which the engine started */
    const struct kvr_histogram *late_ns; /* how late events were handed out */
};

void kvr_emu_metrics_init(struct kvr_emu_metrics *metrics, uint32_t max_model_len,
                          const struct kvr_engine_counters *before, uint64_t now_s);
/* A token of `choice` came at `time_ns`; choice is as it was before it. */
void kvr_emu_metrics_token(struct kvr_emu_metrics *metrics, const struct kvr_emu_choice *choice,
                           uint64_t time_ns);
void kvr_emu_metrics_finished(struct kvr_emu_metrics *metrics, const struct kvr_emu_choice *choice);
/* Between two times of the engine; 0 when they are the wrong way round. */
double kvr_emu_seconds(uint64_t from_ns, uint64_t to_ns);
extern const char *const kvr_emu_handlers[KVR_EMU_HANDLERS];

/* Which row of `http` a path is counted in. */
uint32_t kvr_emu_metrics_handler(struct kvr_slice path);
void kvr_emu_metrics_http(struct kvr_emu_metrics *metrics, uint32_t handler, uint16_t status);
/* In emu_metrics_page.c. */
void kvr_emu_metrics_write(const struct kvr_emu_metrics *metrics, const struct kvr_emu_page *page,
                           struct kvr_buffer *out);

#endif
