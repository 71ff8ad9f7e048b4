#include "load_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "file.h"
#include "load_settings.h"

static const char *const apis[] = {"chat", "completions", NULL};

/* What the command line says, in the types of its options; these are the defaults. */
static struct kvr_load_line s = {
    .words = {.seed = UINT64_MAX, .think_ms = -1, .ramp_s = 60},
    .timeout_s = 600,
    .time_scale = 1,
    .in_flight = 16384,
};
static const char *key_env;
static const char *key_file;
static const char *percentiles = "99";
static struct kvr_option_list headers;
static struct kvr_option_list goodput;
static bool no_stream;
static bool help_workload;

static const struct kvr_option options[] = {
    {"users", 'u', "N", "closed loop: each sends its next turn when it has its answer (32)",
     KVR_OPTION_IS_COUNT, &s.words.users, 1, 1e6, NULL},
    KVR_OPTION_NUMBER("think", "MS", &s.words.think_ms, 0, 1e9, "... and has thought (1)"),
    {"rate", 'r', "R", "open loop: requests a second, whatever becomes of them",
     KVR_OPTION_IS_NUMBER, &s.words.rate, 1e-6, 1e6, NULL},
    KVR_OPTION_NUMBER("burstiness", "B", &s.words.burstiness, 0.01, 1e6,
                      "Gamma gaps: 1 is Poisson, less comes in bursts (even spacing)"),
    KVR_OPTION_NUMBER("ramp-to", "R", &s.words.rate_end, 1e-6, 1e6, "the rate goes there ..."),
    KVR_OPTION_NUMBER("ramp", "SECONDS", &s.words.ramp_s, 0.001, 1e9, "... within this time (60)"),
    KVR_OPTION_TEXT("times", "FILE", &s.words.times,
                    "open loop at these times, milliseconds, one a line"),
    KVR_OPTION_TEXT("trace", "FILE", &s.words.trace,
                    "the requests of a recorded trace, at its times"),
    KVR_OPTION_FLAG("closed", &s.words.closed, "a trace's sessions wait for their answers"),
    {"set", 's', "NAME=VALUE", "a setting of the workload, may be repeated", KVR_OPTION_IS_LIST,
     &s.words.settings, 0, 0, NULL},
    KVR_OPTION_COUNT("seed", "N", &s.words.seed, 0, 1e15, "who asks what when (1)"),
    KVR_OPTION_FLAG("help-workload", &help_workload, "settings of the workload, their defaults"),
    {"duration", 'd', "SECONDS", "nothing is sent after; answers are waited for (60)",
     KVR_OPTION_IS_NUMBER, &s.duration_s, 1e-3, 1e9, NULL},
    {"requests", 'n', "N", "nothing is sent after so many", KVR_OPTION_IS_COUNT, &s.requests, 1,
     1e12, NULL},
    KVR_OPTION_NUMBER("warmup", "SECONDS", &s.warmup_s, 0, 1e9,
                      "what begins before is not measured (0)"),
    KVR_OPTION_NUMBER("time-scale", "X", &s.time_scale, 1e-3, 1e4,
                      "simulated seconds a second (1): times above and\nreported are simulated"),
    KVR_OPTION_COUNT("max-in-flight", "N", &s.in_flight, 1, 1e6,
                     "open loop: over it requests are dropped, which\nis a failure (16384)"),
    KVR_OPTION_CHOICE("api", "NAME", &s.api, apis, "chat or completions (chat)"),
    KVR_OPTION_TEXT("model", "NAME", &s.model, "its name (the first that the endpoint lists)"),
    KVR_OPTION_TEXT("key-env", "NAME", &key_env, "bearer token, from this variable"),
    KVR_OPTION_TEXT("key-file", "FILE", &key_file, "... from the first line of a file"),
    KVR_OPTION_LIST("header", "LINE", &headers, "a header of every request, may be repeated"),
    KVR_OPTION_TEXT("extra-body", "JSON", &s.extra_body, "more members of every body"),
    KVR_OPTION_FLAG("no-stream", &no_stream, "ask for whole answers"),
    KVR_OPTION_NUMBER("timeout", "SECONDS", &s.timeout_s, 0.001, 1e6,
                      "of one request, on the wall's clock (600)"),
    {"goodput", 'g', "NAME:MS",
     "what a good request is: ttft tpot e2el itl_p50\nitl_mean itl_max, may be repeated",
     KVR_OPTION_IS_LIST, &goodput, 0, 0, NULL},
    KVR_OPTION_TEXT("percentiles", "LIST", &percentiles, "to report, such as 50,95,99.9 (99)"),
    KVR_OPTION_TEXT("rows", "FILE", &s.rows, "a JSON line a request, written anew"),
    KVR_OPTION_FLAG("json", &s.json, "the report as one JSON object"),
    KVR_OPTION_FLAG("quiet", &s.quiet, "no progress"),
    {0},
};

const struct kvr_usage kvr_load_usage = {
    "load", "URL [OPTION...]",
    "Sends a workload to an OpenAI endpoint and measures, by the names and definitions of\n"
    "`vllm bench serve`. Closed loop with --users, open loop with --rate, --times or --trace.\n"
    "Exit status: 0 done, 1 could not be done, 2 asked wrongly, 3 done but flagged, 130 cut off.",
    options};
