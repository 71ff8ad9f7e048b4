/* kvroute load: sends a workload to an endpoint, and tells how it went.
 *
 * Happy path: the endpoint's model is looked up, the run goes on to its end, the report is printed,
 * exit 0. Failure modes: an endpoint that is not there, a file that cannot be written: one line on
 * stderr, exit 1. Ctrl-C ends the run with a report of what there is, exit 130. A run that should
 * not be trusted without a look (load_report.h) is flagged: exit 3. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "descriptors.h"
#include "fetch.h"
#include "file.h"
#include "load_driver.h"
#include "load_progress.h"
#include "load_settings.h"
#include "load_summary.h"
#include "load_target.h"
#include "load_workload.h"
#include "pick.h"
#include "signals.h"

#define EXIT_FLAGGED     3
#define EXIT_INTERRUPTED 130
#define KEY_MAX          4096

static const char *const apis[] = {"chat", "completions", NULL};

/* What the command line says. */
static struct {
    struct kvr_load_words words;
    unsigned api;
    const char *model;
    const char *key_env;
    const char *key_file;
    struct kvr_option_list headers;
    const char *extra_body;
    bool no_stream;
    double timeout_s;
    double time_scale;
    double duration_s;
    double warmup_s;
    uint64_t requests;
    uint64_t in_flight;
    struct kvr_option_list goodput;
    const char *percentiles;
    const char *rows;
    bool json;
    bool quiet;
    bool help_workload;
} s = {
    .words = {.think_ms = -1, .ramp_s = 60},
    .timeout_s = 600,
    .time_scale = 1,
    .in_flight = 16384,
    .percentiles = "99",
};

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
    KVR_OPTION_FLAG("help-workload", &s.help_workload,
                    "settings of the workload and their defaults"),
    {"duration", 'd', "SECONDS", "nothing is sent after; answers are waited for (60)",
     KVR_OPTION_IS_NUMBER, &s.duration_s, 1e-3, 1e9, NULL},
    {"requests", 'n', "N", "nothing is sent after so many", KVR_OPTION_IS_COUNT, &s.requests, 1,
     1e12, NULL},
    KVR_OPTION_NUMBER("warmup", "SECONDS", &s.warmup_s, 0, 1e9,
                      "what begins before is not measured (0)"),
    KVR_OPTION_NUMBER("time-scale", "X", &s.time_scale, 1e-3, 1e4,
                      "simulated seconds a second: all times but --timeout are simulated (1)"),
    KVR_OPTION_COUNT("max-in-flight", "N", &s.in_flight, 1, 1e6,
                     "open loop: over it requests are dropped, which is a failure (16384)"),
    KVR_OPTION_CHOICE("api", "NAME", &s.api, apis, "chat or completions (chat)"),
    KVR_OPTION_TEXT("model", "NAME", &s.model, "its name (the first that the endpoint lists)"),
    KVR_OPTION_TEXT("key-env", "NAME", &s.key_env, "bearer token, from this variable"),
    KVR_OPTION_TEXT("key-file", "FILE", &s.key_file, "... from the first line of a file"),
    KVR_OPTION_LIST("header", "LINE", &s.headers, "a header of every request, may be repeated"),
    KVR_OPTION_TEXT("extra-body", "JSON", &s.extra_body, "more members of every body"),
    KVR_OPTION_FLAG("no-stream", &s.no_stream, "ask for whole answers"),
    KVR_OPTION_NUMBER("timeout", "SECONDS", &s.timeout_s, 0.001, 1e6,
                      "of one request, on the wall's clock (600)"),
    {"goodput", 'g', "NAME:MS", "what a good request is: ttft tpot e2el itl_p50 itl_mean itl_max",
     KVR_OPTION_IS_LIST, &s.goodput, 0, 0, NULL},
    KVR_OPTION_TEXT("percentiles", "LIST", &s.percentiles, "to report, such as 50,95,99.9 (99)"),
    KVR_OPTION_TEXT("rows", "FILE", &s.rows, "a JSON line a request, written anew"),
    KVR_OPTION_FLAG("json", &s.json, "the report as one JSON object"),
    KVR_OPTION_FLAG("quiet", &s.quiet, "no progress"),
    {0},
};

