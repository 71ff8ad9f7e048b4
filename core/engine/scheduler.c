#include "scheduler.h"

#include "check.h"
#include "memory.h"

/* Step planning lives here; what a step's end brings is in step_end.c. */

void kvr_scheduler_init(struct kvr_scheduler *s, const struct kvr_scheduler_options *options)
{
    const struct kvr_profile *profile = options->profile;
    KVR_CHECK(profile->max_num_batched_tokens >= profile->max_num_seqs);
    *s = (struct kvr_scheduler){
        .profile = profile,
        .reports = options->reports,
        .counters = options->counters,
        .token_events = options->token_events,
    };
    kvr_kv_cache_init(&s->cache, profile->blocks, options->kv_events);
    kvr_sequence_pool_init(&s->pool);
    kvr_step_time_init(&s->step_time, profile, options->seed);
    kvr_step_log_init(&s->log);
    kvr_list_init(&s->waiting);
    kvr_list_init(&s->running);
    kvr_decode_set_init(&s->decode, profile->max_num_seqs);
    s->prefills = kvr_alloc(profile->max_num_seqs * sizeof(struct kvr_sequence *));
}

void kvr_scheduler_deinit(struct kvr_scheduler *s)
{
    kvr_free(s->prefills);
    kvr_decode_set_deinit(&s->decode);
    kvr_step_log_deinit(&s->log);
    kvr_sequence_pool_deinit(&s->pool);
    kvr_kv_cache_deinit(&s->cache);
}

