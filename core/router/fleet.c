/* The part of router.h that is about replicas and scripts. */
#include <string.h>

#include "gate.h"
#include "memory.h"
#include "router.h"
#include "row.h"

int kvr_router_add_replica(struct kvr_router *router, uint64_t now_ns,
                           const struct kvr_replica_spec *spec, struct kvr_error *error)
{
    int slot = kvr_replica_add(&router->replicas, spec);
    int len = (int)spec->authority.len;
    switch (slot) {
    case KVR_E_INVALID:
        return kvr_error_set(error, slot, "replica \"%.*s\": bad authority or weight", len,
                             spec->authority.data);
    case KVR_E_EXISTS:
        return kvr_error_set(error, slot, "replica \"%.*s\" is a member already", len,
                             spec->authority.data);
    case KVR_E_LIMIT:
        return kvr_error_set(error, slot, "replica \"%.*s\": limits.replicas (%u) is reached", len,
                             spec->authority.data, router->options.replicas_max);
    default:
        break;
    }
    KVR_CHECK(slot >= 0);
    kvr_load_init(&router->loads[slot]);
    kvr_prefix_index_purge(&router->index, (uint32_t)slot);
    kvr_window_forget(&router->keys, (uint32_t)slot);
    kvr_window_forget(&router->work, (uint32_t)slot);
    kvr_shadow_forget_replica(router, (uint32_t)slot);
    kvr_health_added(&router->health, (uint32_t)slot, now_ns);
    return slot;
}

void kvr_router_remove_replica(struct kvr_router *router, uint32_t slot)
{
    kvr_router_settle(router);
    kvr_prefix_index_purge(&router->index, slot);
    kvr_replica_remove(&router->replicas, slot);
}

void kvr_router_probed(struct kvr_router *router, uint64_t now_ns, uint32_t slot,
                       enum kvr_probe_outcome outcome, bool refused)
{
    kvr_router_settle(router);
    bool changed = kvr_health_probed(&router->health, slot, outcome, now_ns);
    if (refused)
        changed |= kvr_health_broke(&router->health, slot, now_ns);
    router->now_ns = now_ns;
    router->queue.epoch += changed;
    if (changed && router->replicas.slots[slot].operational == KVR_DOWN)
        kvr_prefix_index_purge(&router->index, slot);
}

void kvr_router_signals(struct kvr_router *router, uint64_t now_ns, uint32_t slot,
                        const struct kvr_engine_signals *signals)
{
    if (!kvr_load_read_signals(&router->loads[slot], signals, now_ns,
                               router->options.hit_rate_window_ns))
        return;
    kvr_router_restarted(router, slot);
}

void kvr_router_restarted(struct kvr_router *router, uint32_t slot)
{
    kvr_router_settle(router);
    kvr_replica_restarted(&router->replicas, slot);
    kvr_prefix_index_purge(&router->index, slot);
}

struct kvr_plan *kvr_router_install_plan(struct kvr_router *router, struct kvr_plan *plan,
                                         const uint64_t *replicas)
{
    struct kvr_plan *before = router->plan;
    kvr_handover_destroy(router->handover);
    kvr_free(router->plan_replicas);
    router->handover = NULL;
    router->plan_replicas = NULL;
    router->plan = plan;
    if (!plan)
        return before;
    size_t bytes = plan->destinations * sizeof *router->plan_replicas;
    router->plan_replicas = kvr_alloc(bytes);
    memcpy(router->plan_replicas, replicas, bytes);
    return before;
}

uint64_t kvr_router_tick(struct kvr_router *router, uint64_t now_ns)
{
    router->now_ns = now_ns;
    router->queue.epoch++; /* ramps, reloads: whatever may let a waiting request go */
    kvr_gate_tick(router, now_ns);
    kvr_health_tick(&router->health, now_ns);
    return kvr_health_next_time(&router->health, now_ns);
}

struct kvr_slot *kvr_router_slot(const struct kvr_router *router, enum kvr_script_role role)
{
    KVR_CHECK(role < KVR_ROLES);
    return router->slots[role];
}

/* One record a generation, shared by the requests it decided. The one in force holds one reference
 * itself; the last request to finish frees one that is not. */
static void take_note(struct kvr_router *router, enum kvr_script_role role)
{
    const struct kvr_script_info *info = kvr_slot_info(kvr_router_slot(router, role));
    struct kvr_script_record *record = router->records[role];
    if (record && info && record->info.generation == info->generation)
        return;
    router->records[role] = NULL;
    if (record)
        kvr_script_record_release(record);
    if (!info)
        return;
    router->records[role] = kvr_alloc_zero(1, sizeof *record);
    router->records[role]->references = 1;
    router->records[role]->info = *info;
    kvr_row_describe(router->records[role]);
}

void kvr_router_scripts_changed(struct kvr_router *router)
{
    router->needs = 0;
    for (int role = 0; role < KVR_ROLES; role++) {
        take_note(router, (enum kvr_script_role)role);
        if (router->records[role])
            router->needs |= router->records[role]->info.needs;
    }
    kvr_shadow_scripts_changed(router);
    kvr_gate_scripts_changed(router);
}
