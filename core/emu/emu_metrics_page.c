/* The page itself, as vLLM, SGLang and llama.cpp write it. */
#include <stdio.h>
#include <stdlib.h>

#include "emu_metrics.h"
#include "prom_writer.h"

struct writer {
    struct kvr_prom_writer prom;
    enum kvr_emu_flavour flavour;
    const char *model;
};

/* What every sample of an engine carries. */
static void put_labels(struct writer *writer)
{
    if (writer->flavour == KVR_EMU_LLAMACPP)
        return;
    if (writer->flavour == KVR_EMU_VLLM)
        kvr_prom_label(&writer->prom, "engine", kvr_slice_of("0"));
    else
        kvr_prom_label(&writer->prom, "engine_type", kvr_slice_of("unified"));
    kvr_prom_label(&writer->prom, "model_name", kvr_slice_of(writer->model));
    if (writer->flavour == KVR_EMU_SGLANG) {
        kvr_prom_label(&writer->prom, "pp_rank", kvr_slice_of("0"));
        kvr_prom_label(&writer->prom, "tp_rank", kvr_slice_of("0"));
    }
}

/* One sample of the family at hand, with a label of its own. */
static void sample(struct writer *writer, const char *label, const char *value, double number)
{
    put_labels(writer);
    if (label)
        kvr_prom_label(&writer->prom, label, kvr_slice_of(value));
    kvr_prom_double(&writer->prom, number);
}

static void family(struct writer *writer, const char *name, enum kvr_prom_type type,
                   const char *help)
{
    kvr_prom_family(&writer->prom, name, type, help);
}

static void gauge(struct writer *writer, const char *name, const char *help, double value)
{
    family(writer, name, KVR_PROM_GAUGE, help);
    sample(writer, NULL, NULL, value);
}

static void counter(struct writer *writer, const char *name, const char *help, double value)
{
    family(writer, name, KVR_PROM_COUNTER, help);
    sample(writer, NULL, NULL, value);
}

static void write_histogram(struct writer *writer, const char *name, const char *help,
                            const struct kvr_emu_histogram *histogram)
{
    char bucket[80];
    char count[80];
    char sum[80];
    snprintf(bucket, sizeof bucket, "%s_bucket", name);
    snprintf(count, sizeof count, "%s_count", name);
    snprintf(sum, sizeof sum, "%s_sum", name);
    family(writer, name, KVR_PROM_HISTOGRAM, help);
    writer->prom.family = bucket;
    uint64_t total = 0;
    for (uint32_t i = 0; i < histogram->len; i++) {
        /* As prometheus_client writes bounds: whole numbers with a fraction of zero. */
        char bound[32];
        double value = histogram->bounds[i];
        bool is_whole = value == (double)(uint64_t)value;
        snprintf(bound, sizeof bound, is_whole ? "%.1f" : "%g", value);
        total += histogram->counts[i];
        sample(writer, "le", bound, (double)total);
    }
    sample(writer, "le", "+Inf", (double)histogram->count);
    writer->prom.family = count;
    sample(writer, NULL, NULL, (double)histogram->count);
    writer->prom.family = sum;
    sample(writer, NULL, NULL, histogram->sum);
}

/* Counters since the process started. */
static struct kvr_engine_counters since_start(const struct kvr_emu_metrics *metrics,
                                              const struct kvr_engine *engine)
{
    struct kvr_engine_counters now = engine->counters;
    const struct kvr_engine_counters *before = &metrics->before;
    now.rejected_requests -= before->rejected_requests;
    now.rejected_tokens -= before->rejected_tokens;
    for (int i = 0; i < KVR_FINISH_REASONS; i++)
        now.finished[i] -= before->finished[i];
    now.prompt_tokens -= before->prompt_tokens;
    now.cached_tokens -= before->cached_tokens;
    now.prefix_queries -= before->prefix_queries;
    now.prefix_hits -= before->prefix_hits;
    now.generation_tokens -= before->generation_tokens;
    now.preemptions -= before->preemptions;
    now.steps -= before->steps;
    return now;
}

