/* The simulator on one core, with the policies as Lua scripts: the study's frozen point, its grid,
 * and thirty 70B engines with warm caches. Making the simulation and loading its scripts counts.
 *
 * Prints one JSON line a figure: the best of RUNS runs, so that a machine shared with others still
 * tells what the code can do. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim.h"

#define RUNS          3
#define SCRIPT_MAX    65536u
#define WARM_REQUESTS 20000 /* of the 70B engines, before the clock starts */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void load(struct kvr_sim *sim, const char *role, const char *folder, const char *name)
{
    static char text[SCRIPT_MAX];
    char path[512];
    struct kvr_error error = {0};
    snprintf(path, sizeof path, "%s/policies/%s%s.lua", KVR_SOURCE_DIR, folder, name);
    FILE *file = fopen(path, "rb");
    size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
    KVR_CHECK(len > 0);
    fclose(file);
    text[len] = '\0';
    if (kvr_sim_load(sim, role, name, text, NULL, 0, &error) == 0)
        return;
    fprintf(stderr, "%s: %s\n", name, error.text);
    exit(1);
}

static struct kvr_sim *make(const struct kvr_sim_options *options, const char *policy,
                            const char *spill)
{
    struct kvr_error error = {0};
    struct kvr_sim *sim = kvr_sim_create(options, &error);
    if (!sim) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    load(sim, "policy", "", policy);
    if (spill)
        load(sim, "spill", "spill/", spill);
    return sim;
}

static struct kvr_sim_options study(double working_set, double skew)
{
    struct kvr_sim_options options;
    kvr_sim_defaults(&options);
    options.index_ttl_ms = 57000;
    options.index_nodes = 16311;
    options.workload.working_set = working_set;
    options.workload.skew = skew;
    return options;
}

/* A whole cell. Returns what it sent; adds the CPU time and the simulated time. */
static double cell(const struct kvr_sim_options *options, const char *policy, const char *spill,
                   double *seconds, double *simulated_s)
{
    struct kvr_sim_result result;
    double start = cpu_seconds();
    struct kvr_sim *sim = make(options, policy, spill);
    while (kvr_sim_run(sim, UINT64_MAX, 0))
        continue;
    kvr_sim_result(sim, &result);
    kvr_sim_destroy(sim);
    *seconds += cpu_seconds() - start;
    *simulated_s += result.simulated_s;
    return result.sent;
}

/* Five seeds, since one cell is over in a blink. */
static double times_real_time(void)
{
    double seconds = 0, simulated_s = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct kvr_sim_options options = study(1, 0);
        options.seed = seed;
        cell(&options, "prefix_affinity", "load_min", &seconds, &simulated_s);
    }
    return simulated_s / seconds;
}

static double grid_requests_per_s(void)
{
    static const double sets[] = {0.25, 1, 3, 8}, skews[] = {0, 1, 1.4};
    static const char *const policies[][2] = {
        {"round_robin", NULL},
        {"least_outstanding", NULL},
        {"session_affinity", NULL},
        {"prefix_affinity", "load_min"},
    };
    double seconds = 0, simulated_s = 0, requests = 0;
    for (int set = 0; set < 4; set++)
        for (int skew = 0; skew < 3; skew++)
            for (int i = 0; i < 4; i++) {
                struct kvr_sim_options options = study(sets[set], skews[skew]);
                requests += cell(&options, policies[i][0], policies[i][1], &seconds, &simulated_s);
            }
    return requests / seconds;
}

/* Keys on 70B engines, caches warm. */
static double warm_requests_per_s(const char *policy, const char *spill)
{
    struct kvr_sim_options options;
    struct kvr_sim_result before, after;
    kvr_sim_defaults(&options);
    int found = kvr_sim_use_profile(&options, "h100x2-70b-fp8");
    KVR_CHECK(found == 0);
    options.workload.kind = KVR_WORKLOAD_KEYS;
    options.workload.arrivals = KVR_ARRIVALS_RATE;
    options.workload.rate = 60;
    options.workload.gap_cv = 1;
    options.warmup_ms = options.duration_ms = 0;
    options.requests = 2.5 * WARM_REQUESTS;
    struct kvr_sim *sim = make(&options, policy, spill);
    kvr_sim_run(sim, (uint64_t)(WARM_REQUESTS / options.workload.rate * 1e9), 0);
    kvr_sim_result(sim, &before);
    double start = cpu_seconds();
    while (kvr_sim_run(sim, UINT64_MAX, 0))
        continue;
    double seconds = cpu_seconds() - start;
    kvr_sim_result(sim, &after);
    kvr_sim_destroy(sim);
    return (after.ended - before.ended) / seconds;
}

static void keep_best(double *best, double value)
{
    *best = value > *best ? value : *best;
}

static void print(const char *figure, double value, const char *unit)
{
    printf("{\"bench\":\"sim\",\"figure\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"}\n", figure, value,
           unit);
}

int main(void)
{
    double times = 0, grid = 0, flat = 0, bounded = 0, affine = 0;
    for (int run = 0; run < RUNS; run++) {
        keep_best(&times, times_real_time());
        keep_best(&grid, grid_requests_per_s());
        keep_best(&flat, warm_requests_per_s("p2c", NULL));
        keep_best(&bounded, warm_requests_per_s("bounded_session_affinity", NULL));
        keep_best(&affine, warm_requests_per_s("prefix_affinity", "load_min"));
    }
    print("kvroute_times_real_time", times, "x");
    print("kvroute_requests_per_s", grid, "1/s");
    print("h100x2_70b_requests_per_s", flat, "1/s");
    print("h100x2_70b_bounded_requests_per_s", bounded, "1/s");
    print("h100x2_70b_prefix_affinity_requests_per_s", affine, "1/s");
    return 0;
}
