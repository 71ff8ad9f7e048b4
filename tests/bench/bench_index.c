/* The prefix index at a million blocks: what one decision pays, what a block costs, and what a
 * flood of prompts that nobody sends twice does to it. Chains are met in random order, so that
 * memory is as cold as 64 MB of blocks are; the *_cold figures also sweep the caches before each
 * sample. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "prefix_index.h"
#include "rng.h"

#define CHAIN        64u
#define BLOCKS       1000000u
#define CHAINS       (BLOCKS / CHAIN)
#define SAMPLES      40000u
#define COLD_SAMPLES 400u
#define JUNK_BYTES   ((size_t)96 << 20)
#define FLOOD        200000u
#define FLOOD_CHAIN  125u
#define SECOND       1000000000u

static struct kvr_prefix_index prefixes;
static struct kvr_rng rng;
static uint64_t now_ns = SECOND;
static uint32_t blocks_by_replica[1024];
static char *junk;
static volatile char junk_sink;

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void print_figure(const char *figure, double value, const char *unit)
{
    printf("{\"bench\":\"index\",\"figure\":\"%s\",\"value\":%.3f,\"unit\":\"%s\"}\n", figure,
           value, unit);
    fflush(stdout);
}

static int compare_times(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static double quantile_us(uint32_t *times, uint32_t count, double share)
{
    qsort(times, count, sizeof *times, compare_times);
    return times[(uint32_t)((double)(count - 1) * share)] / 1000.0;
}

static void fill_chain(uint64_t *chain, uint64_t id, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        chain[i] = kvr_mix64(id * 1024 + i + 1);
}

static void chill(void)
{
    char sum = 0;
    for (size_t i = 0; i < JUNK_BYTES; i += 64)
        sum = (char)(sum + ++junk[i]);
    junk_sink = sum;
}

static void set_up(uint32_t replicas, uint64_t memory_mib, uint32_t per_replica_max)
{
    kvr_prefix_index_init(&prefixes, &(struct kvr_prefix_index_options){
                                         .memory_bytes = memory_mib << 20,
                                         .blocks_max = BLOCKS,
                                         .blocks_per_replica_max = per_replica_max,
                                         .replicas_max = replicas,
                                         .ttl_ns = UINT64_MAX,
                                     });
    uint64_t chain[CHAIN];
    for (uint64_t id = 0; id < CHAINS; id++) {
        fill_chain(chain, id, CHAIN);
        now_ns += 1000;
        kvr_prefix_index_admit(&prefixes, now_ns, chain, CHAIN,
                               (uint32_t)kvr_rng_below(&rng, replicas));
    }
}

static uint32_t best_replica(uint32_t replicas, uint32_t longest)
{
    uint32_t best = 0;
    for (uint32_t r = 0; r < replicas; r++) {
        if (longest && blocks_by_replica[r] == longest)
            best = r;
        blocks_by_replica[r] = 0;
    }
    return best;
}

/* One decision: match, take the best holder, admit. Returns its nanoseconds. */
static uint32_t decide(const uint64_t *chain, uint32_t len, uint32_t replicas)
{
    now_ns += 1000;
    uint64_t start = clock_ns();
    uint32_t longest = kvr_prefix_index_match(&prefixes, now_ns, chain, len, blocks_by_replica);
    uint32_t replica = best_replica(replicas, longest);
    kvr_prefix_index_admit(&prefixes, now_ns, chain, len, replica);
    return (uint32_t)(clock_ns() - start);
}

static void time_resident(const char *figure, uint32_t replicas, uint32_t samples, int cold)
{
    uint32_t *times = kvr_alloc(samples * sizeof *times);
    for (uint32_t i = 0; i < samples; i++) {
        uint64_t chain[CHAIN];
        fill_chain(chain, kvr_rng_below(&rng, CHAINS), CHAIN);
        if (cold)
            chill();
        times[i] = decide(chain, CHAIN, replicas);
    }
    print_figure(figure, quantile_us(times, samples, 0.5), "us");
    kvr_free(times);
}

static void time_new(const char *figure, uint32_t replicas, uint32_t samples, int cold)
{
    static uint64_t next_id = UINT64_C(1) << 40;
    uint32_t *times = kvr_alloc(samples * sizeof *times);
    for (uint32_t i = 0; i < samples; i++) {
        uint64_t chain[CHAIN];
        fill_chain(chain, next_id++, CHAIN);
        if (cold)
            chill();
        times[i] = decide(chain, CHAIN, replicas);
    }
    print_figure(figure, quantile_us(times, samples, 0.5), "us");
    kvr_free(times);
}

/* Prompts that come again and again, hot in the caches: what the proxy's request path pays for a
 * body of 2 KB, 8 KB, 220 KB. The median round of many, free of the clock's own cost. */
static void time_hot(const char *figure, uint32_t len)
{
    enum { REPLICAS = 4, PROMPTS = 64, ROUNDS = 101 };
    uint32_t prompts = len > 1000 ? 4 : PROMPTS;
    uint32_t passes = 1 + 4096 / (prompts * len);
    uint64_t *chains = kvr_alloc(prompts * len * sizeof *chains);
    uint32_t *times = kvr_alloc(ROUNDS * sizeof *times);
    kvr_prefix_index_init(&prefixes, &(struct kvr_prefix_index_options){.replicas_max = REPLICAS});
    for (uint32_t p = 0; p < prompts; p++) {
        for (uint32_t i = 0; i < len; i++)
            chains[p * len + i] = kvr_mix64((UINT64_C(1) << 42) + p * 8192 + i);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t start = clock_ns();
        for (uint32_t i = 0; i < passes * prompts; i++) {
            uint32_t p =
                i * 7 % prompts; /* out of order, so that no prompt follows its neighbour */
            kvr_prefix_index_match(&prefixes, ++now_ns, chains + p * len, len, blocks_by_replica);
            memset(blocks_by_replica, 0, REPLICAS * sizeof *blocks_by_replica);
            kvr_prefix_index_admit(&prefixes, now_ns, chains + p * len, len, p % REPLICAS);
        }
        times[round] = (uint32_t)((clock_ns() - start) / (passes * prompts));
    }
    print_figure(figure, 1000 * quantile_us(times, ROUNDS, 0.5), "ns");
    kvr_prefix_index_deinit(&prefixes);
    kvr_free(times);
    kvr_free(chains);
}