static const struct kvr_usage usage = {
    "load", "URL [OPTION...]",
    "Sends a workload to an OpenAI endpoint and measures, by the names and definitions of\n"
    "`vllm bench serve`. Closed loop with --users, open loop with --rate, --times or --trace.\n"
    "Exit status: 0 done, 1 could not be done, 2 asked wrongly, 3 done but flagged, 130 "
    "interrupted.",
    options};

/* One run. Static: signals keep pointing here. */
static struct run {
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_load_target target;
    struct kvr_load_body body;
    struct kvr_load_driver driver;
    struct kvr_load_progress progress;
    struct kvr_load_heading heading;
    struct kvr_load_goodput goodput;
    struct kvr_buffer headers;
    char model[640];
    char key[KEY_MAX];
    bool progresses;
} run;

/* ---- words ---- */

static int read_percentiles(struct kvr_load_heading *heading)
{
    const char *at = s.percentiles;
    while (*at) {
        char *end;
        double percent = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(percent > 0 && percent < 100) ||
            heading->percentiles_len == KVR_LOAD_PERCENTILES_MAX)
            return kvr_usage_error(&usage,
                                   "--percentiles takes up to %d numbers between 0 and 100, "
                                   "such as 50,99, not \"%s\"",
                                   KVR_LOAD_PERCENTILES_MAX, s.percentiles);
        heading->percentiles[heading->percentiles_len++] = percent;
        at = *end ? end + 1 : end;
    }
    return KVR_OPTIONS_GO_ON;
}

/* `--goodput ttft:990 itl_p50:24` leaves the second to the operands. */
static int read_goodput(const struct kvr_operands *operands)
{
    struct kvr_error error;
    for (uint32_t i = 0; i < s.goodput.len; i++)
        if (kvr_load_goodput_add(&run.goodput, kvr_slice_of(s.goodput.items[i]), &error))
            return kvr_usage_error(&usage, "--goodput: %s", error.text);
    for (int i = 1; i < operands->len; i++) {
        if (s.goodput.len == 0)
            return kvr_usage_error(&usage, "\"%s\" is one argument too many", operands->items[i]);
        if (kvr_load_goodput_add(&run.goodput, kvr_slice_of(operands->items[i]), &error))
            return kvr_usage_error(&usage, "--goodput: %s", error.text);
    }
    return KVR_OPTIONS_GO_ON;
}

static int read_headers(void)
{
    for (uint32_t i = 0; i < s.headers.len; i++) {
        const char *line = s.headers.items[i];
        const char *colon = strchr(line, ':');
        bool clean = colon && colon > line && strcspn(line, " \t") > (size_t)(colon - line);
        for (const char *at = line; *at; at++)
            clean = clean && (unsigned char)*at >= ' ' && *at != 0x7f;
        if (!clean)
            return kvr_usage_error(&usage, "--header takes \"Name: value\", not \"%s\"", line);
        kvr_buffer_printf(&run.headers, "%s\r\n", line);
    }
    return KVR_OPTIONS_GO_ON;
}

/* The key goes into requests and nowhere else. */
static int read_key(void)
{
    struct kvr_error error;
    FILE *file;
    if (s.key_env && s.key_file)
        return kvr_usage_error(&usage, "--key-env or --key-file: not both");
    if (s.key_env) {
        const char *key = getenv(s.key_env);
        if (!key || !*key || strlen(key) >= KEY_MAX)
            return kvr_usage_error(&usage, "the variable %s holds no key", s.key_env);
        strcpy(run.key, key);
    }
    if (s.key_file) {
        if (kvr_file_open(s.key_file, &file, &error))
            return kvr_usage_error(&usage, "--key-file: %s", error.text);
        char *line = fgets(run.key, KEY_MAX, file);
        fclose(file);
        if (line)
            run.key[strcspn(run.key, "\r\n")] = '\0';
        if (!line || !run.key[0])
            return kvr_usage_error(&usage, "%s holds no key", s.key_file);
    }
    return KVR_OPTIONS_GO_ON;
}

