/* core/sim: deployments drawn at random, with faults at random times, run with every invariant
 * checked after every event; and each run again, cut into slices, to the same hash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rng.h"
#include "sim_fixture.h"

#define RUNS        100u
#define CHANGES_MAX 6u

static const char *const policies[] = {
    "round_robin",
    "least_outstanding",
    "session_affinity",
    "prefix_affinity",
    "prefix_hash",
    "bounded_session_affinity",
    "p2c",
};
static const char *const spills[] = {"off", "load_min", "load_mean", "tokens"};

static bool coin(struct kvr_rng *rng, uint32_t one_in)
{
    return kvr_rng_below(rng, one_in) == 0;
}

static uint32_t between(struct kvr_rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)kvr_rng_below(rng, high - low + 1);
}

struct draw {
    struct kvr_sim_options options;
    struct kvr_sim_change changes[CHANGES_MAX];
    double slowdowns[8];
    const char *policy, *spill;
};

static void draw_fleet(struct kvr_rng *rng, struct draw *draw)
{
    struct kvr_sim_options *o = &draw->options;
    o->replicas = between(rng, 1, 6);
    o->profile.blocks = between(rng, 450, 3000); /* small: preemption and eviction */
    o->profile.max_num_seqs = between(rng, 1, 40);
    o->profile.max_num_batched_tokens = between(rng, 64, 4096);
    o->profile.cache_generated = coin(rng, 2);
    o->profile.jitter = coin(rng, 2) ? 0 : 0.05;
    o->profile.startup_ms = between(rng, 0, 5000);
    o->max_waiting = coin(rng, 4) ? between(rng, 1, 5) : 0;
    o->kv_events = coin(rng, 4);
    for (uint32_t i = 0; i < o->replicas; i++)
        draw->slowdowns[i] = coin(rng, 5) ? 2.5 : 1;
    o->slowdowns = draw->slowdowns;
    o->changes = draw->changes;
    o->changes_len = coin(rng, 3) ? 0 : between(rng, 1, CHANGES_MAX);
    for (uint32_t i = 0; i < o->changes_len; i++)
        draw->changes[i] = (struct kvr_sim_change){
            .at_ms = between(rng, 0, 16000),
            .value = 0.5 + kvr_rng_double(rng) * 3,
            .replica = between(rng, 0, o->replicas - 1),
            .kind = between(rng, KVR_SIM_RESTART, KVR_SIM_RESTORE),
        };
}

static void draw_router(struct kvr_rng *rng, struct draw *draw)
{
    struct kvr_sim_options *o = &draw->options;
    draw->policy = policies[kvr_rng_below(rng, sizeof policies / sizeof policies[0])];
    draw->spill = spills[kvr_rng_below(rng, sizeof spills / sizeof spills[0])];
    o->network_ms = coin(rng, 2) ? 0 : kvr_rng_double(rng) * 5;
    o->router_ms = coin(rng, 2) ? 0 : kvr_rng_double(rng);
    o->decision_ms = coin(rng, 3) ? kvr_rng_double(rng) * 40 : 0;
    o->decision_sigma = 0.3;
    o->scrape_ms = coin(rng, 3) ? 0 : between(rng, 50, 2000);
    o->index_ttl_ms = coin(rng, 3) ? -1.0 : between(rng, 1000, 60000);
    o->index_nodes = coin(rng, 2) ? 0 : between(rng, 50, 5000);
    o->index_block_bytes = coin(rng, 4) ? 128 : 0;
    o->index_wide_after = coin(rng, 4) ? 2000 : 0;
    o->index_replies = coin(rng, 3);
    o->moves = between(rng, 0, 3);
    o->capacity = coin(rng, 3) ? between(rng, 1, 6) : 0;
    o->queue_max = coin(rng, 2) ? between(rng, 1, 30) : 0;
    o->queue_deadline_ms = between(rng, 100, 5000);
    o->queue_shortest = coin(rng, 2);
    o->health_ramp_ms = coin(rng, 2) ? 0 : 3000;
    o->requests_max = between(rng, 8, 60);
    o->rows = coin(rng, 3);
    o->row_blocks = o->rows;
}