static const struct kvr_usage *const usage = &kvr_load_usage;

const char *kvr_load_api_name(unsigned api)
{
    return apis[api];
}

static int read_percentiles(void)
{
    const char *at = percentiles;
    while (*at) {
        char *end;
        double percent = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(percent > 0 && percent < 100) ||
            s.percentiles_len == KVR_LOAD_PERCENTILES_MAX)
            return kvr_usage_error(usage,
                                   "--percentiles takes up to %d numbers between 0 and 100, "
                                   "such as 50,99, not \"%s\"",
                                   KVR_LOAD_PERCENTILES_MAX, percentiles);
        s.percentiles[s.percentiles_len++] = percent;
        at = *end ? end + 1 : end;
    }
    return KVR_OPTIONS_GO_ON;
}

/* `--goodput ttft:990 itl_p50:24` leaves the second to the operands. */
static int read_goodput(const struct kvr_operands *operands)
{
    struct kvr_error error;
    for (uint32_t i = 0; i < goodput.len; i++)
        if (kvr_load_goodput_add(&s.goodput, kvr_slice_of(goodput.items[i]), &error))
            return kvr_usage_error(usage, "--goodput: %s", error.text);
    for (int i = 1; i < operands->len; i++) {
        if (goodput.len == 0)
            return kvr_usage_error(usage, "\"%s\" is one argument too many", operands->items[i]);
        if (kvr_load_goodput_add(&s.goodput, kvr_slice_of(operands->items[i]), &error))
            return kvr_usage_error(usage, "--goodput: %s", error.text);
    }
    return KVR_OPTIONS_GO_ON;
}

static int read_headers(void)
{
    for (uint32_t i = 0; i < headers.len; i++) {
        const char *line = headers.items[i];
        const char *colon = strchr(line, ':');
        bool clean = colon && colon > line && strcspn(line, " \t") > (size_t)(colon - line);
        for (const char *at = line; *at; at++)
            clean = clean && (unsigned char)*at >= ' ' && *at != 0x7f;
        if (!clean)
            return kvr_usage_error(usage, "--header takes \"Name: value\", not \"%s\"", line);
        kvr_buffer_printf(&s.headers, "%s\r\n", line);
    }
    return KVR_OPTIONS_GO_ON;
}

static int read_key_file(void)
{
    struct kvr_error error;
    FILE *file;
    if (kvr_file_open_given(key_file, &file, &error))
        return kvr_usage_error(usage, "--key-file: %s", error.text);
    char *line = fgets(s.key, KVR_LOAD_KEY_MAX, file);
    fclose(file);
    if (line)
        s.key[strcspn(s.key, "\r\n")] = '\0';
    return line && s.key[0] ? KVR_OPTIONS_GO_ON
                            : kvr_usage_error(usage, "%s holds no key", key_file);
}

static int read_key(void)
{
    if (key_env && key_file)
        return kvr_usage_error(usage, "--key-env or --key-file: not both");
    if (key_file)
        return read_key_file();
    if (!key_env)
        return KVR_OPTIONS_GO_ON;
    const char *key = getenv(key_env);
    if (!key || !*key || strlen(key) >= KVR_LOAD_KEY_MAX)
        return kvr_usage_error(usage, "the variable %s holds no key", key_env);
    snprintf(s.key, sizeof s.key, "%s", key);
    return KVR_OPTIONS_GO_ON;
}

static int read_times(void)
{
    if (s.duration_s == 0 && s.requests == 0 && !s.words.trace && !s.words.times)
        s.duration_s = 60;
    if (s.duration_s > 0 && s.warmup_s >= s.duration_s)
        return kvr_usage_error(usage, "nothing is left of %g s after a warm-up of %g s",
                               s.duration_s, s.warmup_s);
    return KVR_OPTIONS_GO_ON;
}

int kvr_load_line_read(struct kvr_load_line *line, int argc, char **argv)
{
    struct kvr_operands operands;
    int status = kvr_options_parse(usage, argc, argv, &operands);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (help_workload) {
        struct kvr_workload_options defaults;
        kvr_workload_defaults(&defaults);
        kvr_load_print_settings(&defaults, stdout);
        return KVR_EXIT_OK;
    }
    if (operands.len == 0)
        return kvr_usage_error(usage, "whose URL? Such as http://127.0.0.1:8080");
    s.url = operands.items[0];
    s.words.seeded = s.words.seed != UINT64_MAX;
    s.stream = !no_stream;
    status = read_times();
    if (status == KVR_OPTIONS_GO_ON)
        status = read_percentiles();
    if (status == KVR_OPTIONS_GO_ON)
        status = read_goodput(&operands);
    if (status == KVR_OPTIONS_GO_ON)
        status = read_headers();
    if (status == KVR_OPTIONS_GO_ON)
        status = read_key();
    *line = s;
    return status;
}

void kvr_load_line_deinit(struct kvr_load_line *line)
{
    kvr_buffer_deinit(&line->headers);
}
