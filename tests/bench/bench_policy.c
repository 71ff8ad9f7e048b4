/* What one decision costs: filling the view from the replica table and the loads, asking the policy
 * and, where its pick was made for the cache, the spill rule. The guard is armed as in the ingress,
 * requests come and go between decisions, and every decision has another match.
 *
 * Prints one JSON line a figure: the median of WINDOWS windows. The look into the prefix index is
 * not in it: bench_index measures that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "check.h"
#include "guard.h"
#include "hash_ring.h"
#include "load.h"
#include "memory.h"
#include "replica.h"
#include "rng.h"
#include "slot.h"
#include "view.h"

#define WINDOWS     9
#define DECISIONS   40000 /* a window */
#define WARM_UP     60000
#define PATTERNS    256 /* different matches, then again from the first */
#define CHAIN       64  /* blocks of a prompt */
#define PER_REPLICA 4   /* requests in flight, about */
#define MAX_OPEN    1024

struct fleet {
    struct kvr_replica_table table;
    struct kvr_load *loads;
    struct kvr_picture picture;
    struct kvr_hash_ring ring;
    struct kvr_block_key chain[CHAIN];
    uint32_t *matches;       /* PATTERNS x replicas, as the prefix index gives them */
    uint32_t open[MAX_OPEN]; /* replica of each request in flight, oldest first from `oldest` */
    uint32_t open_count;
    uint32_t oldest;
    uint32_t serial;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Every tenth prompt is new to the fleet; others are held by one to three replicas. */
static void make_matches(struct fleet *fleet, uint32_t replicas, struct kvr_rng *rng)
{
    fleet->matches = kvr_alloc_zero((size_t)PATTERNS * replicas, sizeof *fleet->matches);
    for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
        if (pattern % 10 == 0)
            continue;
        uint32_t blocks = 1 + (uint32_t)kvr_rng_below(rng, CHAIN);
        uint64_t holders = 1 + kvr_rng_below(rng, 3);
        for (uint64_t h = 0; h < holders; h++)
            fleet->matches[pattern * replicas + kvr_rng_below(rng, replicas)] = blocks;
    }
}

static void make_fleet(struct fleet *fleet, uint32_t replicas)
{
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    kvr_replica_table_init(&fleet->table, replicas);
    fleet->loads = kvr_alloc_zero(replicas, sizeof *fleet->loads);
    struct kvr_ring_member *members = kvr_alloc_zero(replicas, sizeof *members);
    for (uint32_t i = 0; i < replicas; i++) {
        char authority[32];
        snprintf(authority, sizeof authority, "10.0.0.%u:8000", i + 1);
        struct kvr_replica_spec spec = {.authority = kvr_slice_of(authority), .rank = -1};
        int slot = kvr_replica_add(&fleet->table, &spec);
        KVR_CHECK(slot == (int)i);
        kvr_replica_set_operational(&fleet->table, i, KVR_RAMPING, 0);
        kvr_replica_set_operational(&fleet->table, i, KVR_UP, 0);
        kvr_load_init(&fleet->loads[i]);
        members[i] = (struct kvr_ring_member){fleet->table.slots[i].id, 1.0};
    }
    kvr_picture_init(&fleet->picture, replicas);
    kvr_hash_ring_init(&fleet->ring);
    kvr_hash_ring_build(&fleet->ring, members, replicas, 0);
    fleet->picture.ring = &fleet->ring;
    kvr_free(members);
    for (uint32_t i = 0; i < CHAIN; i++)
        fleet->chain[i].key = (uint32_t)kvr_rng_next(&rng);
    make_matches(fleet, replicas, &rng);
}

static void free_fleet(struct fleet *fleet)
{
    kvr_hash_ring_deinit(&fleet->ring);
    kvr_picture_deinit(&fleet->picture);
    kvr_replica_table_deinit(&fleet->table);
    kvr_free(fleet->loads);
    kvr_free(fleet->matches);
}

