#include "load_driver.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "load_row.h"
#include "memory.h"
#include "prompt.h"

/* ---- requests ---- */

static struct kvr_load_request *request_of(struct kvr_load_call *call)
{
    return KVR_LIST_ENTRY(call, struct kvr_load_request, call);
}

static struct kvr_load_request *take_idle(struct kvr_load_driver *driver)
{
    struct kvr_load_request *request = driver->idle;
    if (!request)
        return kvr_alloc_zero(1, sizeof *request);
    driver->idle = request->next_free;
    return request;
}

static void give_back(struct kvr_load_driver *driver, struct kvr_load_request *request)
{
    request->next_free = driver->idle;
    driver->idle = request;
}

bool kvr_load_ask(struct kvr_load_driver *driver, uint64_t user, uint64_t turn)
{
    if (driver->asked && driver->ask.user == user && driver->ask.turn == turn)
        return true;
    driver->asked = kvr_workload_turn(driver->options.workload, user, turn, &driver->ask);
    return driver->asked;
}

static void describe(struct kvr_load_driver *driver, struct kvr_load_request *request,
                     uint64_t due_ns, uint64_t before_ns)
{
    const struct kvr_workload_request *ask = &driver->ask;
    double warmup_ns = driver->options.warmup_ms * 1e6;
    request->user = ask->user;
    request->turn = ask->turn;
    request->session = ask->session;
    request->tag = ask->tag;
    request->session_turn = ask->session_turn;
    request->prompt_bytes = ask->prompt_bytes;
    request->max_tokens = ask->max_tokens;
    request->due_ns = due_ns;
    request->before_ns = before_ns;
    request->body_hash = 0;
    uint64_t began_ns = driver->open ? due_ns : kvr_loop_now();
    request->warmup = warmup_ns > 0 && began_ns < kvr_load_wall_ns(driver, warmup_ns);
}

/* It has ended: into the report and the rows, and back. */
static void record(struct kvr_load_driver *driver, struct kvr_load_request *request)
{
    struct kvr_load_measure measure;
    kvr_load_measure(request, &driver->clock, &measure);
    bool good = kvr_load_report_add(&driver->report, &driver->clock, request, &measure);
    if (!driver->options.rows)
        return;
    driver->row.len = 0;
    kvr_load_row(&driver->row, &driver->clock, driver->open, request, &measure, good);
    kvr_row_log_append(&driver->rows, kvr_buffer_slice(&driver->row));
}

bool kvr_load_send(struct kvr_load_driver *driver, uint64_t due_ns, uint64_t before_ns)
{
    struct kvr_load_request *request = take_idle(driver);
    describe(driver, request, due_ns, before_ns);
    driver->sent++;
    driver->report.started++;
    bool room = !driver->open || driver->client.in_flight < driver->options.in_flight_max;
    if (room && kvr_load_client_start(&driver->client, &request->call)) {
        if (!request->warmup && driver->client.in_flight > driver->report.in_flight_most)
            driver->report.in_flight_most = driver->client.in_flight;
        return true;
    }
    if (!room)
        kvr_load_client_drop(&driver->client, &request->call);
    record(driver, request);
    give_back(driver, request);
    return false;
}

static void on_write(void *context, struct kvr_load_call *call, struct kvr_load_message *message)
{
    static char session[32];
    struct kvr_load_driver *driver = context;
    struct kvr_load_request *request = request_of(call);
    KVR_CHECK(kvr_load_ask(driver, request->user, request->turn));
    kvr_load_body_write(driver->options.body, &driver->ask, message->body);
    request->body_hash = kvr_prompt_hash(kvr_buffer_slice(message->body), 0);
    if (request->session) {
        size_t len = kvr_workload_session_name(driver->options.workload, request->session, session);
        message->session = kvr_slice_make(session, len);
    }
}

static void on_done(void *context, struct kvr_load_call *call)
{
    struct kvr_load_driver *driver = context;
    struct kvr_load_request *request = request_of(call);
    /* First the user's next turn, then the accounts of this one: no gap but what sending costs. */
    if (!driver->open && !driver->stopping)
        kvr_load_closed_answer(driver, request);
    record(driver, request);
    give_back(driver, request);
    kvr_load_look_for_end(driver);
}

static const struct kvr_load_client_events client_events = {.on_write = on_write,
                                                            .on_done = on_done};

/* ---- the clock ---- */

uint64_t kvr_load_wall_ns(const struct kvr_load_driver *driver, double sim_ns)
{
    return driver->clock.origin_ns + (uint64_t)(sim_ns / driver->clock.scale);
}

bool kvr_load_may_send(const struct kvr_load_driver *driver, uint64_t now_ns)
{
    const struct kvr_load_options *options = &driver->options;
    bool late =
        options->duration_ms > 0 && now_ns >= kvr_load_wall_ns(driver, options->duration_ms * 1e6);
    bool enough = options->requests_max && driver->sent >= options->requests_max;
    return !driver->stopping && !late && !enough;
}

