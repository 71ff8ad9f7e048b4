/* What the end of a step brings: tokens, finished sequences, visible KV changes; and the look ahead
 * that tells when the next such end is. The planning half of the scheduler is in scheduler.c. */
#include <stddef.h>

#include "check.h"
#include "memory.h"
#include "prefetch.h"
#include "scheduler.h"

static void report(struct kvr_scheduler *s, enum kvr_engine_event_kind kind, uint64_t time_ns,
                   const struct kvr_sequence *sequence, uint32_t token)
{
    *kvr_report_queue_add(s->reports) = (struct kvr_report){
        .time_ns = time_ns,
        .kind = kind,
        .slot = sequence->slot,
        .generation = sequence->generation,
        .token = token,
    };
}

void kvr_scheduler_report_changes(struct kvr_scheduler *s, uint64_t time_ns)
{
    static const enum kvr_engine_event_kind kinds[] = {
        [KVR_KV_STORED] = KVR_ENGINE_STORED,
        [KVR_KV_REMOVED] = KVR_ENGINE_REMOVED,
        [KVR_KV_CLEARED] = KVR_ENGINE_CLEARED,
    };
    for (uint32_t i = 0; i < s->cache.changes_len; i++) {
        const struct kvr_kv_change *change = &s->cache.changes[i];
        *kvr_report_queue_add(s->reports) = (struct kvr_report){
            .time_ns = time_ns,
            .kind = kinds[change->kind],
            .token = change->index,
            .block = change->hash,
            .parent = change->parent,
            .owner = change->owner,
        };
    }
    s->cache.changes_len = 0;
}

/* Leaves the batch with its last token. s->step is the step after that. */
static void complete(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    if (sequence->state == KVR_SEQUENCE_DECODE)
        kvr_decode_set_leave(&s->decode, sequence, s->step);
    KVR_CHECK(sequence->generated == sequence->output_tokens);
    struct kvr_gap_stats gaps = kvr_step_log_stats(&s->log, sequence->gaps, sequence->gaps_len,
                                                   sequence->gap_step, s->step - 1);
    sequence->gap_p50_ns = gaps.p50_ns;
    sequence->gap_max_ns = gaps.max_ns;
    kvr_kv_cache_release(&s->cache, sequence->blocks, sequence->blocks_len);
    sequence->blocks_len = 0;
    kvr_list_remove(&sequence->link);
    s->running_len--;
    sequence->state = KVR_SEQUENCE_DONE;
    s->counters->finished[sequence->reason]++;
    report(s, KVR_ENGINE_FINISHED, s->step_end_ns, sequence, sequence->generated);
}

/* The batch is a chain through memory that has gone cold since the last step: its members are asked
 * for together rather than one after the other. */
static void fetch_batch(const struct kvr_scheduler *s)
{
    for (uint32_t i = 0; i < s->pool.len; i++)
        kvr_prefetch_all(s->pool.slots[i], offsetof(struct kvr_sequence, last_token_ns));
}

/* One token each for the sequences that decoded in the step that ended. */
static void end_decoding(struct kvr_scheduler *s)
{
    s->counters->generation_tokens += s->decode.count;
    s->decode.context += s->decode.count;
    if (!s->token_events) {
        struct kvr_sequence *first = kvr_finish_queue_first(&s->decode.finishing);
        while (first && first->last_step < s->step) {
            complete(s, first);
            first = kvr_finish_queue_first(&s->decode.finishing);
        }
        return;
    }
    fetch_batch(s);
    KVR_LIST_FOREACH (link, &s->running) {
        struct kvr_sequence *sequence = KVR_LIST_ENTRY(link, struct kvr_sequence, link);
        if (sequence->state != KVR_SEQUENCE_DECODE)
            break; /* prefills come last */
        report(s, KVR_ENGINE_TOKEN, s->step_end_ns, sequence,
               kvr_decode_generated(sequence, s->step) - 1);
        if (sequence->last_step < s->step)
            complete(s, sequence);
    }
}

/* The prompt (or, after a preemption, everything so far) is computed: one token. */
static void emit(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    bool first = sequence->first_token_ns == KVR_NEVER;
    if (first) {
        sequence->first_token_ns = s->step_end_ns;
        s->counters->prompt_tokens += sequence->prompt_tokens;
        s->counters->cached_tokens += sequence->cached_tokens;
    } else {
        *kvr_sequence_reserve_gaps(sequence, 1) = s->step_end_ns - sequence->last_token_ns;
        sequence->gaps_len++;
    }
    s->counters->generation_tokens++;
    sequence->generated++;
    sequence->gap_step = s->step;
    if (first || s->token_events)
        report(s, KVR_ENGINE_TOKEN, s->step_end_ns, sequence, sequence->generated - 1);
    if (sequence->generated == sequence->output_tokens)
        complete(s, sequence);
    else
        kvr_decode_set_join(&s->decode, sequence, s->step);
}

void kvr_scheduler_finish(struct kvr_scheduler *s)
{
    KVR_CHECK(s->stepping);
    s->stepping = false;
    s->step++;
    s->counters->steps++;
    if (s->cache.changes_len)
        kvr_scheduler_report_changes(s, s->step_end_ns);
    end_decoding(s);
    for (uint32_t i = 0; i < s->prefills_len; i++) {
        struct kvr_sequence *sequence = s->prefills[i];
        if (!sequence)
            continue; /* aborted meanwhile */
        sequence->computed += sequence->chunk;
        if (sequence->computed == kvr_sequence_goal(sequence)) {
            emit(s, sequence);
        } else {
            KVR_CHECK(!s->partial);
            s->partial = sequence;
        }
    }
    s->prefills_len = 0;
}

