#include "load_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "check.h"

#define TERMINAL_MS 500
#define PLAIN_MS    60000

/* What is left, in simulated seconds: by time, or by count at the pace so far. Negative: unknown.
 */
static double left_s(const struct kvr_load_driver *driver, double at_s)
{
    const struct kvr_load_options *options = &driver->options;
    double left = -1;
    if (options->duration_ms > 0)
        left = options->duration_ms * 1e-3 - at_s;
    if (options->requests_max && driver->sent) {
        double by_count = at_s * (double)options->requests_max / (double)driver->sent - at_s;
        left = left < 0 || by_count < left ? by_count : left;
    }
    return left;
}

static void show(struct kvr_load_progress *progress)
{
    const struct kvr_load_driver *driver = progress->driver;
    const struct kvr_load_report *report = &driver->report;
    double at_s = kvr_load_at_ms(&driver->clock, kvr_loop_now()) * 1e-3;
    double left = left_s(driver, at_s) / driver->clock.scale;
    char end[64] = "";
    if (left > 0)
        snprintf(end, sizeof end, ", %.0f s left", left);
    else if (driver->client.in_flight && driver->options.duration_ms > 0)
        snprintf(end, sizeof end, ", waiting for the last answers");
    double ttft_ms = report->ttft.count ? kvr_sketch_mean(&report->ttft) * 1e-6 : 0;
    char done[64];
    if (report->goodput.count)
        snprintf(done, sizeof done, "%llu good of %llu", (unsigned long long)report->good,
                 (unsigned long long)report->measured);
    else
        snprintf(done, sizeof done, "%llu done", (unsigned long long)report->measured);
    fprintf(stderr, "%s%.0f s: %llu sent, %u in flight, %s, %llu failed, mean ttft %.0f ms%s%s",
            progress->terminal ? "\r\033[K" : "", at_s, (unsigned long long)driver->sent,
            driver->client.in_flight, done, (unsigned long long)kvr_load_report_failed(report),
            ttft_ms, end, progress->terminal ? "" : "\n");
    fflush(stderr);
    progress->shown = true;
}

static void on_timer(uv_timer_t *timer)
{
    show(timer->data);
}

void kvr_load_progress_start(struct kvr_load_progress *progress, uv_loop_t *uv,
                             const struct kvr_load_driver *driver)
{
    *progress = (struct kvr_load_progress){.driver = driver, .terminal = isatty(2) == 1};
    unsigned every_ms = progress->terminal ? TERMINAL_MS : PLAIN_MS;
    KVR_CHECK(uv_timer_init(uv, &progress->timer) == 0);
    progress->timer.data = progress;
    KVR_CHECK(uv_timer_start(&progress->timer, on_timer, every_ms, every_ms) == 0);
    uv_unref((uv_handle_t *)&progress->timer);
}

void kvr_load_progress_stop(struct kvr_load_progress *progress)
{
    if (progress->terminal && progress->shown)
        fputs("\r\033[K", stderr);
    uv_close((uv_handle_t *)&progress->timer, NULL);
}
