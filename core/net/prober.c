#include "prober.h"

#include "check.h"
#include "fetch.h"
#include "memory.h"

#define DEFAULT_PATH   "/health"
#define RETRY_NS       100000000u /* after a probe that this host could not send */
#define ANSWER_MAX     65536u
#define LONGEST_NAP_NS 1000000000u

struct kvr_prober_slot {
    struct kvr_prober *prober;
    struct kvr_fetch *fetch; /* NULL: none out */
    uint64_t id;             /* of the replica that is probed */
    uint32_t generation;     /* when the probe went out */
    uint64_t retry_ns;       /* when to send again what could not be sent; 0 none */
};

static void plan(struct kvr_prober *prober);
static void send_probe(struct kvr_prober *prober, uint32_t index);

static const struct kvr_replica *replica_at(const struct kvr_prober *prober, uint32_t index)
{
    return &prober->health->replicas->slots[index];
}

static void report(struct kvr_prober *prober, uint32_t index, enum kvr_probe_outcome outcome,
                   bool refused)
{
    if (outcome == KVR_PROBE_PASS)
        prober->counters.passed++;
    else if (outcome == KVR_PROBE_TIMEOUT)
        prober->counters.timed_out++;
    else
        prober->counters.failed++;
    prober->events.on_outcome(prober->events.context, index, outcome, refused);
}

static void on_done(void *context, const struct kvr_fetch_result *result)
{
    struct kvr_prober_slot *slot = context;
    struct kvr_prober *prober = slot->prober;
    uint32_t index = (uint32_t)(slot - prober->slots);
    const struct kvr_replica *replica = replica_at(prober, index);
    slot->fetch = NULL;
    if (!replica->member || replica->id != slot->id) {
        prober->counters.dropped++;
    } else if (result->own_fault) {
        prober->counters.unsent++;
        slot->retry_ns = kvr_loop_now() + RETRY_NS;
    } else if (replica->generation != slot->generation) {
        prober->counters.renewed++;
        send_probe(prober, index);
    } else if (result->timed_out) {
        report(prober, index, KVR_PROBE_TIMEOUT, false);
    } else {
        bool passed = result->status >= 200 && result->status < 300;
        report(prober, index, passed ? KVR_PROBE_PASS : KVR_PROBE_FAIL, result->connect_failed);
    }
    plan(prober);
}

static void cancel(struct kvr_prober_slot *slot)
{
    if (slot->fetch)
        kvr_fetch_cancel(slot->fetch);
    slot->fetch = NULL;
    slot->retry_ns = 0;
}

static void send_probe(struct kvr_prober *prober, uint32_t index)
{
    if (prober->closing)
        return;
    struct kvr_prober_slot *slot = &prober->slots[index];
    cancel(slot); /* one of the slot's former holder may still be out */
    slot->id = replica_at(prober, index)->id;
    slot->generation = replica_at(prober, index)->generation;
    prober->counters.sent++;
    struct kvr_target target = {0};
    if (!prober->source.on_target(prober->source.context, index, &target)) {
        report(prober, index, KVR_PROBE_FAIL, false);
        return;
    }
    struct kvr_fetch_options options = {
        .address = target.address,
        .host = target.authority,
        .path = kvr_slice_of(prober->options.path),
        .bearer = target.key,
        .timeout_ns = prober->health->options.timeout_ns,
        .max_bytes = ANSWER_MAX,
    };
    slot->fetch = kvr_fetch_start(prober->loop, &options, slot, on_done);
}

/* Sends again what could not be sent; returns when the next of them is due. */
static uint64_t send_retries(struct kvr_prober *prober, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < prober->health->replicas->end; i++) {
        struct kvr_prober_slot *slot = &prober->slots[i];
        if (slot->retry_ns == 0)
            continue;
        const struct kvr_replica *replica = replica_at(prober, i);
        if (!replica->member || replica->id != slot->id)
            slot->retry_ns = 0;
        else if (slot->retry_ns <= now_ns)
            send_probe(prober, i);
        else if (slot->retry_ns < next_ns)
            next_ns = slot->retry_ns;
    }
    return next_ns;
}

static void on_timer(uv_timer_t *timer)
{
    plan(timer->data);
}

/* Sends what is due and sets the timer for what comes next. */
static void plan(struct kvr_prober *prober)
{
    if (prober->closing)
        return;
    uint64_t now_ns = kvr_loop_now();
    uint64_t next_ns = send_retries(prober, now_ns);
    for (;;) {
        uint32_t index = kvr_health_next_due(prober->health, now_ns);
        if (index == KVR_NO_REPLICA)
            break;
        send_probe(prober, index);
    }
    if (prober->closing)
        return;
    uint64_t due_ns = kvr_health_next_time(prober->health, now_ns);
    if (due_ns < next_ns)
        next_ns = due_ns;
    uint64_t nap_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    if (nap_ns > LONGEST_NAP_NS)
        nap_ns = LONGEST_NAP_NS;
    uint64_t ms = (nap_ns + 999999) / 1000000;
    KVR_CHECK(uv_timer_start(&prober->timer, on_timer, ms ? ms : 1, 0) == 0);
}

void kvr_prober_start(struct kvr_prober *prober, struct kvr_loop *loop, struct kvr_health *health,
                      const struct kvr_prober_options *options,
                      const struct kvr_target_source *source,
                      const struct kvr_prober_events *events)
{
    *prober =
        (struct kvr_prober){.loop = loop, .health = health, .source = *source, .events = *events};
    if (options)
        prober->options = *options;
    if (!prober->options.path)
        prober->options.path = DEFAULT_PATH;
    uint32_t count = health->replicas->capacity;
    prober->slots = kvr_alloc_zero(count, sizeof *prober->slots);
    for (uint32_t i = 0; i < count; i++)
        prober->slots[i].prober = prober;
    KVR_CHECK(uv_timer_init(loop->uv, &prober->timer) == 0);
    prober->timer.data = prober;
    plan(prober);
}

void kvr_prober_wake(struct kvr_prober *prober)
{
    plan(prober);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct kvr_prober *prober = handle->data;
    kvr_free(prober->slots);
    prober->slots = NULL;
}

void kvr_prober_close(struct kvr_prober *prober)
{
    if (prober->closing)
        return;
    prober->closing = true;
    for (uint32_t i = 0; i < prober->health->replicas->capacity; i++)
        cancel(&prober->slots[i]);
    uv_close((uv_handle_t *)&prober->timer, on_timer_closed);
}
