/* What the key windows cost a decision and the planner, with 100,000 keys of skewed popularity that
 * each went to one or two of 30 replicas. Each figure is the median of its samples. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "memory.h"
#include "rng.h"
#include "window.h"

#define KEYS     100000u
#define REPLICAS 30u
#define CELLS    300000u
#define BATCHES  200u
#define BATCH    2000u

static volatile uint64_t sink;

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void print_figure(const char *figure, double value, const char *unit)
{
    printf("{\"bench\":\"window\",\"figure\":\"%s\",\"value\":%.3f,\"unit\":\"%s\"}\n", figure,
           value, unit);
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* Rank falls off so that the most frequent percent has about a third of all. */
static uint64_t random_key(struct kvr_rng *rng)
{
    double u = kvr_rng_double(rng);
    return kvr_mix64((uint64_t)(u * u * u * u * KEYS));
}

int main(void)
{
    struct kvr_window window;
    struct kvr_rng rng;
    static uint64_t keys[BATCH];
    static double add[BATCHES], read[BATCHES];
    uint64_t now_ns = 1;
    kvr_rng_init(&rng, 1);
    kvr_window_init(&window,
                    &(struct kvr_window_options){.cells_max = CELLS, .replicas_max = REPLICAS});
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = random_key(&rng);
        uint64_t start = clock_ns();
        for (uint32_t i = 0; i < BATCH; i++)
            kvr_window_add(&window, now_ns += 200000, keys[i],
                           (uint32_t)((keys[i] + i % 2) % REPLICAS), 1);
        add[batch] = (double)(clock_ns() - start) / BATCH;
        for (uint32_t i = 0; i < BATCH; i++)
            keys[i] = random_key(&rng);
        start = clock_ns();
        for (uint32_t i = 0; i < BATCH; i++) {
            struct kvr_window_pair pairs[REPLICAS];
            sink += kvr_window_count(&window, now_ns, keys[i]);
            sink += kvr_window_pairs(&window, now_ns, keys[i], pairs, REPLICAS);
        }
        read[batch] = (double)(clock_ns() - start) / BATCH;
    }
    print_figure("add_ns", median(add, BATCHES), "ns");
    print_figure("share_and_ages_ns", median(read, BATCHES), "ns");
    struct kvr_window_key *snapshot = kvr_alloc(CELLS * sizeof *snapshot);
    double snapshots[15];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 15; i++) {
        uint64_t start = clock_ns();
        uint32_t cursor = 0;
        count = kvr_window_keys(&window, now_ns, &cursor, snapshot, CELLS);
        snapshots[i] = (double)(clock_ns() - start) / 1e6;
    }
    print_figure("snapshot_ms", median(snapshots, 15), "ms");
    print_figure("snapshot_keys", count, "keys");
    print_figure("bytes_per_cell", (double)kvr_window_bytes(&window) / CELLS, "B");
    kvr_free(snapshot);
    kvr_window_deinit(&window);
    return 0;
}
