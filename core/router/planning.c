#include "planning.h"

#include "memory.h"

static void read_keys(struct kvr_planning *planning, const struct kvr_window *window,
                      uint64_t now_ns)
{
    double covered_s = (double)kvr_window_covered_ns(window, now_ns) / 1e9;
    uint32_t room = window->used, cursor = 0;
    struct kvr_window_key *counts = kvr_alloc(room * sizeof *counts + 1);
    planning->keys_len = kvr_window_keys(window, now_ns, &cursor, counts, window->cells_max);
    KVR_CHECK(planning->keys_len <= room);
    planning->keys = kvr_alloc(planning->keys_len * sizeof *planning->keys + 1);
    for (uint32_t i = 0; i < planning->keys_len; i++)
        planning->keys[i] =
            (struct kvr_plan_key){counts[i].key, (double)counts[i].count / covered_s};
    kvr_free(counts);
}

void kvr_planning_init(struct kvr_planning *planning, const struct kvr_router *router,
                       uint64_t now_ns)
{
    const struct kvr_replica_table *table = &router->replicas;
    *planning = (struct kvr_planning){
        .weights = kvr_alloc_zero(table->count + 1, sizeof *planning->weights),
        .replicas = kvr_alloc_zero(table->count + 1, sizeof *planning->replicas),
    };
    for (uint32_t slot = 0; slot < table->end; slot++) {
        const struct kvr_replica *replica = &table->slots[slot];
        if (!replica->member || replica->administrative != KVR_READY)
            continue;
        planning->weights[planning->destinations] = replica->weight;
        planning->replicas[planning->destinations++] = replica->id;
    }
    read_keys(planning, &router->keys, now_ns);
}

void kvr_planning_deinit(struct kvr_planning *planning)
{
    kvr_free(planning->keys);
    kvr_free(planning->weights);
    kvr_free(planning->replicas);
}