/* What the KV cache is, in labels. */
static void write_cache_info(struct writer *writer, const struct kvr_engine_gauges *gauges)
{
    char text[32];
    family(writer, "cache_config_info", KVR_PROM_GAUGE, "What the KV cache is.");
    put_labels(writer);
    snprintf(text, sizeof text, "%d", KVR_BLOCK_TOKENS);
    kvr_prom_label(&writer->prom, "block_size", kvr_slice_of(text));
    kvr_prom_label(&writer->prom, "cache_dtype", kvr_slice_of("auto"));
    kvr_prom_label(&writer->prom, "enable_prefix_caching", kvr_slice_of("True"));
    snprintf(text, sizeof text, "%u", gauges->blocks * KVR_BLOCK_TOKENS);
    kvr_prom_label(&writer->prom, "kv_cache_size_tokens", kvr_slice_of(text));
    snprintf(text, sizeof text, "%u", gauges->blocks);
    kvr_prom_label(&writer->prom, "num_gpu_blocks", kvr_slice_of(text));
    kvr_prom_uint(&writer->prom, 1);
}

static void write_vllm_counters(struct writer *writer, const struct kvr_engine_counters *counters)
{
    double cached = (double)counters->cached_tokens;
    double prompt = (double)counters->prompt_tokens;
    counter(writer, "prefix_cache_queries_total", "Tokens looked up.",
            (double)counters->prefix_queries);
    counter(writer, "prefix_cache_hits_total", "Tokens found.", (double)counters->prefix_hits);
    counter(writer, "external_prefix_cache_queries_total", "There is no such cache.", 0);
    counter(writer, "external_prefix_cache_hits_total", "There is no such cache.", 0);
    counter(writer, "mm_cache_queries_total", "There is no such cache.", 0);
    counter(writer, "mm_cache_hits_total", "There is no such cache.", 0);
    counter(writer, "num_preemptions_total", "Preemptions.", (double)counters->preemptions);
    counter(writer, "prompt_tokens_total", "Prompt tokens.", prompt);
    counter(writer, "prompt_tokens_cached_total", "Of these, from the cache.", cached);
    counter(writer, "generation_tokens_total", "Tokens generated.",
            (double)counters->generation_tokens);
    family(writer, "prompt_tokens_by_source_total", KVR_PROM_COUNTER,
           "Where prompt tokens came from.");
    sample(writer, "source", "local_compute", prompt - cached);
    sample(writer, "source", "local_cache_hit", cached);
    sample(writer, "source", "external_kv_transfer", 0);
    family(writer, "request_success_total", KVR_PROM_COUNTER, "Requests by how they ended.");
    for (int i = 0; i < KVR_FINISH_REASONS; i++)
        sample(writer, "finished_reason", kvr_emu_finish_name((enum kvr_finish_reason)i),
               (double)counters->finished[i]);
    family(writer, "admission_rejections_total", KVR_PROM_COUNTER, "Requests refused at the door.");
    sample(writer, "reason", "num_queued_reqs", (double)counters->rejected_requests);
    sample(writer, "reason", "num_queued_tokens", (double)counters->rejected_tokens);
}

