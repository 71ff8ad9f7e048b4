/* The part of metrics_text.h that is about replicas and the belief index. */
#include <math.h>

#include "metrics_text.h"

/* ---- replicas ---- */

/* What one value of a replica is read from. */
struct source {
    const struct kvr_router *router;
    const struct kvr_replica *replica;
    const struct kvr_load *load;
    uint32_t slot;
    uint64_t now_ns;
};

/* NaN: not known, no sample. */
struct replica_family {
    const char *name;
    const char *help;
    double (*read)(const struct source *source);
    enum kvr_prom_type type;
};

static double read_in_flight(const struct source *source)
{
    return source->load->in_flight;
}

static double read_uncached_tokens(const struct source *source)
{
    return (double)source->load->uncached_tokens;
}

static double read_dispatched(const struct source *source)
{
    return (double)source->load->dispatched;
}

static double read_ejections(const struct source *source)
{
    return (double)source->replica->ejections;
}

static double read_weight(const struct source *source)
{
    return source->replica->weight;
}

static double read_ramp(const struct source *source)
{
    return kvr_replica_ramp(source->replica, source->now_ns);
}

static double read_capacity(const struct source *source)
{
    return source->replica->capacity == UINT32_MAX ? (double)INFINITY : source->replica->capacity;
}

static double read_in_rotation(const struct source *source)
{
    return kvr_replica_in_rotation(source->replica);
}

static double read_ttft(const struct source *source)
{
    return source->load->ttft_ms.value / 1e3;
}

static double read_error_rate(const struct source *source)
{
    return source->load->error_rate.value;
}

static double read_prefill_rate(const struct source *source)
{
    return source->load->prefill_tokens_per_s.value;
}

static double read_index_blocks(const struct source *source)
{
    return kvr_prefix_index_believed(&source->router->index, source->slot);
}

static double read_running(const struct source *source)
{
    return source->load->signals.running;
}

static double read_waiting(const struct source *source)
{
    return source->load->signals.waiting;
}

static double read_kv_usage(const struct source *source)
{
    return source->load->signals.kv_usage;
}

static double read_hit_rate(const struct source *source)
{
    return source->load->hit_rate;
}

static double read_signals_age(const struct source *source)
{
    uint64_t read_ns = source->load->signals_ns;
    if (read_ns == 0)
        return (double)NAN;
    return source->now_ns > read_ns ? (double)(source->now_ns - read_ns) / 1e9 : 0;
}

static const struct replica_family replica_families[] = {
    {"replica_in_flight", "Requests the replica holds, counted here.", read_in_flight,
     KVR_PROM_GAUGE},
    {"replica_uncached_tokens",
     "Prompt tokens it was sent, believed uncached and before their first token.",
     read_uncached_tokens, KVR_PROM_GAUGE},
    {"replica_requests_total", "Requests dispatched to it.", read_dispatched, KVR_PROM_COUNTER},
    {"replica_ejections_total", "Times it went down.", read_ejections, KVR_PROM_COUNTER},
    {"replica_weight", "Its weight, as configured or set.", read_weight, KVR_PROM_GAUGE},
    {"replica_ramp_ratio", "Share of its weight after a return.", read_ramp, KVR_PROM_GAUGE},
    {"replica_capacity", "Requests it may hold at once; +Inf: no limit.", read_capacity,
     KVR_PROM_GAUGE},
    {"replica_in_rotation", "1 when it is given new requests.", read_in_rotation, KVR_PROM_GAUGE},
    {"replica_ttft_seconds", "Moving average of the time to first token.", read_ttft,
     KVR_PROM_GAUGE},
    {"replica_error_ratio", "Moving average of failures by its own doing.", read_error_rate,
     KVR_PROM_GAUGE},
    {"replica_prefill_tokens_per_second", "Moving average of its prefill rate.", read_prefill_rate,
     KVR_PROM_GAUGE},
    {"replica_index_blocks", "Blocks it is believed to hold.", read_index_blocks, KVR_PROM_GAUGE},
    {"replica_engine_running_requests", "Running requests, as its engine says.", read_running,
     KVR_PROM_GAUGE},
    {"replica_engine_waiting_requests", "Waiting requests, as its engine says.", read_waiting,
     KVR_PROM_GAUGE},
    {"replica_engine_kv_usage_ratio", "Share of its KV cache in use, as its engine says.",
     read_kv_usage, KVR_PROM_GAUGE},
    {"replica_engine_hit_ratio", "Prefix cache hits over its last window, as its engine says.",
     read_hit_rate, KVR_PROM_GAUGE},
    {"replica_engine_age_seconds", "Age of what its engine said.", read_signals_age,
     KVR_PROM_GAUGE},
};

static void write_state(struct kvr_prom_writer *prom, const struct kvr_replica *replica,
                        const char *state, bool is)
{
    kvr_prom_label(prom, "replica", kvr_slice_of(replica->name));
    kvr_prom_label(prom, "state", kvr_slice_of(state));
    kvr_prom_uint(prom, is);
}

