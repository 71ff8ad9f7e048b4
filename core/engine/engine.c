#include "engine.h"

#include <string.h>

#define DEFAULT_MAX_WAITING 65536u

int kvr_engine_init(struct kvr_engine *engine, const struct kvr_engine_options *options,
                    struct kvr_error *error)
{
    int failed = kvr_profile_check(options->profile, error);
    if (failed)
        return failed;
    *engine = (struct kvr_engine){.profile = *options->profile, .options = *options};
    engine->options.profile = &engine->profile;
    if (!engine->options.max_waiting)
        engine->options.max_waiting = DEFAULT_MAX_WAITING;
    if (!engine->options.max_waiting_tokens)
        engine->options.max_waiting_tokens = UINT64_MAX;
    kvr_report_queue_init(&engine->reports);
    kvr_scheduler_init(&engine->scheduler, &(struct kvr_scheduler_options){
                                               .profile = &engine->profile,
                                               .reports = &engine->reports,
                                               .counters = &engine->counters,
                                               .seed = options->seed,
                                               .token_events = options->token_events,
                                               .kv_events = options->kv_events,
                                           });
    return KVR_OK;
}

void kvr_engine_deinit(struct kvr_engine *engine)
{
    kvr_scheduler_deinit(&engine->scheduler);
    kvr_report_queue_deinit(&engine->reports);
}

/* Ends every step that is over by now. An idle engine with requests queued starts its first step
 * when that is due before `now`, or at it if `start_due`. */
static void run(struct kvr_engine *engine, uint64_t now_ns, bool start_due)
{
    struct kvr_scheduler *scheduler = &engine->scheduler;
    KVR_CHECK(now_ns >= engine->now_ns);
    engine->now_ns = now_ns;
    if (!scheduler->stepping && scheduler->waiting_len &&
        (engine->start_ns < now_ns || (engine->start_ns == now_ns && start_due))) {
        kvr_scheduler_start(scheduler, engine->start_ns);
        engine->quiet_known = false;
    }
    while (scheduler->stepping && scheduler->step_end_ns <= now_ns) {
        kvr_scheduler_finish(scheduler);
        kvr_scheduler_start(scheduler, scheduler->step_end_ns);
        engine->quiet_known = false;
    }
}

static int check_request(const struct kvr_engine *engine, const struct kvr_engine_request *request)
{
    uint64_t tokens = (uint64_t)request->prompt_tokens + request->output_tokens;
    if (!request->prompt_tokens || !request->output_tokens ||
        tokens > engine->profile.max_model_len)
        return KVR_E_INVALID;
    /* The KV of the last token is never computed. */
    if (tokens - 1 > (uint64_t)engine->profile.blocks * KVR_BLOCK_TOKENS)
        return KVR_E_INVALID;
    return KVR_OK;
}

int kvr_engine_submit(struct kvr_engine *engine, uint64_t now_ns,
                      const struct kvr_engine_request *request, struct kvr_engine_handle *handle)
{
    struct kvr_scheduler *scheduler = &engine->scheduler;
    KVR_CHECK(request->reason == KVR_FINISH_STOP || request->reason == KVR_FINISH_LENGTH);
    *handle = (struct kvr_engine_handle){0, 0};
    run(engine, now_ns, false);
    if (now_ns < engine->ready_ns)
        return KVR_E_STATE;
    int failed = check_request(engine, request);
    if (failed)
        return failed;
    if (scheduler->waiting_len >= engine->options.max_waiting) {
        engine->counters.rejected_requests++;
        return KVR_E_LIMIT;
    }
    if (scheduler->waiting_tokens + request->prompt_tokens > engine->options.max_waiting_tokens) {
        engine->counters.rejected_tokens++;
        return KVR_E_LIMIT;
    }
    uint32_t cachable = request->prompt_tokens;
    if (engine->profile.cache_generated)
        cachable += request->output_tokens - 1;
    uint32_t hashes = cachable / KVR_BLOCK_TOKENS;
    if (hashes > request->blocks_len)
        hashes = request->blocks_len;
    uint32_t blocks = (request->prompt_tokens + request->output_tokens) / KVR_BLOCK_TOKENS + 1;
    struct kvr_sequence *sequence = kvr_sequence_acquire(&scheduler->pool, hashes, blocks);
    sequence->id = request->id;
    sequence->prompt_tokens = request->prompt_tokens;
    sequence->output_tokens = request->output_tokens;
    sequence->reason = (uint8_t)request->reason;
    sequence->submitted_ns = now_ns;
    sequence->hashes_len = hashes;
    if (hashes)
        memcpy(sequence->hashes, request->blocks, hashes * sizeof *sequence->hashes);
    if (!scheduler->stepping && !scheduler->waiting_len)
        engine->start_ns = now_ns;
    kvr_scheduler_queue(scheduler, sequence);
    engine->quiet_known = false;
    engine->counters.submitted++;
    *handle = (struct kvr_engine_handle){sequence->slot, sequence->generation};
    return KVR_OK;
}