static int read_words(const struct kvr_operands *operands)
{
    if (operands->len == 0)
        return kvr_usage_error(&usage, "whose URL? Such as http://127.0.0.1:8080");
    if (s.duration_s == 0 && s.requests == 0 && !s.words.trace && !s.words.times)
        s.duration_s = 60;
    if (s.duration_s > 0 && s.warmup_s >= s.duration_s)
        return kvr_usage_error(&usage, "nothing is left of %g s after a warm-up of %g s",
                               s.duration_s, s.warmup_s);
    s.words.seeded = s.words.seed != UINT64_MAX;
    int status = read_percentiles(&run.heading);
    if (status == KVR_OPTIONS_GO_ON)
        status = read_goodput(operands);
    if (status == KVR_OPTIONS_GO_ON)
        status = read_headers();
    return status == KVR_OPTIONS_GO_ON ? read_key() : status;
}

/* ---- the model ---- */

static void on_models(void *context, const struct kvr_fetch_result *result)
{
    struct kvr_error *error = context;
    struct kvr_walk walk;
    error->code = KVR_E_NOT_FOUND;
    if (result->uv_code)
        kvr_error_set(error, KVR_E_IO, "no answer from %s: %s", run.heading.url,
                      uv_strerror(result->uv_code));
    else if (result->status != 200)
        kvr_error_set(error, KVR_E_IO, "%s lists no models (status %u): name one by --model",
                      run.heading.url, result->status);
    else
        for (kvr_walk_start(&walk, result->body, "data");
             error->code == KVR_E_NOT_FOUND && kvr_walk_next(&walk);) {
            snprintf(run.model, sizeof run.model, "%s", kvr_pick_text(walk.item, "id").text);
            error->code = run.model[0] ? KVR_OK : KVR_E_NOT_FOUND;
        }
    if (error->code == KVR_E_NOT_FOUND)
        kvr_error_set(error, KVR_E_IO, "%s lists no models: name one by --model", run.heading.url);
}

static int find_model(struct kvr_error *error)
{
    char path[KVR_LOAD_PATH_MAX + 16];
    if (s.model) {
        snprintf(run.model, sizeof run.model, "%s", s.model);
        return 0;
    }
    snprintf(path, sizeof path, "%s/v1/models", run.target.base);
    const struct kvr_fetch_options fetch = {
        .address = (const struct sockaddr *)&run.target.address,
        .host = kvr_slice_of(run.target.authority),
        .path = kvr_slice_of(path),
        .bearer = kvr_slice_of(run.key),
        .headers = kvr_buffer_slice(&run.headers),
    };
    kvr_fetch_start(&run.loop, &fetch, error, on_models);
    uv_run(&run.uv, UV_RUN_DEFAULT);
    return error->code;
}

/* ---- the run ---- */

static void on_ended(void *context)
{
    (void)context;
    kvr_signals_leave();
    if (run.progresses)
        kvr_load_progress_stop(&run.progress);
}

static void on_end_signal(void *context, int number)
{
    (void)context, (void)number;
    kvr_load_driver_stop(&run.driver);
}