static void write_states(const struct kvr_replica_table *replicas, struct kvr_prom_writer *prom)
{
    kvr_prom_family(prom, "replica_operational", KVR_PROM_GAUGE,
                    "1 for the state that probes and traffic put it in.");
    for (uint32_t slot = 0; slot < replicas->end; slot++)
        for (int i = KVR_DOWN; replicas->slots[slot].member && i <= KVR_UP; i++)
            write_state(prom, &replicas->slots[slot], kvr_operational_name((enum kvr_operational)i),
                        (int)replicas->slots[slot].operational == i);
    kvr_prom_family(prom, "replica_administrative", KVR_PROM_GAUGE,
                    "1 for the state that the operator put it in.");
    for (uint32_t slot = 0; slot < replicas->end; slot++)
        for (int i = KVR_OFF; replicas->slots[slot].member && i <= KVR_READY; i++)
            write_state(prom, &replicas->slots[slot],
                        kvr_administrative_name((enum kvr_administrative)i),
                        (int)replicas->slots[slot].administrative == i);
}

void kvr_metrics_text_fleet(const struct kvr_router *router, uint64_t now_ns,
                            struct kvr_prom_writer *prom)
{
    const struct kvr_replica_table *replicas = &router->replicas;
    kvr_prom_gauge(prom, "replicas", replicas->count, "Members of the fleet.");
    kvr_prom_gauge(prom, "replicas_limit", replicas->capacity, "Members the fleet may have.");
    write_states(replicas, prom);
    for (size_t i = 0; i < sizeof replica_families / sizeof replica_families[0]; i++) {
        const struct replica_family *family = &replica_families[i];
        kvr_prom_family(prom, family->name, family->type, family->help);
        for (uint32_t slot = 0; slot < replicas->end; slot++) {
            const struct kvr_replica *replica = &replicas->slots[slot];
            if (!replica->member)
                continue;
            struct source source = {router, replica, &router->loads[slot], slot, now_ns};
            kvr_prom_label(prom, "replica", kvr_slice_of(replica->name));
            kvr_prom_double(prom, family->read(&source));
        }
    }
}

/* ---- the index ---- */

static void write_index_ends(const struct kvr_prefix_index_stats *stats,
                             struct kvr_prom_writer *prom)
{
    const struct kvr_prefix_index_counters *counters = &stats->counters;
    const struct kvr_belief_counters *beliefs = &stats->beliefs;
    const struct {
        const char *cause;
        uint64_t count;
    } blocks[] = {{"capacity", counters->blocks_evicted}, {"unheld", counters->blocks_reclaimed}},
      ends[] = {{"expired", beliefs->expired},
                {"purged", beliefs->voided},
                {"capacity", beliefs->evicted},
                {"overflow", beliefs->displaced},
                {"withdrawn", beliefs->withdrawn}};
    kvr_prom_family(prom, "index_evicted_blocks_total", KVR_PROM_COUNTER,
                    "Blocks that left the index, by cause.");
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        kvr_prom_label(prom, "cause", kvr_slice_of(blocks[i].cause));
        kvr_prom_uint(prom, blocks[i].count);
    }
    kvr_prom_family(prom, "index_ended_beliefs_total", KVR_PROM_COUNTER,
                    "Beliefs (a block on a replica) that ended, by cause.");
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        kvr_prom_label(prom, "cause", kvr_slice_of(ends[i].cause));
        kvr_prom_uint(prom, ends[i].count);
    }
}

void kvr_metrics_text_index(const struct kvr_router *router, struct kvr_prom_writer *prom)
{
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&router->index, &stats);
    kvr_prom_gauge(prom, "index_blocks", stats.blocks, "Prompt blocks in the prefix index.");
    kvr_prom_gauge(prom, "index_blocks_limit", stats.blocks_max, "Blocks it may have.");
    kvr_prom_gauge(prom, "index_beliefs", (double)stats.holders,
                   "Beliefs in it: pairs of a block and a replica.");
    kvr_prom_gauge(prom, "index_overflow_lines", stats.overflow,
                   "Lines in use for blocks with more than eight holders.");
    kvr_prom_gauge(prom, "index_overflow_lines_limit", stats.overflow_max,
                   "Such lines it may have.");
    kvr_prom_gauge(prom, "index_bytes", (double)stats.bytes, "Memory reserved for the index.");
    kvr_prom_gauge(prom, "index_bytes_limit", (double)stats.bytes_max, "Memory it may have.");
    kvr_prom_counter(prom, "index_matches_total", stats.counters.matches, "Prompts looked up.");
    kvr_prom_counter(prom, "index_admissions_total", stats.counters.admissions,
                     "Prompts entered for a replica.");
    kvr_prom_counter(prom, "index_withdrawals_total", stats.counters.withdrawals,
                     "Prompts taken back because their dispatch failed.");
    kvr_prom_counter(prom, "index_purges_total", stats.counters.purges,
                     "Times all beliefs of a replica were voided.");
    kvr_prom_counter(prom, "index_cut_blocks_total", stats.counters.blocks_cut,
                     "Blocks not entered because their prompt was too long.");
    kvr_prom_counter(prom, "index_replica_cap_beliefs_total", stats.counters.replica_evicted,
                     "Beliefs that fell to the cap of their replica.");
    kvr_prom_counter(prom, "index_sweeps_total", stats.counters.sweeps,
                     "Passes over all blocks because lives of replicas ran out.");
    write_index_ends(&stats, prom);
}
