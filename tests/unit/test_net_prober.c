/* core/net/prober with the real health rules: what a replica answers, and what it then counts as.
 */
#include <sys/resource.h>

#include "net_fixture.h"
#include "prober.h"

#define MS ((uint64_t)1000000)

struct world {
    struct net_fixture net;
    struct kvr_replica_table table;
    struct kvr_health health;
    struct kvr_prober prober;
    struct net_targets targets;
    struct net_replica replica;
    int outcomes;
    int passes;
    int failures;
    int timeouts;
    int refusals;
    uint32_t last_slot;
    bool closes_at_outcome;
};

static void on_outcome(void *context, uint32_t slot, enum kvr_probe_outcome outcome, bool refused)
{
    struct world *world = context;
    world->outcomes++;
    world->passes += outcome == KVR_PROBE_PASS;
    world->failures += outcome == KVR_PROBE_FAIL;
    world->timeouts += outcome == KVR_PROBE_TIMEOUT;
    world->refusals += refused;
    world->last_slot = slot;
    kvr_health_probed(&world->health, slot, outcome, kvr_loop_now());
    if (refused)
        kvr_health_broke(&world->health, slot, kvr_loop_now());
    if (world->closes_at_outcome)
        kvr_prober_close(&world->prober);
}

static void begin_with(struct world *world, uint64_t timeout_ns)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    kvr_replica_table_init(&world->table, 8);
    struct kvr_health_options options = {.interval_ns = 120 * MS, .timeout_ns = timeout_ns};
    kvr_health_init(&world->health, &options, &world->table);
    world->replica.pages[0] = (struct net_page){.path = "/health", .status = 200};
    net_replica_start(&world->replica, &world->net.loop, NULL);
}

static void begin(struct world *world)
{
    begin_with(world, 90 * MS);
}

static uint32_t add(struct world *world, const char *authority, const char *address)
{
    struct kvr_replica_spec spec = {.authority = kvr_slice_of(authority), .rank = -1};
    int slot = kvr_replica_add(&world->table, &spec);
    assert_true(slot >= 0);
    net_targets_set(&world->targets, (uint32_t)slot, address);
    snprintf(world->targets.authority[slot], sizeof world->targets.authority[slot], "%s",
             authority);
    kvr_health_added(&world->health, (uint32_t)slot, kvr_loop_now());
    return (uint32_t)slot;
}

static void probe(struct world *world)
{
    struct kvr_target_source source = {&world->targets, net_on_target};
    struct kvr_prober_events events = {world, on_outcome};
    kvr_prober_start(&world->prober, &world->net.loop, &world->health, NULL, &source, &events);
}

static void end(struct world *world)
{
    kvr_prober_close(&world->prober);
    net_replica_stop(&world->net, &world->replica);
    net_fixture_deinit(&world->net);
    kvr_health_deinit(&world->health);
    kvr_replica_table_deinit(&world->table);
}

static enum kvr_operational state_of(const struct world *world, uint32_t slot)
{
    return world->table.slots[slot].operational;
}

static void wait_outcomes(struct world *world, int count)
{
    assert_true(net_run_until(&world->net, &world->outcomes, count, 3000));
}

static void carries_host_and_key_of_the_replica(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    world.replica.key = "sk-replica";
    world.replica.authority = "engine-a:8000";
    uint32_t slot = add(&world, "engine-a:8000", world.replica.listener.address);
    world.targets.key[slot] = "sk-replica";
    probe(&world);
    uint64_t from = kvr_loop_now();
    uint64_t ran_from = world.net.ran_ns;
    wait_outcomes(&world, 1);
    assert_int_equal(world.passes, 1);
    assert_int_equal(state_of(&world, slot), KVR_UP);
    wait_outcomes(&world, 5);
    assert_true(kvr_loop_now() - from >= 440 * MS); /* one an interval */
    assert_true(world.net.ran_ns - ran_from <= 880 * MS);
    assert_int_equal(world.passes, 5);
    assert_int_equal(world.replica.refused, 0);

    world.targets.key[slot] = "sk-other";
    wait_outcomes(&world, 7);
    assert_int_equal(world.failures, 2);
    assert_int_equal(world.refusals, 0);
    assert_int_equal(state_of(&world, slot), KVR_DOWN);
    end(&world);
}

