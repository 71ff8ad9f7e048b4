#include "metrics_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "prom_sample.h"

/* What a series can mean. Old names have places of their own, so that a page that shows both is not
 * counted twice. */
enum figure {
    RUNNING,
    WAITING,
    KV_USAGE,
    KV_USAGE_OLD,
    QUERIES,
    QUERIES_OLD,
    HITS,
    HITS_OLD,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    CACHED_TOKENS_LOCAL, /* by source */
    GENERATION_TOKENS,
    PREEMPTIONS,
    CAPACITY_TOKENS,
    PAGE_SIZE,
    HIT_RATE,
    FIGURES,
    CACHE_CONFIG, /* its labels speak, not its value */
};

struct series {
    const char *name; /* without the engine's prefix and without _total */
    enum figure figure;
};

static const struct series vllm_series[] = {
    {"num_requests_running", RUNNING},
    {"num_requests_waiting", WAITING},
    {"kv_cache_usage_perc", KV_USAGE},
    {"gpu_cache_usage_perc", KV_USAGE_OLD},
    {"prefix_cache_queries", QUERIES},
    {"gpu_prefix_cache_queries", QUERIES_OLD},
    {"prefix_cache_hits", HITS},
    {"gpu_prefix_cache_hits", HITS_OLD},
    {"gpu_prefix_cache_hit_rate", HIT_RATE},
    {"prompt_tokens", PROMPT_TOKENS},
    {"prompt_tokens_cached", CACHED_TOKENS},
    {"prompt_tokens_by_source", CACHED_TOKENS_LOCAL},
    {"generation_tokens", GENERATION_TOKENS},
    {"num_preemptions", PREEMPTIONS},
    {"cache_config_info", CACHE_CONFIG},
    {NULL, FIGURES},
};

static const struct series sglang_series[] = {
    {"num_running_reqs", RUNNING},
    {"num_queue_reqs", WAITING},
    {"token_usage", KV_USAGE},
    {"cache_hit_rate", HIT_RATE},
    {"prompt_tokens", PROMPT_TOKENS},
    {"cached_tokens", CACHED_TOKENS},
    {"generation_tokens", GENERATION_TOKENS},
    {"num_retracted_reqs", PREEMPTIONS},
    {"num_retracted_requests", PREEMPTIONS},
    {"max_total_num_tokens", CAPACITY_TOKENS},
    {"page_size", PAGE_SIZE},
    {"cache_config_info", CACHE_CONFIG},
    {NULL, FIGURES},
};

static const struct series llamacpp_series[] = {
    {"requests_processing", RUNNING},
    {"requests_deferred", WAITING},
    {"kv_cache_usage_ratio", KV_USAGE},
    {"prompt_tokens", PROMPT_TOKENS},
    {"prompt_tokens_cached", CACHED_TOKENS},
    {"tokens_predicted", GENERATION_TOKENS},
    {NULL, FIGURES},
};

static const struct {
    const char *name;
    const struct series *series;
} dialects[] = {
    [KVR_METRICS_UNKNOWN] = {"unknown", NULL},
    [KVR_METRICS_VLLM] = {"vllm", vllm_series},
    [KVR_METRICS_SGLANG] = {"sglang", sglang_series},
    [KVR_METRICS_LLAMACPP] = {"llamacpp", llamacpp_series},
};

struct sums {
    enum kvr_metrics_dialect dialect;
    double sum[FIGURES];
    uint32_t count[FIGURES]; /* series added up; 0: the page does not say */
    double kv_blocks;        /* of cache_config_info */
    double block_size;
    double process_start_s;
};

const char *kvr_metrics_dialect_name(enum kvr_metrics_dialect dialect)
{
    return dialects[dialect].name;
}

/* ---- what a sample means ---- */

/* A rank above 0 of one engine: repeats what rank 0 says. */
static bool is_repetition(struct kvr_slice labels)
{
    struct kvr_slice rank;
    return (kvr_prom_find_label(labels, "tp_rank", &rank) && !kvr_slice_is(rank, "0")) ||
           (kvr_prom_find_label(labels, "pp_rank", &rank) && !kvr_slice_is(rank, "0"));
}

/* Takes "vllm:" or "vllm_" and the like off; sets the dialect. */
static bool strip_prefix(struct kvr_slice *name, enum kvr_metrics_dialect *dialect)
{
    for (int i = KVR_METRICS_VLLM; i <= KVR_METRICS_LLAMACPP; i++) {
        size_t len = strlen(dialects[i].name);
        if (name->len > len + 1 && memcmp(name->data, dialects[i].name, len) == 0 &&
            (name->data[len] == ':' || name->data[len] == '_')) {
            name->data += len + 1;
            name->len -= len + 1;
            *dialect = (enum kvr_metrics_dialect)i;
            return true;
        }
    }
    return false;
}

static enum figure find_figure(const struct series *series, struct kvr_slice name)
{
    static const char total[] = "_total";
    size_t len = sizeof total - 1;
    if (name.len > len && memcmp(name.data + name.len - len, total, len) == 0)
        name.len -= len;
    for (; series->name; series++)
        if (kvr_slice_is(name, series->name))
            return series->figure;
    return FIGURES;
}

