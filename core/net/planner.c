#include "planner.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "check.h"
#include "log.h"

#define CELLS_A_PIECE 2048 /* of the window: about 0.1 ms */
#define THREAD_NICE   10

static void go_idle(struct kvr_planner *planner);
static void on_handle_closed(uv_handle_t *handle);

const char *kvr_planner_phase_name(enum kvr_planner_phase phase)
{
    static const char *const names[] = {"idle", "counting", "making", "cleaning"};
    return names[phase];
}

const char *kvr_planner_result_name(enum kvr_planner_result result)
{
    static const char *const names[KVR_PLANNER_RESULTS] = {"none",      "installed", "same",
                                                           "not_worth", "withheld",  "failed"};
    return names[result];
}

/* Of this thread: what a request on the loop has to wait for, whatever else the machine does. */
static uint64_t cpu_ns(void)
{
    struct timespec time;
    KVR_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void note_most(uint64_t *most, uint64_t since_ns)
{
    uint64_t took_ns = cpu_ns() - since_ns;
    *most = took_ns > *most ? took_ns : *most;
}

/* ---- in a thread of its own ---- */

static void make(struct kvr_planner *planner)
{
    kvr_plan_work_make(&planner->work, &planner->options.planning, planner->wish.file);
}

/* Where there are more threads than processors, the loop goes first. */
static void on_thread(void *argument)
{
    struct kvr_planner *planner = argument;
    (void)setpriority(PRIO_PROCESS, 0, THREAD_NICE); /* on Linux: of this thread alone */
    if (planner->phase == KVR_PLANNER_MAKING)
        make(planner);
    else
        kvr_plan_work_clean(&planner->work);
    KVR_CHECK(uv_async_send(&planner->worked) == 0);
}

/* ---- on the loop ---- */

static void install(struct kvr_planner *planner)
{
    struct kvr_plan_work *work = &planner->work;
    const struct kvr_plan_change *change = &work->made.change;
    uint64_t began_ns = cpu_ns();
    kvr_planning_install(planner->router, kvr_loop_now(), &work->planning, &work->made);
    struct kvr_planner_origin *origin = &planner->origin;
    struct kvr_plan_census census = origin->census;
    origin->census = work->census;
    work->census = census; /* to be freed with what it was of */
    snprintf(origin->file, sizeof origin->file, "%s", planner->wish.file);
    origin->window_s = work->planning.window_s;
    origin->since_ns = kvr_loop_now();
    planner->counters.added += change->added;
    planner->counters.removed += change->removed;
    note_most(&planner->counters.install_ns_max, began_ns);
}

static enum kvr_planner_result judge(const struct kvr_planner *planner)
{
    if (!planner->work.made.plan)
        return KVR_PLANNER_FAILED;
    if (*planner->withheld)
        return KVR_PLANNER_WITHHELD;
    /* Against a plan that has been withdrawn since it was compared, nothing is the same. */
    if (!planner->router->plan)
        return KVR_PLANNER_INSTALLED;
    switch ((enum kvr_plan_verdict)planner->work.made.change.verdict) {
    case KVR_PLAN_SAME:
        return KVR_PLANNER_SAME;
    case KVR_PLAN_NOT_WORTH:
        return KVR_PLANNER_NOT_WORTH;
    case KVR_PLAN_INSTALL:
        break;
    }
    return KVR_PLANNER_INSTALLED;
}

/* `again`: it failed as the one before, as in a night without requests. */
static void tell_log(const struct kvr_planner *planner, bool again)
{
    const struct kvr_planner_attempt *last = &planner->last;
    if (last->result == KVR_PLANNER_INSTALLED)
        kvr_log(KVR_LOG_INFO,
                "plan: %u of %u keys, imbalance %.3f; %u placements kept, %u added, %u removed",
                last->admitted, last->keys, last->imbalance, last->change.kept, last->change.added,
                last->change.removed);
    if (last->old_file)
        kvr_log(KVR_LOG_WARN, "plan: %s: " KVR_PLANNER_OLD_FILE, planner->origin.file);
    else if (last->result == KVR_PLANNER_FAILED && !again)
        kvr_log(KVR_LOG_WARN, "plan: %s", last->error.text);
}

/* What was made is judged, and taken or not. */
static void conclude(struct kvr_planner *planner)
{
    struct kvr_planner_attempt *last = &planner->last;
    const struct kvr_plan_work *work = &planner->work;
    const struct kvr_plan *plan = work->made.plan;
    bool again =
        last->result == KVR_PLANNER_FAILED && strcmp(last->error.text, work->error.text) == 0;
    *last = (struct kvr_planner_attempt){
        .result = judge(planner),
        .error = work->error,
        .change = work->made.change,
        .ended_ns = kvr_loop_now(),
        .made_ns = work->took_ns,
        .keys = plan ? plan->keys : 0,
        .admitted = plan ? plan->admitted : 0,
        .imbalance = plan ? plan->imbalance : 0,
    };
    if (last->result == KVR_PLANNER_WITHHELD)
        kvr_error_set(&last->error, KVR_E_STATE, "plans are withheld: %s", planner->withheld);
    last->old_file = last->result == KVR_PLANNER_INSTALLED && work->made.version == 1;
    planner->counters.results[last->result]++;
    if (last->result == KVR_PLANNER_INSTALLED)
        install(planner);
    tell_log(planner, again);
}

static void start_work(struct kvr_planner *planner, enum kvr_planner_phase phase)
{
    planner->phase = phase;
    KVR_CHECK(uv_thread_create(&planner->thread, on_thread, planner) == 0);
}

static void start_cleaning(struct kvr_planner *planner)
{
    planner->work.rubbish = planner->withdrawn;
    planner->withdrawn = NULL;
    start_work(planner, KVR_PLANNER_CLEANING);
}

static void on_worked(uv_async_t *worked)
{
    struct kvr_planner *planner = worked->data;
    KVR_CHECK(uv_thread_join(&planner->thread) == 0);
    if (planner->phase == KVR_PLANNER_CLEANING) {
        go_idle(planner);
        return;
    }
    if (!planner->closing)
        conclude(planner);
    struct kvr_planner_wish wish = planner->wish;
    planner->wish = (struct kvr_planner_wish){0};
    start_cleaning(planner);
    if (wish.on_done)
        wish.on_done(wish.context,
                     planner->last.result == KVR_PLANNER_FAILED ? &planner->last.error : NULL);
}

static void on_count(uv_idle_t *idle)
{
    struct kvr_planner *planner = idle->data;
    uint64_t began_ns = cpu_ns();
    bool more = kvr_planning_read(&planner->work.planning, planner->router, CELLS_A_PIECE);
    note_most(&planner->counters.piece_ns_max, began_ns);
    if (more)
        return;
    uv_idle_stop(idle);
    start_work(planner, KVR_PLANNER_MAKING);
}

static void begin(struct kvr_planner *planner)
{
    KVR_CHECK(planner->phase == KVR_PLANNER_IDLE);
    uint64_t began_ns = cpu_ns();
    kvr_planning_begin(&planner->work.planning, planner->router, kvr_loop_now());
    note_most(&planner->counters.piece_ns_max, began_ns);
    if (*planner->wish.file) {
        start_work(planner, KVR_PLANNER_MAKING);
        return;
    }
    planner->phase = KVR_PLANNER_COUNTING;
    uv_idle_start(&planner->counting, on_count);
}

static void on_due(uv_timer_t *timer)
{
    struct kvr_planner *planner = timer->data;
    planner->is_due = true;
    if (planner->phase == KVR_PLANNER_IDLE)
        go_idle(planner);
}

/* The last handle goes when no thread can use it any more. */
static void close_when_idle(struct kvr_planner *planner)
{
    if (planner->phase == KVR_PLANNER_IDLE && !uv_is_closing((uv_handle_t *)&planner->worked))
        uv_close((uv_handle_t *)&planner->worked, on_handle_closed);
}

static void finish_if_closed(struct kvr_planner *planner)
{
    if (!planner->closing || planner->open_handles)
        return;
    kvr_plan_census_deinit(&planner->origin.census);
    if (planner->on_closed)
        planner->on_closed(planner->closed_context);
}

static void go_idle(struct kvr_planner *planner)
{
    planner->phase = KVR_PLANNER_IDLE;
    if (planner->withdrawn) {
        start_cleaning(planner);
    } else if (planner->closing) {
        close_when_idle(planner);
    } else if (planner->is_due && !(planner->wished && planner->due_was_last)) {
        planner->is_due = false;
        planner->due_was_last = true;
        begin(planner);
    } else if (planner->wished) {
        planner->due_was_last = false;
        planner->wish = planner->next_wish;
        planner->wished = false;
        begin(planner);
    }
}

/* ---- what others call ---- */

void kvr_planner_start(struct kvr_planner *planner, struct kvr_loop *loop,
                       struct kvr_router *router, const struct kvr_planner_options *options)
{
    memset(planner, 0, sizeof *planner);
    planner->loop = loop;
    planner->router = router;
    planner->options = *options;
    KVR_CHECK(uv_idle_init(loop->uv, &planner->counting) == 0);
    KVR_CHECK(uv_timer_init(loop->uv, &planner->due) == 0);
    KVR_CHECK(uv_async_init(loop->uv, &planner->worked, on_worked) == 0);
    planner->worked.data = planner->counting.data = planner->due.data = planner;
    planner->open_handles = 3;
    uint64_t interval_ms = options->interval_ns / 1000000;
    if (interval_ms)
        uv_timer_start(&planner->due, on_due, interval_ms, interval_ms);
}

int kvr_planner_load_first(struct kvr_planner *planner, const char *file, struct kvr_error *error)
{
    KVR_CHECK(planner->phase == KVR_PLANNER_IDLE);
    kvr_planning_begin(&planner->work.planning, planner->router, kvr_loop_now());
    snprintf(planner->wish.file, sizeof planner->wish.file, "%s", file);
    make(planner);
    conclude(planner);
    planner->wish = (struct kvr_planner_wish){0};
    kvr_plan_work_clean(&planner->work);
    if (planner->last.result == KVR_PLANNER_FAILED)
        return kvr_error_set(error, planner->last.error.code, "%s", planner->last.error.text);
    return KVR_OK;
}

int kvr_planner_ask(struct kvr_planner *planner, const struct kvr_planner_wish *wish,
                    struct kvr_error *error)
{
    if (*planner->withheld)
        return kvr_error_set(error, KVR_E_STATE, "plans are withheld: %s", planner->withheld);
    if (planner->wished)
        return kvr_error_set(error, KVR_E_STATE, "another plan is being made");
    planner->next_wish = *wish;
    planner->wished = true;
    if (planner->phase == KVR_PLANNER_IDLE)
        go_idle(planner);
    return KVR_OK;
}

static void forget(struct kvr_planner_wish *wish, const void *context)
{
    if (wish->context == context)
        wish->on_done = NULL;
}

void kvr_planner_forget(struct kvr_planner *planner, const void *context)
{
    forget(&planner->wish, context);
    forget(&planner->next_wish, context);
}

void kvr_planner_withhold(struct kvr_planner *planner, const char *why)
{
    snprintf(planner->withheld, sizeof planner->withheld, "%s", *why ? why : "by request");
    if (!planner->router->plan)
        return;
    KVR_CHECK(!planner->withdrawn); /* since then none has been installed */
    planner->withdrawn = kvr_router_install_plan(planner->router, NULL, NULL);
    planner->counters.withdrawals++;
    kvr_log(KVR_LOG_WARN, "plan: withdrawn: %s", planner->withheld);
    if (planner->phase == KVR_PLANNER_IDLE)
        go_idle(planner);
}

void kvr_planner_resume(struct kvr_planner *planner)
{
    if (!*planner->withheld)
        return;
    planner->withheld[0] = '\0';
    kvr_log(KVR_LOG_INFO, "plan: no longer withheld");
    if (planner->wished)
        return;
    struct kvr_planner_wish wish = {.on_done = NULL};
    int rc = kvr_planner_ask(planner, &wish, NULL);
    KVR_CHECK(rc == KVR_OK);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct kvr_planner *planner = handle->data;
    planner->open_handles--;
    finish_if_closed(planner);
}

void kvr_planner_close(struct kvr_planner *planner, void *context, void (*on_closed)(void *context))
{
    KVR_CHECK(!planner->closing);
    planner->closing = true;
    planner->closed_context = context;
    planner->on_closed = on_closed;
    planner->wished = false;
    planner->wish.on_done = NULL;
    if (planner->phase == KVR_PLANNER_COUNTING) {
        uv_idle_stop(&planner->counting);
        start_cleaning(planner);
    }
    uv_close((uv_handle_t *)&planner->counting, on_handle_closed);
    uv_close((uv_handle_t *)&planner->due, on_handle_closed);
    close_when_idle(planner);
}
