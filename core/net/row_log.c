#include "row_log.h"

#include <string.h>

#include "check.h"
#include "log.h"

#define DEFAULT_ROTATE_BYTES (256ull << 20)
#define DEFAULT_KEEP         8
#define DEFAULT_FLUSH_NS     200000000u
#define DEFAULT_FLUSH_BYTES  (256u << 10)
#define DEFAULT_BUFFER_BYTES (8u << 20)
#define KEEP_MAX             1000

static void start_job(struct kvr_row_log *log);

int kvr_row_log_open(struct kvr_row_log *log, struct kvr_loop *loop,
                     const struct kvr_row_log_options *options, struct kvr_error *error)
{
    *log = (struct kvr_row_log){.loop = loop, .options = *options};
    struct kvr_row_log_options *filled = &log->options;
    if (filled->rotate_bytes == 0)
        filled->rotate_bytes = DEFAULT_ROTATE_BYTES;
    if (filled->keep == 0)
        filled->keep = DEFAULT_KEEP;
    if (filled->keep > KEEP_MAX)
        filled->keep = KEEP_MAX;
    if (filled->flush_ns == 0)
        filled->flush_ns = DEFAULT_FLUSH_NS;
    if (filled->flush_bytes == 0)
        filled->flush_bytes = DEFAULT_FLUSH_BYTES;
    if (filled->buffer_bytes == 0)
        filled->buffer_bytes = DEFAULT_BUFFER_BYTES;
    int rc =
        kvr_row_file_open(&log->file, options->path, filled->rotate_bytes, filled->keep, error);
    if (rc)
        return rc;
    filled->path = log->file.path;
    KVR_CHECK(uv_timer_init(loop->uv, &log->timer) == 0);
    log->timer.data = log;
    log->work.data = log;
    return 0;
}

/* ---- the job ---- */

/* In the thread pool. The loop's side leaves `file`, `writing` and `batch` alone meanwhile. */
static void on_work(uv_work_t *work)
{
    struct kvr_row_log *log = work->data;
    kvr_row_file_write(&log->file, kvr_buffer_slice(&log->writing), &log->batch);
}

static void add_up(struct kvr_row_log *log)
{
    const struct kvr_row_batch *batch = &log->batch;
    log->counters.rows += batch->rows;
    log->counters.bytes += batch->bytes;
    log->counters.dropped_failed += batch->dropped;
    log->counters.rotations += batch->rotations;
    log->counters.reopens += batch->reopens;
    log->counters.reopen_failures += batch->reopen_failures;
    int code = batch->write_errno ? batch->write_errno : batch->open_errno;
    if (code && !log->failing)
        kvr_log(KVR_LOG_WARN, "rows: cannot %s %s: %s", batch->write_errno ? "write to" : "replace",
                log->file.path, strerror(code));
    if (!code && log->failing)
        kvr_log(KVR_LOG_INFO, "rows: %s is written again", log->file.path);
    log->failing = code != 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct kvr_row_log *log = handle->data;
    log->on_closed(log->closed_context);
}

static void finish(struct kvr_row_log *log)
{
    kvr_row_file_close(&log->file);
    kvr_buffer_deinit(&log->waiting);
    kvr_buffer_deinit(&log->writing);
    uv_close((uv_handle_t *)&log->timer, on_timer_closed);
}

static void on_worked(uv_work_t *work, int status)
{
    struct kvr_row_log *log = work->data;
    KVR_CHECK(status == 0);
    log->working = false;
    add_up(log);
    if (log->writing.capacity > 4 * log->options.flush_bytes)
        kvr_buffer_deinit(&log->writing);
    log->writing.len = 0;
    bool overdue = log->waiting.len && !uv_is_active((uv_handle_t *)&log->timer);
    if (overdue || log->reopen_wanted || log->waiting.len >= log->options.flush_bytes ||
        (log->closing && log->waiting.len))
        start_job(log);
    else if (log->closing)
        finish(log);
}

static void start_job(struct kvr_row_log *log)
{
    KVR_CHECK(!log->working);
    struct kvr_buffer empty = log->writing;
    log->writing = log->waiting;
    log->waiting = empty;
    log->batch = (struct kvr_row_batch){0};
    log->reopen_wanted = false;
    log->working = true;
    uv_timer_stop(&log->timer);
    KVR_CHECK(uv_queue_work(log->loop->uv, &log->work, on_work, on_worked) == 0);
}

/* ---- the loop's side ---- */

static void on_timer(uv_timer_t *timer)
{
    struct kvr_row_log *log = timer->data;
    if (!log->working && log->waiting.len)
        start_job(log);
}

void kvr_row_log_append(struct kvr_row_log *log, struct kvr_slice lines)
{
    KVR_CHECK(!log->closing);
    if (lines.len == 0)
        return;
    KVR_CHECK(lines.data[lines.len - 1] == '\n');
    if (log->waiting.len + lines.len > log->options.buffer_bytes) {
        log->counters.dropped_full += kvr_row_count(lines);
        return;
    }
    bool first = log->waiting.len == 0;
    kvr_buffer_append_slice(&log->waiting, lines);
    if (!log->working && log->waiting.len >= log->options.flush_bytes)
        start_job(log);
    else if (first)
        uv_timer_start(&log->timer, on_timer, log->options.flush_ns / 1000000, 0);
}

void kvr_row_log_reopen(struct kvr_row_log *log)
{
    if (log->closing)
        return;
    if (log->working)
        log->reopen_wanted = true;
    else
        start_job(log);
}

void kvr_row_log_close(struct kvr_row_log *log, void *context, void (*on_closed)(void *context))
{
    KVR_CHECK(!log->closing);
    log->closing = true;
    log->closed_context = context;
    log->on_closed = on_closed;
    if (log->working)
        return;
    if (log->waiting.len)
        start_job(log);
    else
        finish(log);
}