static void fill_request(struct fleet *fleet, uint64_t now)
{
    uint32_t serial = fleet->serial++;
    fleet->chain[15].key = (serial % PATTERNS) * 2654435761u;
    fleet->picture.request = (struct kvr_request_view){
        .now_ms = (double)now / 1e6,
        .prompt_bytes = CHAIN * 64.0,
        .prompt_tokens = CHAIN * 16.0,
        .max_tokens = 256.0,
        .slo_ttft_ms = (double)NAN,
        .chain = fleet->chain,
        .chain_len = CHAIN,
        .block_bytes = 64,
        .serial = serial,
        .model = 1,
        .session = (serial * 2654435761u) | 1u,
        .routing_key = (serial * 2654435761u) | 1u,
        .stream = 1,
    };
}

static void fill_row(struct kvr_replica_view *row, const struct kvr_replica *replica,
                     const struct kvr_load *load, uint32_t slot, uint32_t match_blocks,
                     uint64_t now)
{
    double ramp = kvr_replica_ramp(replica, now);
    double in_flight = (double)load->in_flight;
    const struct kvr_engine_signals *signals = &load->signals;
    row->weight = replica->weight;
    row->ramp = ramp;
    row->load = in_flight / (replica->weight * ramp);
    row->in_flight = in_flight;
    row->capacity = replica->capacity == UINT32_MAX ? (double)INFINITY : (double)replica->capacity;
    row->uncached_tokens = (double)load->uncached_tokens;
    row->remote_in_flight = (double)NAN;
    row->remote_age_ms = (double)NAN;
    row->age_ms = (double)(now - replica->available_since_ns) / 1e6;
    row->running = signals->running;
    row->waiting = signals->waiting;
    row->kv_usage = signals->kv_usage;
    row->engine_hit_rate = load->hit_rate;
    row->signals_age_ms = load->signals_ns ? (double)(now - load->signals_ns) / 1e6 : (double)NAN;
    row->match_tokens = (double)match_blocks * 16.0;
    row->resident_tokens = (double)NAN;
    row->ttft_ms = load->ttft_ms.value;
    row->error_rate = load->error_rate.value;
    row->prefill_tokens_per_s = load->prefill_tokens_per_s.value;
    row->key_age_ms = (double)NAN;
    row->id = slot;
    row->name = kvr_hash32(replica->id);
    row->match_blocks = match_blocks;
    row->resident_blocks = 0;
    row->assigned = 0;
    row->operational = (uint32_t)replica->operational;
    row->administrative = (uint32_t)replica->administrative;
    row->available = kvr_replica_in_rotation(replica) && load->in_flight < replica->capacity;
}

static void fill_view(struct fleet *fleet, uint64_t now)
{
    struct kvr_picture *picture = &fleet->picture;
    fill_request(fleet, now);
    const uint32_t *matches =
        &fleet->matches[(picture->request.serial % PATTERNS) * fleet->table.count];
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < fleet->table.end; slot++) {
        const struct kvr_replica *replica = &fleet->table.slots[slot];
        if (!replica->member || !kvr_replica_serves(replica, 1))
            continue;
        fill_row(&picture->rows[count], replica, &fleet->loads[slot], slot, matches[slot], now);
        picture->ids[count] = replica->id;
        picture->weights[count] = replica->weight;
        count++;
    }
    kvr_picture_summarise(picture, count);
}

/* The request goes there; the oldest one ends when the fleet holds enough. */
static void dispatch(struct fleet *fleet, uint32_t replica)
{
    uint32_t limit = PER_REPLICA * fleet->table.count;
    if (fleet->open_count == limit) {
        fleet->loads[fleet->open[fleet->oldest]].in_flight--;
        fleet->open[fleet->oldest] = replica;
        fleet->oldest = (fleet->oldest + 1) % limit;
    } else {
        fleet->open[fleet->open_count++] = replica;
    }
    fleet->loads[replica].in_flight++;
    fleet->loads[replica].uncached_tokens = fleet->loads[replica].in_flight * 300u;
}