/* Lets every replica hold every block, as far as the overflow goes. */
static void share_all(uint32_t replicas)
{
    uint64_t chain[CHAIN];
    for (uint64_t id = 0; id < CHAINS; id++) {
        fill_chain(chain, id, CHAIN);
        for (uint32_t r = 0; r < replicas; r++)
            kvr_prefix_index_admit(&prefixes, ++now_ns, chain, CHAIN, r);
    }
}

static double bytes_per_block(void)
{
    struct kvr_prefix_index_stats stats;
    kvr_prefix_index_read_stats(&prefixes, &stats);
    return (double)stats.bytes / stats.blocks;
}

static double rss_mb(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &size, &resident) != 2)
        exit(1);
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static void flood(void)
{
    enum { REPLICAS = 8 };
    double before_mb = rss_mb();
    kvr_prefix_index_init(&prefixes, &(struct kvr_prefix_index_options){.replicas_max = REPLICAS});
    print_figure("idle_rss_mb", rss_mb() - before_mb, "MB");
    uint32_t *lookups = kvr_alloc(FLOOD * sizeof *lookups);
    uint32_t *decisions = kvr_alloc(FLOOD * sizeof *decisions);
    memset(lookups, 0, FLOOD * sizeof *lookups);
    memset(decisions, 0, FLOOD * sizeof *decisions);
    double full_mb = 0.0;
    for (uint32_t i = 0; i < FLOOD; i++) {
        uint64_t chain[FLOOD_CHAIN];
        fill_chain(chain, (UINT64_C(1) << 41) + i, FLOOD_CHAIN);
        now_ns += 100000;
        uint64_t start = clock_ns();
        kvr_prefix_index_match(&prefixes, now_ns, chain, FLOOD_CHAIN, blocks_by_replica);
        uint64_t matched = clock_ns();
        kvr_prefix_index_admit(&prefixes, now_ns, chain, FLOOD_CHAIN, i % REPLICAS);
        lookups[i] = (uint32_t)(matched - start);
        decisions[i] = (uint32_t)(clock_ns() - start);
        if (i == FLOOD / 10)
            full_mb = rss_mb();
    }
    print_figure("flood_rss_growth_mb", rss_mb() - full_mb, "MB");
    print_figure("flood_lookup_p99_us", quantile_us(lookups, FLOOD, 0.99), "us");
    print_figure("flood_lookup_max_us", quantile_us(lookups, FLOOD, 1.0), "us");
    print_figure("flood_decision_p50_us", quantile_us(decisions, FLOOD, 0.5), "us");
    print_figure("flood_decision_p99_us", quantile_us(decisions, FLOOD, 0.99), "us");
    kvr_free(lookups);
    kvr_free(decisions);
    kvr_prefix_index_deinit(&prefixes);
}

int main(void)
{
    kvr_rng_init(&rng, 1);
    junk = kvr_alloc(JUNK_BYTES);
    memset(junk, 1, JUNK_BYTES);

    time_hot("hot_match_admit_30_ns", 30);
    time_hot("hot_match_admit_125_ns", 125);
    time_hot("hot_match_admit_3437_ns", 3437);

    /* The bars: a million blocks, eight replicas. */
    set_up(8, 80, 0);
    time_resident("match_admit_us", 8, SAMPLES, 0);
    time_resident("match_admit_cold_us", 8, COLD_SAMPLES, 1);
    time_new("new_chain_us", 8, SAMPLES, 0);
    time_new("new_chain_cold_us", 8, COLD_SAMPLES, 1);
    print_figure("bytes_per_node", bytes_per_block(), "B");
    kvr_prefix_index_deinit(&prefixes);

    set_up(8, 80, 0);
    share_all(8);
    time_resident("match_admit_8_holders_us", 8, SAMPLES, 0);
    print_figure("bytes_per_node_8_holders", bytes_per_block(), "B");
    kvr_prefix_index_deinit(&prefixes);

    /* Each replica capped: links as well. */
    set_up(8, 160, BLOCKS / 8);
    time_resident("match_admit_capped_us", 8, SAMPLES, 0);
    time_new("new_chain_capped_us", 8, SAMPLES, 0);
    print_figure("bytes_per_node_capped", bytes_per_block(), "B");
    kvr_prefix_index_deinit(&prefixes);

    /* The default 64 MiB with 64 replicas: an eighth of it is for more than eight holders. */
    set_up(64, 64, 0);
    print_figure("bytes_per_node_64", bytes_per_block(), "B");
    kvr_prefix_index_deinit(&prefixes);

    /* Every block held by all of 64: what nobody has, as the limit. */
    set_up(64, 768, 0);
    share_all(64);
    time_resident("match_admit_64_holders_us", 64, SAMPLES, 0);
    print_figure("bytes_per_node_64_holders", bytes_per_block(), "B");
    kvr_prefix_index_deinit(&prefixes);

    flood();
    kvr_free(junk);
    return 0;
}
