/* What is timed on an endpoint, in which order, and how it becomes timings. Each figure is a
 * median: of repeated requests, or of the gaps of all streams while exactly these streams decode.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "engine_probe.h"
#include "memory.h"

#define SHORT_PROMPT  64   /* tokens of a stream's prompt */
#define LONG_PROMPT   1024 /* the same, to tell context from sequences */
#define STREAM_TOKENS 64   /* of a stream, while all of its batch decode */
#define SLOWEST_STEP  512  /* tokens that an engine prefills in a step, at the least */
#define SPIKED_TOKENS 1500 /* of the stream that prefills are laid over */
#define SETTLED       8    /* events after which a stream decodes */
#define REPEATS_MAX   16
#define BATCH_MAX     256
#define CACHED_BLOCK  16 /* assumed where the endpoint does not tell what was cached */
#define CACHED_FASTER 0.7
#define BUNCHED       0.8    /* a median below so much of the mean */
#define SIGMA_OF_MAD  1.4826 /* of a normal distribution, by its median absolute deviation */

static const uint32_t lengths[] = {64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192};

#define LENGTHS (sizeof lengths / sizeof lengths[0])

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t len)
{
    KVR_CHECK(len > 0);
    qsort(values, len, sizeof *values, compare);
    return len % 2 ? values[len / 2] : (values[len / 2 - 1] + values[len / 2]) / 2;
}

static double engine_ms(const struct kvr_probe *probe, uint64_t from_ns, uint64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-6 * probe->options->time_scale;
}

static double first_ms(const struct kvr_probe *probe, const struct kvr_probe_call *call)
{
    return engine_ms(probe, call->call.sent_ns, call->call.usage.first_content_ns);
}

static void note(struct kvr_probe_report *report, struct kvr_timing timing)
{
    static const char *const names[] = {"first token", "gap", "gap during a prefill"};
    KVR_CHECK(report->len < KVR_PROBE_TIMINGS_MAX);
    report->timings[report->len++] = timing;
    fprintf(stderr, "%s:", names[timing.kind]);
    if (timing.kind != KVR_TIMING_GAP)
        fprintf(stderr, " %u tokens, %u cached,", timing.prompt_tokens, timing.cached_tokens);
    if (timing.decoding)
        fprintf(stderr, " %u streams of %.0f tokens,", timing.decoding,
                (double)timing.decode_context / timing.decoding);
    fprintf(stderr, " %.2f ms\n", timing.ms);
}

/* ---- first tokens ---- */

/* Sends each call alone; fills in their times. */
static int time_firsts(struct kvr_probe *probe, struct kvr_probe_call *calls, uint32_t count,
                       double *ms, struct kvr_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        kvr_probe_start(probe, &calls[i]);
        int code = kvr_probe_wait(probe, &calls[i], error);
        if (code)
            return code;
        ms[i] = first_ms(probe, &calls[i]);
    }
    return KVR_OK;
}

/* One length, unseen and sent again: two timings, in this order. */
static int time_length(struct kvr_probe *probe, uint32_t tokens, struct kvr_probe_report *report,
                       struct kvr_error *error)
{
    struct kvr_probe_call calls[REPEATS_MAX];
    double ms[REPEATS_MAX];
    uint32_t repeats = probe->options->repeats;
    int code = KVR_OK;
    KVR_CHECK(repeats > 0 && repeats <= REPEATS_MAX);
    for (uint32_t i = 0; i < repeats; i++)
        kvr_probe_call_init(probe, &calls[i], tokens, 1);
    for (int again = 0; code == 0 && again < 2; again++) {
        code = time_firsts(probe, calls, repeats, ms, error);
        if (code)
            break;
        const struct kvr_token_usage *usage = &calls[0].call.usage.usage;
        report->cached_told = report->cached_told || usage->cached_tokens >= 0;
        note(report,
             (struct kvr_timing){
                 .kind = KVR_TIMING_FIRST,
                 .prompt_tokens = (uint32_t)usage->prompt_tokens,
                 .cached_tokens = usage->cached_tokens > 0 ? (uint32_t)usage->cached_tokens : 0,
                 .ms = median(ms, repeats),
             });
    }
    for (uint32_t i = 0; i < repeats; i++)
        kvr_load_call_deinit(&calls[i].call);
    return code;
}