static void add(double *sum, double value)
{
    if (!isnan(value) && value >= 0)
        *sum = isnan(*sum) ? value : *sum + value;
}

static void take_cache_config(struct sums *sums, struct kvr_slice labels)
{
    add(&sums->kv_blocks, kvr_prom_label_number(labels, "num_gpu_blocks"));
    add(&sums->kv_blocks, kvr_prom_label_number(labels, "num_pages"));
    double size = kvr_prom_label_number(labels, "block_size");
    if (isnan(size))
        size = kvr_prom_label_number(labels, "page_size");
    if (size > 0)
        sums->block_size = size;
}

static void take_sample(struct sums *sums, const struct kvr_prom_sample *sample)
{
    if (kvr_slice_is(sample->name, "process_start_time_seconds")) {
        if (sample->value > 0)
            sums->process_start_s = sample->value;
        return;
    }
    struct kvr_slice name = sample->name;
    enum kvr_metrics_dialect dialect;
    if (!strip_prefix(&name, &dialect))
        return;
    if (sums->dialect == KVR_METRICS_UNKNOWN)
        sums->dialect = dialect;
    if (sums->dialect != dialect)
        return;
    enum figure figure = find_figure(dialects[dialect].series, name);
    if (figure == FIGURES || is_repetition(sample->labels))
        return;
    if (figure == CACHE_CONFIG) {
        take_cache_config(sums, sample->labels);
        return;
    }
    struct kvr_slice source;
    if (figure == CACHED_TOKENS_LOCAL && (!kvr_prom_find_label(sample->labels, "source", &source) ||
                                          !kvr_slice_is(source, "local_cache_hit")))
        return;
    if (isnan(sample->value) || sample->value < 0) /* -1: not available */
        return;
    sums->sum[figure] += sample->value;
    sums->count[figure]++;
}

/* ---- the page ---- */

/* A sum or a quotient of what a page says may be too large for a number: then it says nothing. */
static double known(double value)
{
    return isfinite(value) ? value : (double)NAN;
}

static double total(const struct sums *sums, enum figure figure)
{
    return sums->count[figure] ? known(sums->sum[figure]) : (double)NAN;
}

static double mean(const struct sums *sums, enum figure figure)
{
    return sums->count[figure] ? known(sums->sum[figure] / sums->count[figure]) : (double)NAN;
}

static double first_known(double a, double b)
{
    return isfinite(a) ? a : known(b);
}

static void conclude(struct kvr_metrics_page *page, const struct sums *sums)
{
    struct kvr_engine_signals *out = &page->signals;
    page->dialect = sums->dialect;
    out->prefix_hit_rate = mean(sums, HIT_RATE);
    out->running = total(sums, RUNNING);
    out->waiting = total(sums, WAITING);
    out->kv_usage = first_known(mean(sums, KV_USAGE), mean(sums, KV_USAGE_OLD));
    out->prompt_tokens = total(sums, PROMPT_TOKENS);
    out->cached_tokens = first_known(total(sums, CACHED_TOKENS), total(sums, CACHED_TOKENS_LOCAL));
    out->generation_tokens = total(sums, GENERATION_TOKENS);
    out->preemptions = total(sums, PREEMPTIONS);
    out->process_start_s = sums->process_start_s;
    if (sums->dialect == KVR_METRICS_LLAMACPP && !isnan(out->cached_tokens))
        out->prompt_tokens = known(out->prompt_tokens + out->cached_tokens); /* counted apart */
    out->prefix_query_tokens = first_known(total(sums, QUERIES), total(sums, QUERIES_OLD));
    out->prefix_hit_tokens = first_known(total(sums, HITS), total(sums, HITS_OLD));
    if (sums->dialect != KVR_METRICS_VLLM && !isnan(out->cached_tokens)) {
        out->prefix_query_tokens = out->prompt_tokens;
        out->prefix_hit_tokens = out->cached_tokens;
    }
    out->block_size = first_known(sums->block_size, mean(sums, PAGE_SIZE));
    double pages = total(sums, CAPACITY_TOKENS);
    if (out->block_size > 0)
        pages /= out->block_size;
    out->kv_blocks = first_known(sums->kv_blocks, pages);
}

void kvr_metrics_page_read(struct kvr_metrics_page *page, struct kvr_slice text)
{
    struct sums sums = {
        .kv_blocks = (double)NAN, .block_size = (double)NAN, .process_start_s = (double)NAN};
    *page = (struct kvr_metrics_page){.signals = kvr_engine_signals_unread()};
    const char *at = text.len ? text.data : "";
    const char *end = at + text.len;
    while (at < end) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        const char *stop = feed ? feed : end;
        struct kvr_prom_sample sample;
        if (kvr_prom_sample_read(&sample, kvr_slice_make(at, (size_t)(stop - at))))
            take_sample(&sums, &sample);
        at = feed ? feed + 1 : end;
    }
    conclude(page, &sums);
}