static int start(struct kvr_workload *workload, struct kvr_error *error)
{
    const char *api = kvr_load_api_path((enum kvr_load_api)s.api);
    int code = find_model(error);
    if (code == 0)
        code = kvr_load_body_init(&run.body, (enum kvr_load_api)s.api, run.model, !s.no_stream,
                                  kvr_slice_of(s.extra_body), error);
    if (code)
        return code;
    const struct kvr_load_options load = {
        .workload = workload,
        .body = &run.body,
        .client = {.target = &run.target,
                   .path = api,
                   .key = run.key[0] ? run.key : NULL,
                   .headers = kvr_buffer_slice(&run.headers),
                   .timeout_ns = (uint64_t)(s.timeout_s * 1e9)},
        .goodput = run.goodput,
        .time_scale = s.time_scale,
        .duration_ms = s.duration_s * 1e3,
        .warmup_ms = s.warmup_s * 1e3,
        .requests_max = s.requests,
        .in_flight_max = (uint32_t)s.in_flight,
        .rows = s.rows,
    };
    signal(SIGPIPE, SIG_IGN);
    code = kvr_load_driver_start(&run.driver, &run.loop, &load, NULL, on_ended, error);
    if (code)
        return code;
    kvr_signals_watch(&run.uv, &(struct kvr_signals_handler){NULL, on_end_signal, NULL});
    run.progresses = !s.quiet;
    if (run.progresses)
        kvr_load_progress_start(&run.progress, &run.uv, &run.driver);
    return 0;
}

static void tell(struct kvr_workload *workload)
{
    struct kvr_load_heading *heading = &run.heading;
    const struct kvr_load_report *report = &run.driver.report;
    heading->workload = workload;
    heading->api = apis[s.api];
    heading->model = run.model;
    heading->time_scale = s.time_scale;
    heading->duration_ms = s.duration_s * 1e3;
    heading->warmup_ms = s.warmup_s * 1e3;
    heading->connections = run.driver.client.pool.opened;
    heading->resent = run.driver.client.resent;
    if (s.json) {
        struct kvr_buffer text = {0};
        kvr_load_summary_json(heading, report, &text);
        printf("%.*s\n", (int)text.len, text.data);
        kvr_buffer_deinit(&text);
    } else {
        kvr_load_summary_print(heading, report, stdout);
    }
}

static int exit_status(void)
{
    unsigned flags = kvr_load_report_flags(&run.driver.report);
    if (flags & KVR_LOAD_FLAG_INTERRUPTED)
        return EXIT_INTERRUPTED;
    if (flags & KVR_LOAD_FLAG_NOTHING)
        return KVR_EXIT_FAILED;
    return flags ? EXIT_FLAGGED : KVR_EXIT_OK;
}

static int drive(struct kvr_workload *workload)
{
    struct kvr_error error = {0};
    int code = start(workload, &error);
    uv_run(&run.uv, UV_RUN_DEFAULT); /* to the end of the run, and of every handle */
    if (code) {
        fprintf(stderr, "kvroute load: %s\n", error.text);
        return KVR_EXIT_FAILED;
    }
    tell(workload);
    int status = exit_status();
    kvr_load_driver_deinit(&run.driver);
    return status;
}

static int run_load(int argc, char **argv)
{
    struct kvr_operands operands;
    struct kvr_error error = {0};
    s.words.seed = UINT64_MAX;
    int status = kvr_options_parse(&usage, argc, argv, &operands);
    if (status == KVR_OPTIONS_GO_ON && s.help_workload) {
        struct kvr_workload_options defaults;
        kvr_workload_defaults(&defaults);
        kvr_load_print_settings(&defaults, stdout);
        return KVR_EXIT_OK;
    }
    if (status == KVR_OPTIONS_GO_ON)
        status = read_words(&operands);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    KVR_CHECK(uv_loop_init(&run.uv) == 0);
    kvr_loop_init(&run.loop, &run.uv);
    kvr_descriptors_raise();
    run.heading.url = operands.items[0];
    struct kvr_workload *workload = kvr_load_workload(&s.words, &error);
    if (!workload || kvr_load_target_find(&run.target, &run.loop, run.heading.url, &error)) {
        kvr_workload_destroy(workload);
        return kvr_usage_error(&usage, "%s", error.text);
    }
    status = drive(workload);
    kvr_workload_destroy(workload);
    kvr_load_body_deinit(&run.body);
    kvr_buffer_deinit(&run.headers);
    kvr_loop_deinit(&run.loop);
    uv_run(&run.uv, UV_RUN_NOWAIT);
    return status;
}

const struct kvr_command kvr_command_load = {
    "load", "drives a workload against an endpoint, and measures", run_load};