/* An endpoint that does not tell what was cached: if its longest prompt came back much faster when
 * sent again, all that can be cached was, in blocks of vLLM's size. */
static void guess_cached(struct kvr_probe_report *report)
{
    if (report->cached_told || report->len < 2 ||
        report->timings[report->len - 1].ms > CACHED_FASTER * report->timings[report->len - 2].ms)
        return;
    for (size_t i = 1; i < report->len; i += 2)
        report->timings[i].cached_tokens =
            (report->timings[i].prompt_tokens - 1) / CACHED_BLOCK * CACHED_BLOCK;
    fprintf(stderr, "cached tokens are not told; prompts sent again are taken as cached\n");
}

/* ---- gaps ---- */

/* The time of each event of a stream. */
static void event_times(const struct kvr_load_call *call, double *at_ns)
{
    at_ns[0] = (double)call->usage.first_content_ns;
    for (uint32_t i = 0; i < call->gaps_len; i++)
        at_ns[i + 1] = at_ns[i] + (double)call->gaps_ns[i];
}

/* Gaps that begin after `from` and end by `until`, ms of engine time. */
static size_t gaps_between(const struct kvr_probe *probe, const struct kvr_load_call *call,
                           double from_ns, double until_ns, double *ms)
{
    double *at_ns = kvr_alloc(((size_t)call->gaps_len + 1) * sizeof *at_ns);
    size_t len = 0;
    event_times(call, at_ns);
    for (uint32_t i = 0; i < call->gaps_len; i++)
        if (at_ns[i] >= from_ns && at_ns[i + 1] <= until_ns)
            ms[len++] = (double)call->gaps_ns[i] * 1e-6 * probe->options->time_scale;
    kvr_free(at_ns);
    return len;
}

/* Of gaps in any order. The median, which a stray gap does not move; but when this process gets its
 * turn too rarely, tokens come in bunches and most gaps are 0: then the mean. */
static double typical_gap(double *ms, size_t len)
{
    double sum = 0;
    for (size_t i = 0; i < len; i++)
        sum += ms[i];
    double middle = median(ms, len);
    return middle < BUNCHED * sum / (double)len ? sum / (double)len : middle;
}

/* While all of the streams decode. */
static int judge_gaps(const struct kvr_probe *probe, const struct kvr_probe_call *calls,
                      uint32_t streams, struct kvr_probe_report *report, struct kvr_error *error)
{
    double from_ns = 0, until_ns = INFINITY;
    struct kvr_timing timing = {.kind = KVR_TIMING_GAP, .decoding = streams};
    double events = 0, tokens = 0;
    for (uint32_t i = 0; i < streams; i++) {
        const struct kvr_usage_reader *usage = &calls[i].call.usage;
        double first_ns = (double)usage->first_content_ns;
        double last_ns = (double)usage->last_content_ns;
        from_ns = first_ns > from_ns ? first_ns : from_ns;
        until_ns = last_ns < until_ns ? last_ns : until_ns;
        timing.decode_context += (uint64_t)usage->usage.prompt_tokens;
        events += usage->content_events;
        tokens += kvr_load_call_output_tokens(&calls[i].call);
    }
    double *ms = kvr_alloc((size_t)streams * calls[0].max_tokens * sizeof *ms);
    size_t len = 0;
    for (uint32_t i = 0; i < streams; i++)
        len += gaps_between(probe, &calls[i].call, from_ns, until_ns, ms + len);
    int code = KVR_OK;
    if (len < (size_t)streams * 4) {
        code = kvr_error_set(error, KVR_E_STATE, "%u streams did not decode at the same time",
                             streams);
    } else {
        double gap_ms = typical_gap(ms, len);
        timing.ms = gap_ms * events / tokens;            /* an event may hold several tokens */
        timing.decode_context += (uint64_t)(tokens / 2); /* in the middle of the window */
        note(report, timing);
        if (streams == 1 && report->jitter == 0) {
            for (size_t i = 0; i < len; i++)
                ms[i] = fabs(ms[i] / gap_ms - 1);
            report->jitter = SIGMA_OF_MAD * median(ms, len);
        }
    }
    kvr_free(ms);
    return code;
}