/* One decision: the row that takes the request. Without a policy only the view is filled. */
static uint32_t decide(struct fleet *fleet, struct kvr_slot *policy, struct kvr_slot *spill,
                       uint64_t now)
{
    struct kvr_decision pick = {0}, moved = {0};
    fill_view(fleet, now);
    if (!policy)
        return fleet->picture.request.serial % fleet->picture.view.count;
    KVR_CHECK(kvr_slot_pick(policy, &pick) == 0 && pick.verdict == KVR_VERDICT_PICK);
    if (!spill || !pick.affine)
        return pick.index;
    KVR_CHECK(kvr_slot_spill(spill, pick.index, &moved) == 0);
    KVR_CHECK(moved.verdict == KVR_VERDICT_PICK);
    return moved.index;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds of one decision, dispatch included (two increments and a ring of open requests). */
static double measure(struct fleet *fleet, struct kvr_slot *policy, struct kvr_slot *spill)
{
    double windows[WINDOWS];
    uint64_t now = 1000000000u;
    for (uint32_t i = 0; i < WARM_UP; i++)
        dispatch(fleet, decide(fleet, policy, spill, now += 500000));
    for (uint32_t w = 0; w < WINDOWS; w++) {
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < DECISIONS; i++)
            dispatch(fleet, decide(fleet, policy, spill, now += 500000));
        windows[w] = (double)(now_ns() - start) / DECISIONS;
    }
    qsort(windows, WINDOWS, sizeof *windows, compare);
    return windows[WINDOWS / 2];
}

static void read_file(const char *path, struct kvr_buffer *out)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    char chunk[4096];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        kvr_buffer_append(out, chunk, got);
    fclose(file);
}

static struct kvr_slot *load(struct fleet *fleet, enum kvr_script_kind kind, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/policies/%s%s.lua", KVR_SOURCE_DIR,
             kind == KVR_SCRIPT_SPILL ? "spill/" : "", name);
    struct kvr_buffer text = {0};
    read_file(path, &text);
    struct kvr_slot *slot = kvr_slot_create(kind, &fleet->picture, 1);
    struct kvr_error error;
    if (kvr_slot_load(slot, kvr_slice_of(name), kvr_slice_of(path),
                      kvr_slice_make(text.data, text.len), NULL, 0, &error) != 0) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        exit(1);
    }
    kvr_buffer_deinit(&text);
    return slot;
}

static void print(const char *figure, double value)
{
    printf("{\"bench\":\"policy\",\"figure\":\"%s\",\"value\":%.0f,\"unit\":\"ns\"}\n", figure,
           value);
}

/* The whole decision of prefix_affinity with load_min, at a fleet of that size. */
static void decision(uint32_t replicas, const char *figure)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, replicas);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, "prefix_affinity");
    struct kvr_slot *spill = load(&fleet, KVR_SCRIPT_SPILL, "load_min");
    print(figure, measure(&fleet, policy, spill));
    kvr_slot_destroy(policy);
    kvr_slot_destroy(spill);
    free_fleet(&fleet);
}

/* One policy's pick (or prefix_affinity's with a spill rule) at 8 replicas, without the filling. */
static void part(const char *policy_name, const char *spill_name, double without)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, 8);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, policy_name);
    struct kvr_slot *spill = spill_name ? load(&fleet, KVR_SCRIPT_SPILL, spill_name) : NULL;
    char figure[96];
    snprintf(figure, sizeof figure, "%s_%s_ns", spill_name ? "spill" : "pick",
             spill_name ? spill_name : policy_name);
    print(figure, measure(&fleet, policy, spill) - without);
    kvr_slot_destroy(policy);
    if (spill)
        kvr_slot_destroy(spill);
    free_fleet(&fleet);
}

static double fill_only(uint32_t replicas)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, replicas);
    double ns = measure(&fleet, NULL, NULL);
    free_fleet(&fleet);
    return ns;
}

static double prefix_affinity_alone(void)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, 8);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, "prefix_affinity");
    double ns = measure(&fleet, policy, NULL);
    kvr_slot_destroy(policy);
    free_fleet(&fleet);
    return ns;
}

int main(void)
{
    static const char *const policies[] = {
        "round_robin", "least_outstanding", "p2c", "session_affinity", "bounded_session_affinity",
        "prefix_hash", "prefix_affinity",
    };
    static const char *const spills[] = {"off", "load_min", "load_mean", "tokens", "hit_rate"};
    kvr_guard_start();
    decision(8, "decision_ns");
    decision(1, "decision_1_ns");
    decision(64, "decision_64_ns");
    double fill = fill_only(8);
    print("fill_ns", fill);
    print("fill_64_ns", fill_only(64));
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        part(policies[i], NULL, fill);
    double alone = prefix_affinity_alone();
    for (size_t i = 0; i < sizeof spills / sizeof *spills; i++)
        part("prefix_affinity", spills[i], alone);
    kvr_guard_stop();
    return 0;
}
