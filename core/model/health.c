#include "health.h"

#include "memory.h"

static const struct kvr_health_options default_options = {
    .interval_ns = 1000000000u,
    .timeout_ns = 800000000u,
    .failures_to_eject = 2,
    .passes_to_admit = 2,
};

void kvr_health_init(struct kvr_health *health, const struct kvr_health_options *options,
                     struct kvr_replica_table *replicas)
{
    *health = (struct kvr_health){.options = *options, .replicas = replicas};
    if (health->options.interval_ns == 0)
        health->options.interval_ns = default_options.interval_ns;
    if (health->options.timeout_ns == 0)
        health->options.timeout_ns = default_options.timeout_ns;
    if (health->options.failures_to_eject == 0)
        health->options.failures_to_eject = default_options.failures_to_eject;
    if (health->options.passes_to_admit == 0)
        health->options.passes_to_admit = default_options.passes_to_admit;
    health->entries = kvr_alloc_zero(replicas->capacity, sizeof *health->entries);
}

void kvr_health_deinit(struct kvr_health *health)
{
    kvr_free(health->entries);
    health->entries = NULL;
}

void kvr_health_added(struct kvr_health *health, uint32_t slot, uint64_t now_ns)
{
    health->entries[slot] = (struct kvr_health_entry){.next_probe_ns = now_ns};
}

uint32_t kvr_health_next_due(struct kvr_health *health, uint64_t now_ns)
{
    for (uint32_t i = 0; i < health->replicas->end; i++) {
        struct kvr_health_entry *entry = &health->entries[i];
        if (!health->replicas->slots[i].member || entry->probing || entry->next_probe_ns > now_ns)
            continue;
        entry->probing = true;
        entry->next_probe_ns = now_ns + health->options.interval_ns;
        return i;
    }
    return KVR_NO_REPLICA;
}

uint64_t kvr_health_next_time(const struct kvr_health *health, uint64_t now_ns)
{
    uint64_t next = now_ns + health->options.interval_ns;
    for (uint32_t i = 0; i < health->replicas->end; i++) {
        const struct kvr_health_entry *entry = &health->entries[i];
        if (health->replicas->slots[i].member && !entry->probing && entry->next_probe_ns < next)
            next = entry->next_probe_ns;
    }
    return next > now_ns ? next : now_ns;
}

static enum kvr_operational state_of(const struct kvr_health *health, uint32_t slot)
{
    return health->replicas->slots[slot].operational;
}

static bool move(struct kvr_health *health, uint32_t slot, enum kvr_operational state,
                 uint64_t now_ns)
{
    if (state_of(health, slot) == state)
        return false;
    kvr_replica_set_operational(health->replicas, slot, state, now_ns);
    return true;
}

static bool ramp_is_over(const struct kvr_replica *replica, uint64_t now_ns)
{
    return now_ns - replica->available_since_ns >= replica->ramp_ns;
}

static bool passed(struct kvr_health *health, uint32_t slot, uint64_t now_ns)
{
    struct kvr_health_entry *entry = &health->entries[slot];
    struct kvr_replica *replica = &health->replicas->slots[slot];
    entry->failures = 0;
    entry->passes++;
    if (replica->operational == KVR_SUSPECT)
        return move(health, slot, ramp_is_over(replica, now_ns) ? KVR_UP : KVR_RAMPING, now_ns);
    if (replica->operational != KVR_DOWN)
        return false;
    /* A first sight is no return: its cache is as cold as its neighbours' were. */
    if (!entry->seen) {
        entry->seen = true;
        replica->ramp_ns = 0;
        return move(health, slot, KVR_UP, now_ns);
    }
    if (entry->passes < health->options.passes_to_admit)
        return false;
    replica->ramp_ns = health->options.ramp_ns;
    return move(health, slot, replica->ramp_ns ? KVR_RAMPING : KVR_UP, now_ns);
}

static bool failed(struct kvr_health *health, uint32_t slot, uint64_t now_ns)
{
    struct kvr_health_entry *entry = &health->entries[slot];
    entry->passes = 0;
    entry->failures++;
    if (state_of(health, slot) == KVR_DOWN)
        return false;
    if (entry->failures >= health->options.failures_to_eject)
        return move(health, slot, KVR_DOWN, now_ns);
    return move(health, slot, KVR_SUSPECT, now_ns);
}

bool kvr_health_probed(struct kvr_health *health, uint32_t slot, enum kvr_probe_outcome outcome,
                       uint64_t now_ns)
{
    struct kvr_health_entry *entry = &health->entries[slot];
    entry->probing = false;
    if (outcome == KVR_PROBE_PASS)
        return passed(health, slot, now_ns);
    uint64_t probe_began = now_ns - health->options.timeout_ns;
    if (outcome == KVR_PROBE_TIMEOUT && entry->last_bytes_ns && entry->last_bytes_ns >= probe_began)
        return false; /* it talks: it is busy, not dead */
    return failed(health, slot, now_ns);
}

bool kvr_health_broke(struct kvr_health *health, uint32_t slot, uint64_t now_ns)
{
    struct kvr_health_entry *entry = &health->entries[slot];
    entry->passes = 0;
    entry->failures = health->options.failures_to_eject;
    return move(health, slot, KVR_DOWN, now_ns);
}

void kvr_health_bytes(struct kvr_health *health, uint32_t slot, uint64_t now_ns)
{
    health->entries[slot].last_bytes_ns = now_ns;
}

bool kvr_health_tick(struct kvr_health *health, uint64_t now_ns)
{
    bool changed = false;
    for (uint32_t i = 0; i < health->replicas->end; i++) {
        const struct kvr_replica *replica = &health->replicas->slots[i];
        if (replica->member && replica->operational == KVR_RAMPING && ramp_is_over(replica, now_ns))
            changed |= move(health, i, KVR_UP, now_ns);
    }
    return changed;
}