static int time_gaps(struct kvr_probe *probe, uint32_t streams, uint32_t prompt,
                     struct kvr_probe_report *report, struct kvr_error *error)
{
    struct kvr_probe_call *calls = kvr_alloc_zero(streams, sizeof *calls);
    /* The last to start must meet all others, which tell a token in each step that prefills. */
    uint32_t tokens = STREAM_TOKENS + streams * prompt / SLOWEST_STEP;
    for (uint32_t i = 0; i < streams; i++) {
        kvr_probe_call_init(probe, &calls[i], prompt, tokens);
        kvr_probe_start(probe, &calls[i]);
    }
    int code = KVR_OK;
    for (uint32_t i = 0; i < streams; i++) {
        int failed = kvr_probe_wait(probe, &calls[i], error);
        code = code ? code : failed;
    }
    if (code == 0)
        code = judge_gaps(probe, calls, streams, report, error);
    for (uint32_t i = 0; i < streams; i++)
        kvr_load_call_deinit(&calls[i].call);
    kvr_free(calls);
    return code;
}

/* ---- gaps during a prefill ---- */

static void start_stream(struct kvr_probe *probe, struct kvr_probe_call *stream)
{
    uint32_t room = probe->options->prompt_max / 2;
    kvr_probe_call_init(probe, stream, SHORT_PROMPT, room < SPIKED_TOKENS ? room : SPIKED_TOKENS);
    kvr_probe_start(probe, stream);
    kvr_probe_wait_events(probe, stream, SETTLED);
}

/* The longest gap of the stream while the other prefilled. */
static double longest_gap(const struct kvr_probe *probe, const struct kvr_probe_call *stream,
                          const struct kvr_probe_call *other)
{
    double from_ns = (double)other->call.sent_ns;
    double until_ns = (double)other->call.ended_ns;
    double *at_ns = kvr_alloc(((size_t)stream->call.gaps_len + 1) * sizeof *at_ns);
    double longest_ns = 0;
    event_times(&stream->call, at_ns);
    for (uint32_t i = 0; i < stream->call.gaps_len; i++)
        if (at_ns[i + 1] > from_ns && at_ns[i] < until_ns &&
            (double)stream->call.gaps_ns[i] > longest_ns)
            longest_ns = (double)stream->call.gaps_ns[i];
    kvr_free(at_ns);
    return longest_ns * 1e-6 * probe->options->time_scale;
}

/* One spike; the stream is begun anew when it is near its end. */
static int time_spike(struct kvr_probe *probe, struct kvr_probe_call *stream, uint32_t tokens,
                      struct kvr_timing *timing, struct kvr_error *error)
{
    struct kvr_probe_call other;
    uint32_t events = stream->call.usage.content_events;
    if (stream->done || events + 2 * SETTLED > stream->max_tokens) {
        int code = stream->done ? KVR_OK : kvr_probe_wait(probe, stream, error);
        if (code)
            return code;
        kvr_load_call_deinit(&stream->call);
        start_stream(probe, stream);
        events = stream->call.usage.content_events;
    }
    kvr_probe_call_init(probe, &other, tokens, 1);
    kvr_probe_start(probe, &other);
    int code = kvr_probe_wait(probe, &other, error);
    if (code == 0) {
        const struct kvr_token_usage *usage = &other.call.usage.usage;
        kvr_probe_wait_events(probe, stream, stream->call.usage.content_events + 2);
        *timing = (struct kvr_timing){
            .kind = KVR_TIMING_SPIKE,
            .prompt_tokens = (uint32_t)usage->prompt_tokens,
            .cached_tokens = usage->cached_tokens > 0 ? (uint32_t)usage->cached_tokens : 0,
            .decoding = 1,
            .decode_context = SHORT_PROMPT + events,
            .ms = longest_gap(probe, stream, &other),
        };
        if (timing->ms <= 0)
            code = kvr_error_set(error, KVR_E_STATE, "a stream stood still during a prefill of %u",
                                 timing->prompt_tokens);
    }
    kvr_load_call_deinit(&other.call);
    return code;
}