static void fail(struct kvr_scheduler *s, struct kvr_sequence *sequence, uint64_t now_ns)
{
    kvr_kv_cache_release(&s->cache, sequence->blocks, sequence->blocks_len);
    sequence->blocks_len = 0;
    kvr_list_remove(&sequence->link);
    sequence->state = KVR_SEQUENCE_DONE;
    sequence->reason = KVR_FINISH_ERROR;
    s->counters->finished[KVR_FINISH_ERROR]++;
    report(s, KVR_ENGINE_FINISHED, now_ns, sequence, sequence->generated);
}

void kvr_scheduler_restart(struct kvr_scheduler *s, uint64_t now_ns)
{
    KVR_LIST_FOREACH (running, &s->running) {
        struct kvr_sequence *sequence = KVR_LIST_ENTRY(running, struct kvr_sequence, link);
        if (sequence->state == KVR_SEQUENCE_DECODE)
            kvr_decode_set_leave(&s->decode, sequence, s->step);
        fail(s, sequence, now_ns);
    }
    KVR_LIST_FOREACH (waiting, &s->waiting) {
        fail(s, KVR_LIST_ENTRY(waiting, struct kvr_sequence, link), now_ns);
    }
    s->running_len = 0;
    s->waiting_len = 0;
    s->waiting_tokens = 0;
    s->partial = NULL;
    s->blocked = NULL;
    s->prefills_len = 0;
    s->step += s->stepping; /* the step that was cut has had its number */
    s->stepping = false;
    int emptied = kvr_kv_cache_reset(&s->cache);
    KVR_CHECK(emptied == KVR_OK && s->decode.count == 0 && s->decode.context == 0);
    kvr_scheduler_report_changes(s, now_ns);
}

/* How many steps after the running one end before something shows, at most. */
static uint64_t quiet_steps(const struct kvr_scheduler *s)
{
    const struct kvr_sequence *first = kvr_finish_queue_first(&s->decode.finishing);
    if (s->token_events || s->prefills_len || s->partial || !first || s->cache.changes_len)
        return 0;
    if (s->waiting_len && s->running_len < s->profile->max_num_seqs)
        return 0;
    uint64_t steps = first->last_step - s->step;
    if (steps > KVR_LOOK_AHEAD_STEPS - 1)
        steps = KVR_LOOK_AHEAD_STEPS - 1;
    /* With the journal on, the end of a step that allocates or registers shows. */
    for (uint64_t i = 1; s->cache.journal && i < steps; i++) {
        const struct kvr_list *growing = s->decode.growing;
        if (!kvr_list_empty(&growing[(s->step + i) % KVR_BLOCK_TOKENS]) ||
            (s->decode.hashed && !kvr_list_empty(&growing[(s->step + i + 1) % KVR_BLOCK_TOKENS])))
            steps = i;
    }
    /* A preemption would change everything after it. */
    uint64_t most_blocks = s->decode.count * (steps / KVR_BLOCK_TOKENS + 1);
    return most_blocks <= s->cache.free ? steps : 0;
}

uint64_t kvr_scheduler_quiet_until(struct kvr_scheduler *s)
{
    KVR_CHECK(s->stepping);
    uint64_t end_ns = s->step_end_ns;
    uint64_t steps = quiet_steps(s);
    struct kvr_step_shape shape = {.decoding = s->decode.count,
                                   .decode_context = s->decode.context};
    for (uint64_t i = 1; i <= steps; i++) {
        shape.decode_context += shape.decoding;
        end_ns += kvr_step_time_ns(&s->step_time, s->step + i, &shape);
    }
    return end_ns;
}

void kvr_scheduler_verify(const struct kvr_scheduler *s)
{
    uint32_t *refs = kvr_alloc_zero(s->cache.count, sizeof *refs);
    uint32_t running = 0;
    uint32_t waiting = 0;
    uint64_t context = 0;
    uint64_t order = 0;
    KVR_LIST_FOREACH (link, &s->running) {
        const struct kvr_sequence *q = KVR_LIST_ENTRY(link, struct kvr_sequence, link);
        KVR_CHECK(running == 0 || q->order > order);
        order = q->order;
        running++;
        uint32_t computed = q->computed;
        if (q->state == KVR_SEQUENCE_DECODE) {
            computed = kvr_decode_computed(q, s->step);
            context += computed;
            KVR_CHECK(computed + 1 == q->prompt_tokens + kvr_decode_generated(q, s->step));
        }
        KVR_CHECK((uint64_t)q->blocks_len * KVR_BLOCK_TOKENS >= computed);
        for (uint32_t i = 0; i < q->blocks_len; i++)
            refs[q->blocks[i]]++;
    }
    KVR_LIST_FOREACH (entry, &s->waiting) {
        const struct kvr_sequence *q = KVR_LIST_ENTRY(entry, struct kvr_sequence, link);
        KVR_CHECK(q->state == KVR_SEQUENCE_WAITING && q->blocks_len == 0 && q->computed == 0);
        waiting++;
    }
    KVR_CHECK(running == s->running_len && waiting == s->waiting_len);
    KVR_CHECK(context == s->decode.context && s->decode.count == s->decode.finishing.len);
    for (uint32_t i = 0; i < s->cache.count; i++)
        KVR_CHECK(refs[i] == s->cache.blocks[i].refs);
    kvr_kv_cache_verify(&s->cache);
    kvr_free(refs);
}
