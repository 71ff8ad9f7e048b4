/* kvroute load: sends a workload to an endpoint, and tells how it went.
 *
 * Happy path: the endpoint's model is looked up, the run goes on to its end, the report is printed,
 * exit 0. Failure modes: an endpoint that is not there, a file that cannot be written: one line on
 * stderr, exit 1. Ctrl-C ends the run with a report of what there is, exit 130. A run that should
 * not be trusted without a look (load_report.h) is flagged: exit 3. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "descriptors.h"
#include "fetch.h"
#include "load_driver.h"
#include "load_line.h"
#include "load_progress.h"
#include "load_summary.h"
#include "load_target.h"
#include "pick.h"
#include "signals.h"

#define EXIT_FLAGGED     3
#define EXIT_INTERRUPTED 130

/* One run. Static: signals keep pointing here. */
static struct run {
    struct kvr_load_line line;
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_load_target target;
    struct kvr_load_body body;
    struct kvr_load_driver driver;
    struct kvr_load_progress progress;
    char model[640];
    bool progresses;
} run;

/* ---- the model ---- */

static void take_first_model(struct kvr_slice list)
{
    struct kvr_walk walk;
    for (kvr_walk_start(&walk, list, "data"); run.model[0] == '\0' && kvr_walk_next(&walk);)
        snprintf(run.model, sizeof run.model, "%s", kvr_pick_text(walk.item, "id").text);
}

static void on_models(void *context, const struct kvr_fetch_result *result)
{
    struct kvr_error *error = context;
    if (result->uv_code) {
        kvr_error_set(error, KVR_E_IO, "no answer from %s: %s", run.line.url,
                      uv_strerror(result->uv_code));
        return;
    }
    if (result->status == 200)
        take_first_model(result->body);
    if (run.model[0] == '\0')
        kvr_error_set(error, KVR_E_IO, "%s lists no models (status %u): name one by --model",
                      run.line.url, result->status);
}

static int find_model(struct kvr_error *error)
{
    char path[KVR_LOAD_PATH_MAX + 16];
    if (run.line.model) {
        snprintf(run.model, sizeof run.model, "%s", run.line.model);
        return 0;
    }
    snprintf(path, sizeof path, "%s/v1/models", run.target.base);
    const struct kvr_fetch_options fetch = {
        .address = (const struct sockaddr *)&run.target.address,
        .host = kvr_slice_of(run.target.authority),
        .path = kvr_slice_of(path),
        .bearer = kvr_slice_of(run.line.key),
        .headers = kvr_buffer_slice(&run.line.headers),
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

static struct kvr_load_options driver_options(struct kvr_workload *workload)
{
    const struct kvr_load_line *line = &run.line;
    return (struct kvr_load_options){
        .workload = workload,
        .body = &run.body,
        .client = {.target = &run.target,
                   .path = kvr_load_api_path((enum kvr_load_api)line->api),
                   .key = line->key[0] ? line->key : NULL,
                   .headers = kvr_buffer_slice(&line->headers),
                   .timeout_ns = (uint64_t)(line->timeout_s * 1e9)},
        .goodput = line->goodput,
        .time_scale = line->time_scale,
        .duration_ms = line->duration_s * 1e3,
        .warmup_ms = line->warmup_s * 1e3,
        .requests_max = line->requests,
        .in_flight_max = (uint32_t)line->in_flight,
        .rows = line->rows,
    };
}

static int start(struct kvr_workload *workload, struct kvr_error *error)
{
    const struct kvr_load_line *line = &run.line;
    int code = find_model(error);
    if (code == 0)
        code = kvr_load_body_init(&run.body, (enum kvr_load_api)line->api, run.model, line->stream,
                                  kvr_slice_of(line->extra_body), error);
    if (code)
        return code;
    const struct kvr_load_options options = driver_options(workload);
    signal(SIGPIPE, SIG_IGN);
    code = kvr_load_driver_start(&run.driver, &run.loop, &options, NULL, on_ended, error);
    if (code)
        return code;
    kvr_signals_watch(&run.uv, &(struct kvr_signals_handler){NULL, on_end_signal, NULL});
    run.progresses = !line->quiet;
    if (run.progresses)
        kvr_load_progress_start(&run.progress, &run.uv, &run.driver);
    return 0;
}

static void tell(struct kvr_workload *workload)
{
    const struct kvr_load_line *line = &run.line;
    const struct kvr_load_report *report = &run.driver.report;
    struct kvr_load_heading heading = {
        .workload = workload,
        .url = line->url,
        .api = kvr_load_api_name(line->api),
        .model = run.model,
        .time_scale = line->time_scale,
        .duration_ms = line->duration_s * 1e3,
        .warmup_ms = line->warmup_s * 1e3,
        .percentiles_len = line->percentiles_len,
        .connections = run.driver.client.pool.opened,
        .resent = run.driver.client.resent,
    };
    memcpy(heading.percentiles, line->percentiles, sizeof heading.percentiles);
    if (!line->json) {
        kvr_load_summary_print(&heading, report, stdout);
        return;
    }
    struct kvr_buffer text = {0};
    kvr_load_summary_json(&heading, report, &text);
    printf("%.*s\n", (int)text.len, text.data);
    kvr_buffer_deinit(&text);
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
    struct kvr_error error = {0};
    int status = kvr_load_line_read(&run.line, argc, argv);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    KVR_CHECK(uv_loop_init(&run.uv) == 0);
    kvr_loop_init(&run.loop, &run.uv);
    kvr_descriptors_raise();
    struct kvr_workload *workload = kvr_load_workload(&run.line.words, &error);
    if (!workload || kvr_load_target_find(&run.target, &run.loop, run.line.url, &error)) {
        kvr_workload_destroy(workload);
        return kvr_usage_error(&kvr_load_usage, "%s", error.text);
    }
    status = drive(workload);
    kvr_workload_destroy(workload);
    kvr_load_body_deinit(&run.body);
    kvr_load_line_deinit(&run.line);
    kvr_loop_deinit(&run.loop);
    uv_run(&run.uv, UV_RUN_NOWAIT);
    return status;
}

const struct kvr_command kvr_command_load = {
    "load", "drives a workload against an endpoint, and measures", run_load};