static int time_spikes(struct kvr_probe *probe, uint32_t longest, struct kvr_probe_report *report,
                       struct kvr_error *error)
{
    struct kvr_probe_call stream;
    int code = KVR_OK;
    start_stream(probe, &stream);
    for (size_t i = 0; code == 0 && i < LENGTHS && lengths[i] <= longest; i++) {
        double ms[REPEATS_MAX];
        struct kvr_timing timing = {.kind = KVR_TIMING_SPIKE};
        uint32_t repeats = probe->options->repeats;
        for (uint32_t k = 0; code == 0 && k < repeats; k++) {
            code = time_spike(probe, &stream, lengths[i], &timing, error);
            ms[k] = timing.ms;
        }
        if (code == 0) {
            timing.ms = median(ms, repeats);
            note(report, timing);
        }
    }
    kvr_load_client_cancel(&probe->client);
    kvr_load_call_deinit(&stream.call);
    return code;
}

/* ---- all of it ---- */

/* How many words a token is, and with the ladder how many bytes: tokens = head + bytes / b. */
static int learn_words(struct kvr_probe *probe, struct kvr_probe_report *report,
                       struct kvr_error *error)
{
    double tokens[2], bytes[2];
    for (int i = 0; i < 2; i++) {
        struct kvr_probe_call call;
        kvr_probe_call_init(probe, &call, i ? 400 : 40, 2);
        kvr_probe_start(probe, &call);
        int code = kvr_probe_wait(probe, &call, error);
        tokens[i] = (double)call.call.usage.usage.prompt_tokens;
        bytes[i] = call.prompt_bytes;
        kvr_load_call_deinit(&call.call);
        if (code)
            return code;
    }
    if (tokens[1] <= tokens[0])
        return kvr_error_set(error, KVR_E_IO, "a longer prompt has no more tokens: %.0f, %.0f",
                             tokens[0], tokens[1]);
    report->bytes_per_token = (bytes[1] - bytes[0]) / (tokens[1] - tokens[0]);
    report->head_tokens = tokens[0] - bytes[0] / report->bytes_per_token;
    probe->words_per_token = 360 / (tokens[1] - tokens[0]);
    return KVR_OK;
}

int kvr_probe_measure(struct kvr_probe *probe, struct kvr_probe_report *report,
                      struct kvr_error *error)
{
    const struct kvr_probe_options *options = probe->options;
    KVR_CHECK(options->repeats <= REPEATS_MAX && options->batch_max <= BATCH_MAX);
    *report = (struct kvr_probe_report){0};
    int code = learn_words(probe, report, error);
    uint32_t longest = 0;
    for (size_t i = 0; code == 0 && i < LENGTHS && lengths[i] <= options->prompt_max; i++) {
        code = time_length(probe, lengths[i], report, error);
        if (code == KVR_E_INVALID && longest) {
            fprintf(stderr, "%s: the ladder ends below it\n", error->text);
            code = KVR_OK;
            break;
        }
        longest = lengths[i];
    }
    guess_cached(report);
    for (uint32_t streams = 1; code == 0 && streams <= options->batch_max; streams *= 2) {
        code = time_gaps(probe, streams, SHORT_PROMPT, report, error);
        if (code == 0 && longest >= LONG_PROMPT)
            code = time_gaps(probe, streams, LONG_PROMPT, report, error);
    }
    return code ? code : time_spikes(probe, longest, report, error);
}
