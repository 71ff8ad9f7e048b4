/* Rates of routing keys as the first requests of a list have them: what an operator would know who
 * had watched these and plans for those that follow. */
#include "memory.h"
#include "ranking.h"
#include "sim_parts.h"

/* The keys of the first requests as the router has them, in 32 bits. Returns how many there are,
 * and the time from the first to the last. */
static uint32_t read_first(const struct kvr_sim *sim, struct kvr_ranked *keys, uint32_t most,
                           double *span_s)
{
    struct kvr_arrival arrival;
    uint64_t first_ns = 0, last_ns = 0;
    uint32_t len = 0;
    kvr_workload_rewind(sim->workload);
    while (len < most && kvr_workload_next(sim->workload, &arrival)) {
        struct kvr_workload_request ask;
        KVR_CHECK(kvr_workload_turn(sim->workload, arrival.user, arrival.turn, &ask));
        last_ns = arrival.due_ns;
        first_ns = len ? first_ns : last_ns;
        keys[len] = (struct kvr_ranked){kvr_hash32(kvr_sim_routing_key(sim, &ask)), len};
        len++;
    }
    *span_s = last_ns > first_ns ? (double)(last_ns - first_ns) / 1e9 : 1;
    return len;
}

void kvr_sim_plan_list_rates(const struct kvr_sim *sim, struct kvr_planning *planning)
{
    uint32_t most = (uint32_t)sim->options.plan_requests;
    struct kvr_ranked *keys = kvr_alloc_zero(most, sizeof *keys);
    struct kvr_ranked *scratch = kvr_alloc_zero(most, sizeof *scratch);
    double span_s;
    uint32_t len = read_first(sim, keys, most, &span_s);
    kvr_ranking_sort(keys, scratch, len);
    kvr_free(scratch);
    kvr_free(planning->keys);
    kvr_free(planning->sizes);
    planning->sizes = NULL;
    planning->keys = kvr_alloc_zero(len + 1, sizeof *planning->keys);
    planning->keys_len = 0;
    planning->window_s = span_s;
    for (uint32_t i = 0; i < len; i++) {
        planning->keys_len += i == 0 || keys[i].rank != keys[i - 1].rank;
        struct kvr_plan_key *key = &planning->keys[planning->keys_len - 1];
        key->key = kvr_sim_model_key(sim, (uint32_t)keys[i].rank);
        key->rate += 1 / span_s;
    }
    kvr_free(keys);
}