static void statuses_eject_and_readmit(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    uint32_t slot = add(&world, "a:1", world.replica.listener.address);
    probe(&world);
    wait_outcomes(&world, 1);
    world.replica.pages[0].status = 503;
    wait_outcomes(&world, 2);
    assert_int_equal(state_of(&world, slot), KVR_SUSPECT);
    wait_outcomes(&world, 3);
    assert_int_equal(state_of(&world, slot), KVR_DOWN);
    world.replica.pages[0].status = 204;
    wait_outcomes(&world, 4);
    assert_int_equal(state_of(&world, slot), KVR_DOWN);
    wait_outcomes(&world, 5);
    assert_int_equal(state_of(&world, slot), KVR_UP);
    world.replica.pages[0].status = 302;
    wait_outcomes(&world, 6);
    assert_int_equal(world.failures, 3);
    end(&world);
}

static bool try_silence(void)
{
    struct world world;
    begin(&world);
    uint32_t slot = add(&world, "a:1", world.replica.listener.address);
    probe(&world);
    wait_outcomes(&world, 1);
    world.replica.pages[0].silent = true;
    for (int i = 2; i <= 5; i++) {
        net_run_for(&world.net, 20);
        kvr_health_bytes(&world.health, slot, kvr_loop_now());
        for (uint64_t at_ns = uv_hrtime(); world.outcomes < i;) {
            kvr_health_bytes(&world.health, slot, kvr_loop_now());
            net_turn(&world.net, &at_ns);
        }
    }
    bool calm = world.net.hold_ups == 0;
    if (calm) {
        assert_int_equal(world.timeouts, 4);
        assert_int_equal(state_of(&world, slot), KVR_UP);
    }
    net_run_for(&world.net, 120);
    wait_outcomes(&world, world.outcomes + 2);
    assert_int_equal(state_of(&world, slot), KVR_DOWN);
    assert_int_equal(world.failures, 0);
    end(&world);
    return calm;
}

static void silence_is_a_timeout_and_flowing_bytes_excuse_it(void **state)
{
    (void)state;
    net_when_calm(try_silence);
}

static void nobody_listens(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    char address[64];
    snprintf(address, sizeof address, "%s", world.replica.listener.address);
    uint32_t slot = add(&world, "a:1", address);
    probe(&world);
    wait_outcomes(&world, 1);
    net_replica_stop(&world.net, &world.replica);
    int before = world.outcomes;
    wait_outcomes(&world, before + 1);
    assert_int_equal(world.refusals, 1);
    assert_int_equal(state_of(&world, slot), KVR_DOWN);
    /* Back: two passes in a row. */
    struct net_page page = world.replica.pages[0];
    memset(&world.replica, 0, sizeof world.replica);
    world.replica.pages[0] = page;
    net_replica_start(&world.replica, &world.net.loop, address);
    int passes = world.passes;
    assert_true(net_run_until(&world.net, &world.passes, passes + 2, 1000));
    assert_int_equal(state_of(&world, slot), KVR_UP);
    end(&world);
}

static void unknown_address_fails(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    uint32_t slot = add(&world, "no.such.name:1", "127.0.0.1:1");
    world.targets.unknown[slot] = true;
    probe(&world);
    wait_outcomes(&world, 3);
    assert_int_equal(world.failures, 3);
    assert_int_equal(world.refusals, 0);
    assert_int_equal(state_of(&world, slot), KVR_DOWN);
    end(&world);
}

static void outcome_of_a_removed_replica_is_dropped(void **state)
{
    (void)state;
    struct world world;
    begin_with(&world, 250 * MS);
    world.replica.pages[0].silent = true;
    uint32_t slot = add(&world, "a:1", world.replica.listener.address);
    probe(&world);
    assert_true(net_run_until(&world.net, &world.replica.pages[0].asked, 1, 1000));
    kvr_replica_remove(&world.table, slot);
    kvr_prober_wake(&world.prober);
    net_run_for(&world.net, 400);
    assert_int_equal(world.outcomes, 0);
    assert_int_equal(world.prober.counters.dropped, 1);
    assert_int_equal(world.prober.counters.sent, 1);
    end(&world);
}

