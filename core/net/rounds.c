#include "rounds.h"

#include "check.h"
#include "memory.h"

#define DEFAULT_ABSENT_MAX_NS 60000000000u
#define LONGEST_NAP_NS        250000000u /* a change of the fleet that nobody told is seen by then */
#define NEVER                 UINT64_MAX

struct kvr_rounds_slot {
    struct kvr_rounds *rounds;
    struct kvr_fetch *fetch; /* NULL: none out */
    uint64_t id;             /* of the replica below; with generation 0: none is known here */
    uint32_t generation;
    uint32_t misses; /* in a row */
    uint64_t due_ns;
    bool down;     /* when last looked at */
    bool asked;    /* in this generation */
    bool answered; /* in this generation */
};

static void plan(struct kvr_rounds *rounds);

/* The next time after `now_ns` at the replica's own phase of the interval. */
static uint64_t next_phase(const struct kvr_rounds *rounds, uint64_t id, uint64_t now_ns)
{
    uint64_t interval_ns = rounds->options.interval_ns;
    uint64_t phase_ns = id % interval_ns;
    uint64_t at_ns = now_ns - now_ns % interval_ns + phase_ns;
    return at_ns > now_ns ? at_ns : at_ns + interval_ns;
}

static uint64_t doubled(uint64_t ns, uint32_t times, uint64_t max_ns)
{
    while (times-- > 0 && ns < max_ns)
        ns *= 2;
    return ns < max_ns ? ns : max_ns;
}

static void schedule(struct kvr_rounds_slot *slot, enum kvr_round_verdict verdict)
{
    struct kvr_rounds *rounds = slot->rounds;
    const struct kvr_rounds_options *options = &rounds->options;
    uint64_t now_ns = kvr_loop_now();
    switch (verdict) {
    case KVR_ROUND_OK:
        slot->misses = 0;
        slot->answered = true;
        slot->due_ns = next_phase(rounds, slot->id, now_ns);
        break;
    case KVR_ROUND_FAILED:
        rounds->counters.failed++;
        slot->due_ns = now_ns + doubled(options->retry_ns, slot->misses++, options->interval_ns);
        break;
    case KVR_ROUND_ABSENT:
        rounds->counters.absent++;
        slot->due_ns =
            now_ns + doubled(options->interval_ns, ++slot->misses, options->absent_max_ns);
        break;
    }
}

static bool says_absent(uint16_t status)
{
    return status == 404 || status == 405 || status == 501;
}

static void on_done(void *context, const struct kvr_fetch_result *result)
{
    struct kvr_rounds_slot *slot = context;
    struct kvr_rounds *rounds = slot->rounds;
    uint32_t index = (uint32_t)(slot - rounds->slots);
    const struct kvr_replica *replica = &rounds->replicas->slots[index];
    slot->fetch = NULL;
    enum kvr_round_verdict verdict = KVR_ROUND_FAILED;
    if (!replica->member || replica->id != slot->id || replica->generation != slot->generation) {
        rounds->counters.dropped++;
        plan(rounds);
        return;
    }
    rounds->counters.timed_out += result->timed_out;
    /* The callback may wake us: this one is not to be asked again from inside its own answer. */
    uint32_t generation = slot->generation;
    slot->due_ns = NEVER;
    if (says_absent(result->status)) {
        verdict = KVR_ROUND_ABSENT;
    } else if (result->status >= 200 && result->status < 300) {
        rounds->counters.answered++;
        verdict = rounds->events.on_answer(rounds->events.context, index, result);
    }
    if (rounds->closing)
        return;
    if (!slot->fetch && slot->generation == generation)
        schedule(slot, verdict);
    plan(rounds);
}

static void ask(struct kvr_rounds_slot *slot)
{
    struct kvr_rounds *rounds = slot->rounds;
    struct kvr_target target = {0};
    slot->asked = true;
    rounds->counters.asked++;
    uint32_t index = (uint32_t)(slot - rounds->slots);
    if (!rounds->source.on_target(rounds->source.context, index, &target)) {
        schedule(slot, KVR_ROUND_FAILED);
        return;
    }
    struct kvr_fetch_options options = {
        .address = target.address,
        .host = target.authority,
        .path = kvr_slice_of(rounds->options.path),
        .bearer = target.key,
        .timeout_ns = rounds->options.timeout_ns,
        .max_bytes = rounds->options.max_bytes,
    };
    slot->fetch = kvr_fetch_start(rounds->loop, &options, slot, on_done);
}

