/* What one order of preference costs: ring and rendezvous at several fleet sizes. Each figure is
 * the median of 15 runs over 20,000 different keys. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "hash_ring.h"
#include "rng.h"

#define RUNS 15
#define KEYS 20000

enum order_kind { RING, HRW_EQUAL, HRW_WEIGHTED };

static struct kvr_hash_ring ring;
static uint64_t ids[KVR_RING_MEMBERS_MAX];
static double weights[KVR_RING_MEMBERS_MAX];
static uint32_t order[KVR_RING_MEMBERS_MAX];
static volatile uint32_t sink;

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double order_ns(enum order_kind kind, uint32_t count, uint32_t limit)
{
    double runs[RUNS];
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = clock_ns();
        for (uint64_t key = 0; key < KEYS; key++) {
            if (kind == RING)
                kvr_hash_ring_order(&ring, key, limit, order);
            else
                kvr_hrw_order(ids, kind == HRW_EQUAL ? NULL : weights, count, key, limit, order);
            sink += order[0];
        }
        runs[run] = (double)(clock_ns() - start) / KEYS;
    }
    qsort(runs, RUNS, sizeof runs[0], compare_doubles);
    return runs[RUNS / 2];
}

int main(void)
{
    static const uint32_t fleets[] = {5, 8, 30, 64, 300, 1000};
    for (size_t f = 0; f < sizeof fleets / sizeof fleets[0]; f++) {
        uint32_t n = fleets[f];
        static struct kvr_ring_member members[KVR_RING_MEMBERS_MAX];
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = kvr_mix64(i + 1);
            weights[i] = 1.0 + (double)(i % 3);
            members[i] = (struct kvr_ring_member){ids[i], 1.0};
        }
        kvr_hash_ring_build(&ring, members, n, 0);
        static const struct {
            const char *name;
            enum order_kind kind;
            uint32_t limit;
        } figures[] = {
            {"ring_first", RING, 1},
            {"ring_all", RING, 0},
            {"hrw_first", HRW_EQUAL, 1},
            {"hrw_all", HRW_EQUAL, 0},
            {"hrw_weighted_first", HRW_WEIGHTED, 1},
        };
        for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
            printf(
                "{\"bench\":\"orders\",\"figure\":\"%s_%u_ns\",\"value\":%.1f,\"unit\":\"ns\"}\n",
                figures[i].name, n, order_ns(figures[i].kind, n, figures[i].limit));
    }
    kvr_hash_ring_deinit(&ring);
    return 0;
}