static void on_ring(void *context)
{
    struct kvr_load_driver *driver = context;
    if (driver->stopping)
        return;
    if (driver->open)
        kvr_load_open_ring(driver);
    else
        kvr_load_closed_ring(driver);
    kvr_load_look_for_end(driver);
}

static double cpu_seconds(void)
{
    uv_rusage_t usage;
    if (uv_getrusage(&usage))
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* ---- the end ---- */

static void on_part_closed(void *context)
{
    struct kvr_load_driver *driver = context;
    if (--driver->closing > 0)
        return;
    const struct kvr_row_log_counters *rows = &driver->rows.counters;
    driver->report.rows_dropped = rows->dropped_full + rows->dropped_failed;
    driver->on_ended(driver->context);
}

static void end(struct kvr_load_driver *driver)
{
    double wall_s = (double)(kvr_loop_now() - driver->clock.origin_ns) * 1e-9;
    driver->ending = driver->stopping = true;
    driver->report.wall_s = wall_s;
    driver->report.cpu_share = (cpu_seconds() - driver->cpu_s) / wall_s;
    driver->closing = driver->options.rows ? 2 : 1;
    kvr_alarm_deinit(&driver->alarm);
    kvr_load_client_close(&driver->client, driver, on_part_closed);
    if (driver->options.rows)
        kvr_row_log_close(&driver->rows, driver, on_part_closed);
}

void kvr_load_look_for_end(struct kvr_load_driver *driver)
{
    bool more = driver->open ? driver->arrives : driver->users_left > 0;
    if (!driver->ending && driver->client.in_flight == 0 && (!more || driver->stopping))
        end(driver);
}

void kvr_load_driver_stop(struct kvr_load_driver *driver)
{
    if (driver->stopping)
        return;
    driver->report.interrupted = true;
    driver->stopping = true;
    kvr_load_client_cancel(&driver->client);
    kvr_load_look_for_end(driver);
}

void kvr_load_driver_deinit(struct kvr_load_driver *driver)
{
    KVR_CHECK(driver->closing == 0);
    while (driver->idle) {
        struct kvr_load_request *request = driver->idle;
        driver->idle = request->next_free;
        kvr_load_call_deinit(&request->call);
        kvr_free(request);
    }
    kvr_free(driver->users);
    kvr_free(driver->waiting.wakes);
    kvr_buffer_deinit(&driver->row);
    kvr_load_report_deinit(&driver->report);
}

/* ---- the start ---- */

static int open_rows(struct kvr_load_driver *driver, struct kvr_error *error)
{
    const char *path = driver->options.rows;
    if (!path)
        return 0;
    struct stat found;
    if (stat(path, &found) == 0 && S_ISREG(found.st_mode) && truncate(path, 0))
        return kvr_error_set(error, KVR_E_IO, "cannot write %s anew: %s", path, strerror(errno));
    const struct kvr_row_log_options options = {
        .path = path, .rotate_bytes = UINT64_MAX, .buffer_bytes = (size_t)64 << 20};
    return kvr_row_log_open(&driver->rows, driver->loop, &options, error);
}

static void ignore_end(void *context)
{
    (void)context;
}

int kvr_load_driver_start(struct kvr_load_driver *driver, struct kvr_loop *loop,
                          const struct kvr_load_options *options, void *context,
                          void (*on_ended)(void *context), struct kvr_error *error)
{
    *driver = (struct kvr_load_driver){
        .loop = loop, .options = *options, .context = context, .on_ended = on_ended};
    KVR_CHECK(options->time_scale > 0 && options->in_flight_max > 0);
    driver->open = kvr_workload_options(options->workload)->arrivals != KVR_ARRIVALS_CLOSED;
    kvr_load_report_init(&driver->report, driver->open, &options->goodput);
    int rc = open_rows(driver, error);
    if (rc)
        return rc;
    rc = kvr_alarm_init(&driver->alarm, loop->uv, on_ring, driver, error);
    if (rc == 0) {
        rc = kvr_load_client_open(&driver->client, loop, &options->client, &client_events, driver,
                                  error);
        if (rc)
            kvr_alarm_deinit(&driver->alarm);
    }
    if (rc) {
        if (options->rows)
            kvr_row_log_close(&driver->rows, NULL, ignore_end);
        return rc;
    }
    driver->cpu_s = cpu_seconds();
    driver->clock =
        (struct kvr_load_clock){.origin_ns = kvr_loop_now(), .scale = options->time_scale};
    if (driver->open)
        kvr_load_open_start(driver);
    else
        kvr_load_closed_start(driver);
    return 0;
}