static void forget(struct kvr_rounds_slot *slot)
{
    if (slot->fetch)
        kvr_fetch_cancel(slot->fetch);
    *slot = (struct kvr_rounds_slot){.rounds = slot->rounds};
}

/* Brings the slot up to date with the table; returns when it wants to be asked. */
static uint64_t look_at(struct kvr_rounds_slot *slot, const struct kvr_replica *replica,
                        uint64_t now_ns)
{
    struct kvr_rounds *rounds = slot->rounds;
    if (!replica->member) {
        if (slot->generation)
            forget(slot);
        return NEVER;
    }
    bool down = replica->operational == KVR_DOWN;
    bool is_new = slot->id != replica->id || slot->generation != replica->generation;
    if (is_new) {
        forget(slot);
        slot->id = replica->id;
        slot->generation = replica->generation;
    }
    if (is_new || (slot->down && !down && !slot->answered))
        slot->due_ns = rounds->options.staggered ? next_phase(rounds, slot->id, now_ns) : now_ns;
    slot->down = down;
    if (slot->fetch || (down && (slot->asked || rounds->options.staggered)))
        return NEVER;
    return slot->due_ns;
}

static void on_timer(uv_timer_t *timer)
{
    plan(timer->data);
}

/* Asks whoever is due and sets the timer for the next. */
static void plan(struct kvr_rounds *rounds)
{
    if (rounds->closing)
        return;
    uint64_t now_ns = kvr_loop_now();
    uint64_t next_ns = now_ns + LONGEST_NAP_NS;
    for (uint32_t i = 0; i < rounds->replicas->end; i++) {
        struct kvr_rounds_slot *slot = &rounds->slots[i];
        uint64_t due_ns = look_at(slot, &rounds->replicas->slots[i], now_ns);
        if (due_ns <= now_ns) {
            ask(slot);
            due_ns = slot->fetch ? NEVER : slot->due_ns;
        }
        if (due_ns < next_ns)
            next_ns = due_ns;
    }
    uint64_t ms = next_ns > now_ns ? (next_ns - now_ns + 999999) / 1000000 : 0;
    KVR_CHECK(uv_timer_start(&rounds->timer, on_timer, ms ? ms : 1, 0) == 0);
}

void kvr_rounds_start(struct kvr_rounds *rounds, struct kvr_loop *loop,
                      const struct kvr_replica_table *replicas,
                      const struct kvr_rounds_options *options,
                      const struct kvr_target_source *source,
                      const struct kvr_rounds_events *events)
{
    KVR_CHECK(options->interval_ns > 0 && options->path);
    *rounds = (struct kvr_rounds){.loop = loop,
                                  .replicas = replicas,
                                  .options = *options,
                                  .source = *source,
                                  .events = *events};
    if (rounds->options.retry_ns == 0)
        rounds->options.retry_ns = options->interval_ns;
    if (rounds->options.absent_max_ns == 0)
        rounds->options.absent_max_ns = DEFAULT_ABSENT_MAX_NS;
    rounds->slots = kvr_alloc_zero(replicas->capacity, sizeof *rounds->slots);
    for (uint32_t i = 0; i < replicas->capacity; i++)
        rounds->slots[i].rounds = rounds;
    KVR_CHECK(uv_timer_init(loop->uv, &rounds->timer) == 0);
    rounds->timer.data = rounds;
    plan(rounds);
}

void kvr_rounds_wake(struct kvr_rounds *rounds)
{
    plan(rounds);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct kvr_rounds *rounds = handle->data;
    kvr_free(rounds->slots);
    rounds->slots = NULL;
}

void kvr_rounds_close(struct kvr_rounds *rounds)
{
    if (rounds->closing)
        return;
    rounds->closing = true;
    for (uint32_t i = 0; i < rounds->replicas->capacity; i++)
        forget(&rounds->slots[i]);
    uv_close((uv_handle_t *)&rounds->timer, on_timer_closed);
}