int kvr_engine_abort(struct kvr_engine *engine, uint64_t now_ns, struct kvr_engine_handle handle)
{
    run(engine, now_ns, false);
    struct kvr_sequence *sequence =
        kvr_sequence_get(&engine->scheduler.pool, handle.slot, handle.generation);
    if (!sequence || sequence->state == KVR_SEQUENCE_DONE)
        return KVR_E_NOT_FOUND;
    kvr_scheduler_abort(&engine->scheduler, sequence);
    engine->quiet_known = false;
    return KVR_OK;
}

uint64_t kvr_engine_next_time(struct kvr_engine *engine)
{
    struct kvr_scheduler *scheduler = &engine->scheduler;
    if (!scheduler->stepping)
        return scheduler->waiting_len ? engine->start_ns : KVR_ENGINE_NEVER;
    if (engine->options.every_step)
        return scheduler->step_end_ns;
    if (!engine->quiet_known) {
        engine->quiet_ns = kvr_scheduler_quiet_until(scheduler);
        engine->quiet_known = true;
    }
    return engine->quiet_ns;
}

void kvr_engine_advance(struct kvr_engine *engine, uint64_t now_ns)
{
    run(engine, now_ns, true);
}

static void complete_event(struct kvr_engine *engine, const struct kvr_report *report,
                           struct kvr_sequence *sequence, struct kvr_engine_event *event)
{
    event->request = sequence->id;
    event->handle = (struct kvr_engine_handle){sequence->slot, sequence->generation};
    event->token = report->token;
    event->prompt_tokens = sequence->prompt_tokens;
    event->cached_tokens = sequence->cached_tokens;
    event->submitted_ns = sequence->submitted_ns;
    event->admitted_ns = sequence->admitted_ns;
    event->first_token_ns = sequence->first_token_ns;
    if (report->kind != KVR_ENGINE_FINISHED)
        return;
    event->reason = (enum kvr_finish_reason)sequence->reason;
    event->preemptions = sequence->preemptions;
    event->gap_p50_ns = sequence->gap_p50_ns;
    event->gap_max_ns = sequence->gap_max_ns;
    kvr_sequence_release(&engine->scheduler.pool, sequence);
}

bool kvr_engine_next_event(struct kvr_engine *engine, struct kvr_engine_event *event)
{
    struct kvr_report report;
    while (kvr_report_queue_take(&engine->reports, &report)) {
        *event = (struct kvr_engine_event){.kind = report.kind, .time_ns = report.time_ns};
        if (report.kind == KVR_ENGINE_TOKEN || report.kind == KVR_ENGINE_FINISHED) {
            struct kvr_sequence *sequence =
                kvr_sequence_get(&engine->scheduler.pool, report.slot, report.generation);
            if (!sequence)
                continue; /* aborted since */
            complete_event(engine, &report, sequence, event);
        } else {
            event->request = report.owner;
            event->block = report.block;
            event->parent = report.parent;
            event->block_index = report.token;
        }
        return true;
    }
    return false;
}

struct kvr_engine_gauges kvr_engine_gauges(const struct kvr_engine *engine)
{
    const struct kvr_scheduler *scheduler = &engine->scheduler;
    const struct kvr_kv_cache *cache = &scheduler->cache;
    uint32_t used = cache->count - cache->free;
    return (struct kvr_engine_gauges){
        .running = scheduler->running_len,
        .waiting = scheduler->waiting_len,
        .waiting_tokens = scheduler->waiting_tokens,
        .blocks = cache->count,
        .blocks_used = used,
        .blocks_cached = cache->cached,
        .kv_usage = (double)used / (double)cache->count,
    };
}

int kvr_engine_reset_prefix_cache(struct kvr_engine *engine, uint64_t now_ns)
{
    run(engine, now_ns, false);
    int failed = kvr_kv_cache_reset(&engine->scheduler.cache);
    if (failed)
        return failed;
    kvr_scheduler_report_changes(&engine->scheduler, now_ns);
    return KVR_OK;
}

void kvr_engine_restart(struct kvr_engine *engine, uint64_t now_ns)
{
    run(engine, now_ns, false);
    kvr_scheduler_restart(&engine->scheduler, now_ns);
    engine->ready_ns = now_ns + (uint64_t)(engine->profile.startup_ms * 1e6 + 0.5);
    engine->quiet_known = false;
    engine->counters.restarts++;
}

bool kvr_engine_ready(const struct kvr_engine *engine, uint64_t now_ns)
{
    return now_ns >= engine->ready_ns;
}

void kvr_engine_set_slowdown(struct kvr_engine *engine, uint64_t now_ns, double factor)
{
    KVR_CHECK(factor > 0.0);
    run(engine, now_ns, false);
    engine->scheduler.step_time.slowdown = factor;
    engine->quiet_known = false;
}

void kvr_engine_verify(const struct kvr_engine *engine)
{
    const struct kvr_scheduler *scheduler = &engine->scheduler;
    const struct kvr_engine_counters *counters = &engine->counters;
    uint64_t finished = 0;
    for (int i = 0; i < KVR_FINISH_REASONS; i++)
        finished += counters->finished[i];
    KVR_CHECK(counters->submitted == finished + scheduler->running_len + scheduler->waiting_len);
    KVR_CHECK(scheduler->pool.in_use >= scheduler->running_len + scheduler->waiting_len);
    kvr_scheduler_verify(scheduler);
}