static void outcome_never_reaches_the_slots_next_holder(void **state)
{
    (void)state;
    struct world world;
    begin_with(&world, 20000 * MS);
    struct net_replica dead = {.pages = {{.path = "/health", .silent = true}}};
    net_replica_start(&dead, &world.net.loop, NULL);
    uint32_t slot = add(&world, "a:1", dead.listener.address);
    probe(&world);
    assert_true(net_run_until(&world.net, &dead.pages[0].asked, 1, 1000));
    kvr_replica_remove(&world.table, slot);
    assert_int_equal(add(&world, "b:1", world.replica.listener.address), slot);
    kvr_prober_wake(&world.prober);
    wait_outcomes(&world, 4);
    assert_int_equal(world.passes, 4);
    assert_int_equal(dead.pages[0].asked, 1);
    net_replica_stop(&world.net, &dead);
    end(&world);
}

static void another_generation_is_probed_anew(void **state)
{
    (void)state;
    struct world world;
    begin_with(&world, 600 * MS);
    uint32_t slot = add(&world, "a:1", world.replica.listener.address);
    probe(&world);
    wait_outcomes(&world, 1);
    world.replica.pages[0].silent = true;
    assert_true(net_run_until(&world.net, &world.replica.pages[0].asked, 2, 1000));
    /* A request saw it break while the probe is out; a new process answers. */
    kvr_health_broke(&world.health, slot, kvr_loop_now());
    world.replica.pages[0].silent = false;
    wait_outcomes(&world, 3);
    assert_int_equal(world.prober.counters.renewed, 1);
    assert_int_equal(world.timeouts, 0);
    assert_int_equal(world.passes, 3);
    assert_int_equal(state_of(&world, slot), KVR_UP);
    end(&world);
}

static void want_of_our_own_ejects_nobody(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    uint32_t slot = add(&world, "a:1", world.replica.listener.address);
    probe(&world);
    wait_outcomes(&world, 2);
    net_run_for(&world.net, 10);
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = {0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    uint64_t from = kvr_loop_now();
    net_run_for(&world.net, 400);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(world.outcomes, 2);
    assert_in_range(world.prober.counters.unsent, 1, 2 + (kvr_loop_now() - from) / (120 * MS));
    assert_int_equal(state_of(&world, slot), KVR_UP);
    wait_outcomes(&world, 4);
    assert_int_equal(world.passes, 4);
    end(&world);
}

static void closes_at_any_time(void **state)
{
    (void)state;
    for (unsigned ms = 0; ms <= 150; ms += 15) {
        struct world world;
        begin(&world);
        world.replica.pages[0].silent = ms % 2;
        add(&world, "a:1", world.replica.listener.address);
        add(&world, "b:1", world.replica.listener.address);
        probe(&world);
        if (ms)
            net_run_for(&world.net, ms);
        end(&world);
    }
    struct world world;
    begin(&world);
    world.closes_at_outcome = true;
    world.targets.unknown[0] = true;
    add(&world, "a:1", "127.0.0.1:1");
    add(&world, "b:1", world.replica.listener.address);
    probe(&world);
    net_run_for(&world.net, 100);
    assert_int_equal(world.outcomes, 1);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_host_and_key_of_the_replica),
        cmocka_unit_test(statuses_eject_and_readmit),
        cmocka_unit_test(silence_is_a_timeout_and_flowing_bytes_excuse_it),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(unknown_address_fails),
        cmocka_unit_test(outcome_of_a_removed_replica_is_dropped),
        cmocka_unit_test(outcome_never_reaches_the_slots_next_holder),
        cmocka_unit_test(another_generation_is_probed_anew),
        cmocka_unit_test(want_of_our_own_ejects_nobody),
        cmocka_unit_test(closes_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
