#include "load_report.h"

#include <math.h>

#include "check.h"

void kvr_load_report_init(struct kvr_load_report *report, bool open,
                          const struct kvr_load_goodput *goodput)
{
    *report = (struct kvr_load_report){.open = open, .goodput = *goodput};
}

void kvr_load_report_deinit(struct kvr_load_report *report)
{
    kvr_sketch_deinit(&report->ttft);
    kvr_sketch_deinit(&report->tpot);
    kvr_sketch_deinit(&report->itl);
    kvr_sketch_deinit(&report->e2el);
    kvr_sketch_deinit(&report->late);
    kvr_sketch_deinit(&report->gap);
}

static uint64_t to_ns(double ms)
{
    return (uint64_t)(ms * 1e6 + 0.5);
}

static void widen_window(struct kvr_load_report *report, const struct kvr_load_clock *clock,
                         const struct kvr_load_request *request)
{
    double from_ms =
        kvr_load_at_ms(clock, report->open ? request->due_ns : request->call.started_ns);
    double to_ms = report->open ? from_ms : kvr_load_at_ms(clock, request->call.ended_ns);
    if (report->measured == 0 || from_ms < report->first_ms)
        report->first_ms = from_ms;
    if (report->measured == 0 || to_ms > report->last_ms)
        report->last_ms = to_ms;
}

static void count_status(struct kvr_load_report *report, uint16_t status)
{
    for (unsigned i = 0; i < KVR_LOAD_STATUSES_MAX; i++) {
        struct kvr_load_status_count *count = &report->statuses[i];
        if (count->count && count->status != status)
            continue;
        count->status = status;
        count->count++;
        return;
    }
    report->statuses_other++;
}

static void add_success(struct kvr_load_report *report, const struct kvr_load_clock *clock,
                        const struct kvr_load_request *request,
                        const struct kvr_load_measure *measure)
{
    const struct kvr_load_call *call = &request->call;
    const struct kvr_token_usage *usage = &call->usage.usage;
    report->succeeded++;
    report->output_tokens += measure->output_tokens;
    if (usage->prompt_tokens >= 0) {
        report->counted++;
        report->input_tokens += (uint64_t)usage->prompt_tokens;
    }
    if (usage->cached_tokens >= 0) {
        report->cached_counted++;
        report->cached_tokens += (uint64_t)usage->cached_tokens;
    }
    kvr_sketch_add(&report->ttft, to_ns(measure->ms[KVR_LOAD_TTFT]));
    kvr_sketch_add(&report->e2el, to_ns(measure->ms[KVR_LOAD_E2EL]));
    if (call->streamed && measure->output_tokens > 1)
        kvr_sketch_add(&report->tpot, to_ns(measure->ms[KVR_LOAD_TPOT]));
    for (uint32_t i = 0; i < call->gaps_len; i++)
        kvr_sketch_add(&report->itl, (uint64_t)((double)call->gaps_ns[i] * clock->scale));
}

bool kvr_load_report_add(struct kvr_load_report *report, const struct kvr_load_clock *clock,
                         const struct kvr_load_request *request,
                         const struct kvr_load_measure *measure)
{
    const struct kvr_load_call *call = &request->call;
    bool succeeded = call->failure == KVR_LOAD_OK;
    bool good = succeeded && kvr_load_goodput_met(&report->goodput, measure->ms);
    report->body_hash += request->body_hash;
    if (call->failure == KVR_LOAD_CANCELLED) {
        report->failures[KVR_LOAD_CANCELLED]++;
        return false;
    }
    if (request->warmup) {
        report->warmups++;
        return good;
    }
    widen_window(report, clock, request);
    report->measured++;
    report->failures[call->failure]++;
    report->good += good;
    if (call->failure == KVR_LOAD_STATUS)
        count_status(report, call->status);
    if (call->failure != KVR_LOAD_DROPPED)
        kvr_sketch_add(&report->late, to_ns(kvr_load_late_ms(clock, request)));
    if (request->before_ns)
        kvr_sketch_add(&report->gap,
                       to_ns(kvr_load_ms(clock, request->before_ns, call->started_ns)));
    if (succeeded)
        add_success(report, clock, request, measure);
    return good;
}

uint64_t kvr_load_report_failed(const struct kvr_load_report *report)
{
    return report->measured - report->succeeded;
}

double kvr_load_report_window_s(const struct kvr_load_report *report)
{
    double ms = report->last_ms - report->first_ms;
    if (report->open && report->measured > 1)
        ms *= (double)report->measured / (double)(report->measured - 1);
    return ms * 1e-3;
}

unsigned kvr_load_report_flags(const struct kvr_load_report *report)
{
    double limit_ms = report->open ? KVR_LOAD_LATE_OPEN_MS : KVR_LOAD_LATE_CLOSED_MS;
    double failed = (double)kvr_load_report_failed(report);
    unsigned flags = 0;
    if (report->late.count && kvr_sketch_quantile(&report->late, 0.99) > limit_ms * 1e6)
        flags |= KVR_LOAD_FLAG_BEHIND;
    if (failed > KVR_LOAD_FAILED_SHARE * (double)report->measured)
        flags |= KVR_LOAD_FLAG_FAILURES;
    if (report->succeeded == 0)
        flags |= KVR_LOAD_FLAG_NOTHING;
    if (report->interrupted)
        flags |= KVR_LOAD_FLAG_INTERRUPTED;
    if (report->rows_dropped)
        flags |= KVR_LOAD_FLAG_ROWS;
    if (report->cpu_share > KVR_LOAD_BUSY_SHARE)
        flags |= KVR_LOAD_FLAG_BUSY;
    return flags;
}

double kvr_load_report_rate(const struct kvr_load_report *report, double count)
{
    double window_s = kvr_load_report_window_s(report);
    return window_s > 0 ? count / window_s : NAN;
}

double kvr_load_report_cached_share(const struct kvr_load_report *report)
{
    /* An engine that tells at times what was cached has told 0 where it did not. */
    return report->cached_counted && report->input_tokens
               ? (double)report->cached_tokens / (double)report->input_tokens
               : NAN;
}

static const struct flag {
    unsigned flag;
    const char *name;
    const char *meaning;
} flags[] = {
    {KVR_LOAD_FLAG_BEHIND, "behind", "requests went out late: the driver fell behind"},
    {KVR_LOAD_FLAG_FAILURES, "failures", "more than 1 % of the requests failed"},
    {KVR_LOAD_FLAG_NOTHING, "nothing_succeeded", "no measured request succeeded"},
    {KVR_LOAD_FLAG_INTERRUPTED, "interrupted", "the run ended before its time"},
    {KVR_LOAD_FLAG_ROWS, "rows_dropped", "rows could not be written"},
    {KVR_LOAD_FLAG_BUSY, "busy", "the driver used all of its core: times may be too long"},
};

static const struct flag *find_flag(unsigned flag)
{
    const struct flag *found = NULL;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].flag == flag)
            found = &flags[i];
    KVR_CHECK(found);
    return found;
}

const char *kvr_load_flag_name(unsigned flag)
{
    return find_flag(flag)->name;
}

const char *kvr_load_flag_meaning(unsigned flag)
{
    return find_flag(flag)->meaning;
}