static void write_vllm(const struct kvr_emu_metrics *metrics, const struct kvr_emu_page *page,
                       struct writer *writer)
{
    struct kvr_engine_gauges gauges = kvr_engine_gauges(page->engine);
    struct kvr_engine_counters counters = since_start(metrics, page->engine);
    gauge(writer, "num_requests_running", "Requests in the batch.", gauges.running);
    gauge(writer, "num_requests_waiting", "Requests in the queue.", gauges.waiting);
    family(writer, "num_requests_waiting_by_reason", KVR_PROM_GAUGE, "Requests in the queue.");
    sample(writer, "reason", "capacity", gauges.waiting);
    sample(writer, "reason", "deferred", 0);
    gauge(writer, "kv_cache_usage_perc", "KV blocks in use, 1 is all.", gauges.kv_usage);
    family(writer, "engine_sleep_state", KVR_PROM_GAUGE, "It never sleeps.");
    sample(writer, "sleep_state", "awake", 1);
    sample(writer, "sleep_state", "weights_offloaded", 0);
    sample(writer, "sleep_state", "discard_all", 0);
    write_cache_info(writer, &gauges);
    write_vllm_counters(writer, &counters);
    write_histogram(writer, "time_to_first_token_seconds", "TTFT.", &metrics->first_token);
    write_histogram(writer, "inter_token_latency_seconds", "ITL.", &metrics->inter_token);
    write_histogram(writer, "request_time_per_output_token_seconds", "TPOT.", &metrics->per_token);
    write_histogram(writer, "e2e_request_latency_seconds", "Whole requests.", &metrics->total);
    write_histogram(writer, "request_queue_time_seconds", "In the queue.", &metrics->queue);
    write_histogram(writer, "request_inference_time_seconds", "In the batch.", &metrics->inference);
    write_histogram(writer, "request_prefill_time_seconds", "To the first token.",
                    &metrics->prefill);
    write_histogram(writer, "request_decode_time_seconds", "From there on.", &metrics->decode);
    write_histogram(writer, "request_prompt_tokens", "Prompt tokens.", &metrics->prompt_tokens);
    write_histogram(writer, "request_generation_tokens", "Tokens generated.",
                    &metrics->generation_tokens);
    write_histogram(writer, "request_prefill_kv_computed_tokens", "Prompt tokens not cached.",
                    &metrics->computed_tokens);
    write_histogram(writer, "request_params_max_tokens", "Tokens asked for.", &metrics->max_tokens);
    write_histogram(writer, "request_params_n", "Outputs asked for.", &metrics->outputs);
    /* Outputs are requests of their own here: the longest of each is its own length. */
    write_histogram(writer, "request_max_num_generation_tokens", "Of the longest output.",
                    &metrics->generation_tokens);
    write_histogram(writer, "iteration_tokens_total", "Tokens of a step.", &metrics->step_tokens);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static void write_sglang(const struct kvr_emu_metrics *metrics, const struct kvr_emu_page *page,
                         struct writer *writer)
{
    struct kvr_engine_gauges gauges = kvr_engine_gauges(page->engine);
    struct kvr_engine_counters counters = since_start(metrics, page->engine);
    uint64_t finished = 0;
    for (int i = 0; i < KVR_FINISH_REASONS; i++)
        finished += counters.finished[i];
    double up_s = kvr_emu_seconds(page->started_ns, page->now_ns);
    gauge(writer, "num_running_reqs", "Requests in the batch.", gauges.running);
    gauge(writer, "num_queue_reqs", "Requests in the queue.", gauges.waiting);
    gauge(writer, "num_used_tokens", "Tokens of KV in use.",
          (double)gauges.blocks_used * KVR_BLOCK_TOKENS);
    gauge(writer, "token_usage", "The same, 1 is all.", gauges.kv_usage);
    gauge(writer, "gen_throughput", "Tokens a second.",
          up_s > 0 ? (double)counters.generation_tokens / up_s : 0);
    gauge(writer, "cache_hit_rate", "Of the latest prompt.",
          share(metrics->tokens_cached_last, metrics->tokens_prompt_last));
    counter(writer, "prompt_tokens_total", "Prompt tokens.", (double)counters.prompt_tokens);
    counter(writer, "generation_tokens_total", "Tokens generated.",
            (double)counters.generation_tokens);
    family(writer, "cached_tokens_total", KVR_PROM_COUNTER, "Prompt tokens from the cache.");
    sample(writer, "cache_source", "device", (double)counters.cached_tokens);
    counter(writer, "num_requests_total", "Requests ended.", (double)finished);
    counter(writer, "num_aborted_requests_total", "Requests aborted.",
            (double)counters.finished[KVR_FINISH_ABORT]);
    write_histogram(writer, "time_to_first_token_seconds", "TTFT.", &metrics->first_token);
    write_histogram(writer, "inter_token_latency_seconds", "ITL.", &metrics->inter_token);
    write_histogram(writer, "e2e_request_latency_seconds", "Whole requests.", &metrics->total);
}

/* llama.cpp tells no KV usage, and does not count cached tokens as processed. */
static void write_llamacpp(const struct kvr_emu_metrics *metrics, const struct kvr_emu_page *page,
                           struct writer *writer)
{
    struct kvr_engine_gauges gauges = kvr_engine_gauges(page->engine);
    struct kvr_engine_counters counters = since_start(metrics, page->engine);
    double processed = (double)(counters.prompt_tokens - counters.cached_tokens);
    double predicted = (double)counters.generation_tokens;
    double prompt_s = metrics->prefill.sum;
    double decode_s = metrics->decode.sum;
    counter(writer, "prompt_tokens_total", "Prompt tokens processed.", processed);
    counter(writer, "prompt_tokens_cached_total", "From the cache.",
            (double)counters.cached_tokens);
    counter(writer, "prompt_seconds_total", "Time on prompts.", prompt_s);
    counter(writer, "tokens_predicted_total", "Tokens generated.", predicted);
    counter(writer, "tokens_predicted_seconds_total", "Time on these.", decode_s);
    counter(writer, "n_decode_total", "Steps.", (double)counters.steps);
    gauge(writer, "prompt_tokens_seconds", "Tokens a second.",
          prompt_s > 0 ? processed / prompt_s : 0);
    gauge(writer, "predicted_tokens_seconds", "Tokens a second.",
          decode_s > 0 ? predicted / decode_s : 0);
    gauge(writer, "requests_processing", "Requests in the batch.", gauges.running);
    gauge(writer, "requests_deferred", "Requests in the queue.", gauges.waiting);
    gauge(writer, "n_busy_slots_per_decode", "Tokens a step.",
          share(counters.generation_tokens, counters.steps));
}

/* What every flavour has, and what only an emulated engine can tell. */
static void write_process(const struct kvr_emu_metrics *metrics, const struct kvr_emu_page *page,
                          struct kvr_buffer *out)
{
    struct kvr_prom_writer prom = {.out = out, .prefix = ""};
    kvr_prom_gauge(&prom, "process_start_time_seconds", (double)metrics->started_s,
                   "When the process started, Unix time.");
    kvr_prom_family(&prom, "http_requests_total", KVR_PROM_COUNTER, "Requests by path and status.");
    for (uint32_t i = 0; i < KVR_EMU_HANDLERS; i++) {
        for (uint32_t status = 1; status < 6; status++) {
            if (metrics->http[i][status] == 0)
                continue;
            char text[8];
            snprintf(text, sizeof text, "%uxx", status);
            kvr_prom_label(&prom, "handler", kvr_slice_of(kvr_emu_handlers[i]));
            kvr_prom_label(&prom, "status", kvr_slice_of(text));
            kvr_prom_uint(&prom, metrics->http[i][status]);
        }
    }
    static const char *const quantiles[] = {"0.5", "0.99", "0.999"};
    kvr_prom_family(&prom, "kvroute_emulator_lateness_seconds", KVR_PROM_GAUGE,
                    "By how much events were handed out late, wall time.");
    for (int i = 0; i < 3; i++) {
        uint64_t late_ns = kvr_histogram_quantile(page->late_ns, strtod(quantiles[i], NULL));
        kvr_prom_label(&prom, "quantile", kvr_slice_of(quantiles[i]));
        kvr_prom_double(&prom, (double)late_ns / 1e9);
    }
    kvr_prom_counter(&prom, "kvroute_emulator_events_total", page->late_ns->count,
                     "Events handed out.");
}

void kvr_emu_metrics_write(const struct kvr_emu_metrics *metrics, const struct kvr_emu_page *page,
                           struct kvr_buffer *out)
{
    struct writer writer = {{.out = out}, page->flavour, page->model};
    switch (page->flavour) {
    case KVR_EMU_VLLM:
        writer.prom.prefix = "vllm:";
        write_vllm(metrics, page, &writer);
        break;
    case KVR_EMU_SGLANG:
        writer.prom.prefix = "sglang:";
        write_sglang(metrics, page, &writer);
        break;
    case KVR_EMU_LLAMACPP:
        writer.prom.prefix = "llamacpp:";
        write_llamacpp(metrics, page, &writer);
        break;
    }
    write_process(metrics, page, out);
}