static uint32_t blocks_for(uint32_t tokens)
{
    return tokens / KVR_BLOCK_TOKENS + (tokens % KVR_BLOCK_TOKENS != 0);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void kvr_scheduler_queue(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    kvr_step_log_ensure(&s->log, (uint64_t)sequence->output_tokens + 1, s->step);
    kvr_list_append(&s->waiting, &sequence->link);
    s->waiting_len++;
    s->waiting_tokens += sequence->prompt_tokens;
}

static void release_blocks(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    kvr_kv_cache_release(&s->cache, sequence->blocks, sequence->blocks_len);
    sequence->blocks_len = 0;
}

static void remove_waiting(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    kvr_list_remove(&sequence->link);
    s->waiting_len--;
    s->waiting_tokens -= sequence->prompt_tokens;
    s->blocked = NULL;
}

/* Out of the batch, in whichever way it is in it. */
static void remove_running(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    if (sequence->state == KVR_SEQUENCE_DECODE) {
        kvr_decode_set_leave(&s->decode, sequence, s->step);
    } else {
        KVR_CHECK(sequence->state == KVR_SEQUENCE_PREFILL);
        for (uint32_t i = 0; i < s->prefills_len; i++)
            if (s->prefills[i] == sequence)
                s->prefills[i] = NULL;
        if (s->partial == sequence)
            s->partial = NULL;
    }
    kvr_list_remove(&sequence->link);
    s->running_len--;
    release_blocks(s, sequence);
}

void kvr_scheduler_abort(struct kvr_scheduler *s, struct kvr_sequence *sequence)
{
    if (sequence->state == KVR_SEQUENCE_WAITING)
        remove_waiting(s, sequence);
    else
        remove_running(s, sequence);
    s->counters->finished[KVR_FINISH_ABORT]++;
    kvr_sequence_release(&s->pool, sequence);
}

static struct kvr_sequence *last_running(const struct kvr_scheduler *s)
{
    KVR_CHECK(s->running_len > 0);
    return KVR_LIST_ENTRY(s->running.prev, struct kvr_sequence, link);
}

/* The last of the batch goes back to the front of the queue and will start over. */
static struct kvr_sequence *preempt_last(struct kvr_scheduler *s)
{
    struct kvr_sequence *victim = last_running(s);
    bool decoding = victim->state == KVR_SEQUENCE_DECODE;
    remove_running(s, victim);
    if (decoding) {
        /* The running gap ends with the token after its return; those before it are kept. */
        victim->last_token_ns = s->step_start_ns;
        uint64_t *gaps = kvr_sequence_reserve_gaps(victim, s->step - victim->gap_step + 1);
        victim->gaps_len += kvr_step_log_copy(&s->log, victim->gap_step, s->step - 1, gaps);
    }
    victim->state = KVR_SEQUENCE_WAITING;
    victim->computed = 0;
    victim->registered = 0;
    victim->preemptions++;
    kvr_list_prepend(&s->waiting, &victim->link);
    s->waiting_len++;
    s->waiting_tokens += victim->prompt_tokens;
    s->blocked = NULL;
    s->counters->preemptions++;
    return victim;
}

/* Blocks that are full once `computed` tokens are get their hashes. */
static void register_full(struct kvr_scheduler *s, struct kvr_sequence *sequence, uint32_t computed)
{
    uint32_t full = smaller(computed / KVR_BLOCK_TOKENS, sequence->hashes_len);
    for (uint32_t i = sequence->registered; i < full; i++) {
        kvr_kv_cache_expect(&s->cache, sequence->hashes + i, full - i);
        kvr_kv_cache_register(&s->cache, sequence->blocks[i], sequence->hashes[i],
                              i ? sequence->hashes[i - 1] : 0, sequence->id, i);
    }
    if (full > sequence->registered)
        sequence->registered = full;
}

/* Those decoding sequences that begin a block in this step get it, those that fill one get its
 * hash, all in batch order. Returns whether somebody was preempted. */
static bool grow_decoding(struct kvr_scheduler *s)
{
    struct kvr_list *growing = s->decode.growing;
    struct kvr_list *begins = &growing[s->step % KVR_BLOCK_TOKENS];
    struct kvr_list *fills = &growing[(s->step + 1) % KVR_BLOCK_TOKENS];
    struct kvr_list *begin = begins->next;
    struct kvr_list *fill = s->decode.hashed ? fills->next : fills;
    bool preempted = false;
    while (begin != begins || fill != fills) {
        struct kvr_sequence *beginner = KVR_LIST_ENTRY(begin, struct kvr_sequence, growing);
        struct kvr_sequence *filler = KVR_LIST_ENTRY(fill, struct kvr_sequence, growing);
        if (fill != fills && (begin == begins || filler->order < beginner->order)) {
            if (filler->hashes_len > filler->registered) {
                register_full(s, filler, kvr_decode_computed(filler, s->step) + 1);
                s->decode.hashed -= filler->hashes_len == filler->registered;
            }
            fill = fill->next;
            continue;
        }
        while (s->cache.free == 0) {
            struct kvr_sequence *victim = preempt_last(s);
            preempted = true;
            if (victim == beginner)
                return true; /* the last of the batch: nobody comes after it */
            if (fill != fills && victim == filler)
                fill = fills; /* likewise */
        }
        KVR_CHECK(beginner->blocks_len < beginner->blocks_capacity);
        kvr_kv_cache_allocate(&s->cache, &beginner->blocks[beginner->blocks_len++], 1);
        begin = begin->next;
    }
    return preempted;
}

/* `tokens` more of its prompt in this step; the blocks for it are free. */
static void schedule_chunk(struct kvr_scheduler *s, struct kvr_sequence *sequence, uint32_t tokens)
{
    uint32_t computed = sequence->computed + tokens;
    uint32_t blocks = blocks_for(computed);
    KVR_CHECK(tokens > 0 && blocks <= sequence->blocks_capacity);
    if (blocks > sequence->blocks_len) {
        kvr_kv_cache_allocate(&s->cache, sequence->blocks + sequence->blocks_len,
                              blocks - sequence->blocks_len);
        sequence->blocks_len = blocks;
    }
    register_full(s, sequence, computed);
    sequence->chunk = tokens;
    s->prefills[s->prefills_len++] = sequence;
}

static void add_prefill(struct kvr_step_shape *shape, uint32_t computed, uint32_t tokens)
{
    shape->prefill_tokens += tokens;
    shape->prefill_context += (uint64_t)tokens * (2 * (uint64_t)computed + tokens);
}

/* The unfinished prefill goes on, or is preempted when its blocks are short: it is the last of the
 * batch. Returns whether it was. */
static bool continue_partial(struct kvr_scheduler *s, uint32_t *budget,
                             struct kvr_step_shape *shape)
{
    struct kvr_sequence *sequence = s->partial;
    KVR_CHECK(sequence == last_running(s));
    uint32_t left = kvr_sequence_goal(sequence) - sequence->computed;
    uint32_t tokens = smaller(left, *budget);
    if (blocks_for(sequence->computed + tokens) > sequence->blocks_len + s->cache.free) {
        preempt_last(s);
        return true;
    }
    s->partial = NULL;
    if (left == 1 && sequence->generated) {
        /* Back from a preemption, all but the last token recomputed: costs what a decode costs. */
        shape->decoding++;
        shape->decode_context += sequence->computed;
    } else {
        add_prefill(shape, sequence->computed, tokens);
    }
    schedule_chunk(s, sequence, tokens);
    *budget -= tokens;
    return false;
}

/* Moves the head of the queue into the batch; false when its blocks are short. */
static bool admit(struct kvr_scheduler *s, struct kvr_sequence *sequence, uint32_t *budget,
                  struct kvr_step_shape *shape)
{
    uint32_t goal = kvr_sequence_goal(sequence);
    uint32_t most = smaller((goal - 1) / KVR_BLOCK_TOKENS, sequence->hashes_len);
    uint32_t idle = 0;
    uint32_t hits = kvr_kv_cache_lookup(&s->cache, sequence->hashes, most, sequence->blocks, &idle);
    uint32_t tokens = smaller(goal - hits * KVR_BLOCK_TOKENS, *budget);
    uint32_t fresh = blocks_for(hits * KVR_BLOCK_TOKENS + tokens) - hits;
    if (fresh + idle > s->cache.free) {
        s->blocked = sequence;
        s->blocked_version = s->cache.version;
        s->blocked_budget = *budget;
        return false;
    }
    remove_waiting(s, sequence);
    kvr_kv_cache_pin(&s->cache, sequence->blocks, hits);
    sequence->blocks_len = hits;
    sequence->registered = hits;
    sequence->computed = hits * KVR_BLOCK_TOKENS;
    sequence->state = KVR_SEQUENCE_PREFILL;
    sequence->order = s->admissions++;
    kvr_list_append(&s->running, &sequence->link);
    s->running_len++;
    if (sequence->admitted_ns == KVR_NEVER) {
        sequence->admitted_ns = s->step_start_ns;
        sequence->cached_tokens = sequence->computed;
        s->counters->prefix_queries += sequence->prompt_tokens;
        s->counters->prefix_hits += sequence->computed;
    }
    add_prefill(shape, sequence->computed, tokens);
    schedule_chunk(s, sequence, tokens);
    *budget -= tokens;
    return true;
}

static void admit_waiting(struct kvr_scheduler *s, uint32_t budget, struct kvr_step_shape *shape)
{
    while (s->waiting_len && budget && s->running_len < s->profile->max_num_seqs) {
        struct kvr_sequence *head = KVR_LIST_ENTRY(s->waiting.next, struct kvr_sequence, link);
        if (s->blocked == head && s->blocked_version == s->cache.version &&
            s->blocked_budget == budget)
            return;
        if (!admit(s, head, &budget, shape))
            return;
    }
}

bool kvr_scheduler_start(struct kvr_scheduler *s, uint64_t now_ns)
{
    KVR_CHECK(!s->stepping);
    if (!s->running_len && !s->waiting_len)
        return false;
    s->step_start_ns = now_ns;
    s->prefills_len = 0;
    struct kvr_step_shape shape = {0};
    bool preempted = grow_decoding(s);
    uint32_t budget = s->profile->max_num_batched_tokens - s->decode.count;
    if (s->partial)
        preempted |= continue_partial(s, &budget, &shape);
    if (!preempted)
        admit_waiting(s, budget, &shape);
    KVR_CHECK(s->running_len > 0); /* submit refuses what an empty engine could not hold */
    shape.decoding += s->decode.count;
    shape.decode_context += s->decode.context;
    uint64_t duration_ns = kvr_step_time_ns(&s->step_time, s->step, &shape);
    kvr_step_log_put(&s->log, s->step, duration_ns);
    s->step_end_ns = now_ns + duration_ns;
    s->stepping = true;
    return true;
}