static void draw_workload(struct kvr_rng *rng, struct draw *draw)
{
    struct kvr_workload_options *w = &draw->options.workload;
    w->kind = coin(rng, 3) ? KVR_WORKLOAD_KEYS : KVR_WORKLOAD_SESSIONS;
    w->arrivals = coin(rng, 2) ? KVR_ARRIVALS_CLOSED : KVR_ARRIVALS_RATE;
    w->users = between(rng, 1, 30);
    w->think_ms = between(rng, 0, 500);
    w->think_cv = coin(rng, 2);
    w->rate = between(rng, 1, 40);
    w->gap_cv = kvr_rng_double(rng) * 2;
    w->sessions = between(rng, 1, 60);
    w->turns = between(rng, 1, 4);
    w->user_bytes = between(rng, 1, 2500);
    w->assistant_bytes = between(rng, 0, 300);
    w->system_bytes = between(rng, 0, 800);
    w->max_tokens = between(rng, 1, 80);
    w->template_tokens = between(rng, 0, 900);
    w->variant_tokens = between(rng, 0, 900);
    w->unique_tokens = between(rng, 2, 100);
    w->output_tokens = between(rng, 1, 60);
    w->output_cv = coin(rng, 2) ? 0 : 1.2;
    w->turns_max = coin(rng, 3) ? between(rng, 1, 9) : 0;
}

static struct kvr_sim *make(const struct draw *draw)
{
    struct kvr_error error = {0};
    struct kvr_sim *sim = kvr_sim_create(&draw->options, &error);
    if (!sim)
        fail_msg("%s", error.text);
    load_script(sim, "policy", "", draw->policy);
    load_script(sim, "spill", "spill/", draw->spill);
    return sim;
}

static struct kvr_sim_result finish(struct kvr_sim *sim, uint64_t slice)
{
    struct kvr_sim_result result;
    while (kvr_sim_run(sim, UINT64_MAX, slice))
        continue;
    kvr_sim_result(sim, &result);
    assert_true(result.sent == result.ended);
    assert_true(result.success + result.failed + result.dropped + result.unfinished ==
                result.requests);
    kvr_sim_destroy(sim);
    return result;
}

static void test_random_deployments(void **state)
{
    (void)state;
    double success = 0, failed = 0, dropped = 0, moved = 0, preempted = 0, unfinished = 0;
    double timed_out = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct kvr_rng rng;
        static struct draw draw;
        kvr_rng_init(&rng, seed);
        kvr_sim_defaults(&draw.options);
        draw_fleet(&rng, &draw);
        draw_router(&rng, &draw);
        draw_workload(&rng, &draw);
        draw.options.seed = seed;
        draw.options.warmup_ms = 1000;
        draw.options.duration_ms = 15000;
        draw.options.requests = coin(&rng, 2) ? 0 : between(&rng, 1, 80);
        draw.options.drain_ms = coin(&rng, 2) ? 0 : between(&rng, 1, 2000);
        draw.options.timeout_ms = coin(&rng, 3) ? between(&rng, 20, 3000) : 0;
        draw.options.verify = 1;
        struct kvr_sim_result whole = finish(make(&draw), 0);
        draw.options.verify = 0;
        struct kvr_sim_result sliced = finish(make(&draw), 1 + kvr_rng_below(&rng, 50));
        assert_true(whole.hash == sliced.hash && whole.events == sliced.events);
        success += whole.success;
        failed += whole.failed;
        dropped += whole.dropped;
        moved += whole.moved;
        preempted += whole.preemptions;
        unfinished += whole.unfinished;
        timed_out += whole.timed_out;
    }
    /* All of it has happened. */
    assert_true(success > 1000 && failed > 20 && dropped > 100 && moved > 20);
    assert_true(preempted > 5 && unfinished > 20 && timed_out > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_deployments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
