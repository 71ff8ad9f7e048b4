#include "unit.h"

#include "health.h"

#define S 1000000000u

struct fleet {
    struct kvr_replica_table table;
    struct kvr_health health;
};

static uint32_t add(struct fleet *fleet, const char *authority, uint64_t now)
{
    int slot = kvr_replica_add(
        &fleet->table,
        &(struct kvr_replica_spec){.authority = kvr_slice_of(authority), .rank = -1});
    assert_true(slot >= 0);
    kvr_health_added(&fleet->health, (uint32_t)slot, now);
    return (uint32_t)slot;
}

static int setup(void **state)
{
    struct fleet *fleet = calloc(1, sizeof *fleet);
    kvr_replica_table_init(&fleet->table, 8);
    kvr_health_init(&fleet->health, &(struct kvr_health_options){.ramp_ns = 10ull * S},
                    &fleet->table);
    *state = fleet;
    return 0;
}

static int teardown(void **state)
{
    struct fleet *fleet = *state;
    kvr_health_deinit(&fleet->health);
    kvr_replica_table_deinit(&fleet->table);
    free(fleet);
    return 0;
}

static enum kvr_operational state_of(const struct fleet *fleet, uint32_t slot)
{
    return fleet->table.slots[slot].operational;
}

/* One probe, due and answered at `now`. */
static void probe(struct fleet *fleet, uint32_t slot, enum kvr_probe_outcome outcome, uint64_t now)
{
    assert_int_equal(kvr_health_next_due(&fleet->health, now), slot);
    kvr_health_probed(&fleet->health, slot, outcome, now);
}

static void test_first_pass_admits_at_once(void **state)
{
    struct fleet *fleet = *state;
    uint32_t a = add(fleet, "a:1", S);
    assert_int_equal(state_of(fleet, a), KVR_DOWN);
    probe(fleet, a, KVR_PROBE_PASS, S);
    assert_int_equal(state_of(fleet, a), KVR_UP);
    assert_int_equal(kvr_health_next_due(&fleet->health, S + S / 2), KVR_NO_REPLICA);
}

static void test_two_failures_eject_two_passes_readmit_with_a_ramp(void **state)
{
    struct fleet *fleet = *state;
    uint32_t a = add(fleet, "a:1", 0);
    probe(fleet, a, KVR_PROBE_PASS, 0);
    uint32_t generation = fleet->table.slots[a].generation;
    probe(fleet, a, KVR_PROBE_FAIL, 1ull * S);
    assert_int_equal(state_of(fleet, a), KVR_SUSPECT);
    assert_true(kvr_replica_in_rotation(&fleet->table.slots[a]));
    probe(fleet, a, KVR_PROBE_FAIL, 2ull * S);
    assert_int_equal(state_of(fleet, a), KVR_DOWN);
    assert_int_not_equal(fleet->table.slots[a].generation, generation);
    probe(fleet, a, KVR_PROBE_PASS, 3ull * S);
    assert_int_equal(state_of(fleet, a), KVR_DOWN);
    probe(fleet, a, KVR_PROBE_PASS, 4ull * S);
    assert_int_equal(state_of(fleet, a), KVR_RAMPING);
    assert_float_equal(kvr_replica_ramp(&fleet->table.slots[a], 4ull * S), 0.1, 1e-9);
    assert_float_equal(kvr_replica_ramp(&fleet->table.slots[a], 9ull * S), 0.55, 1e-9);
    kvr_health_tick(&fleet->health, 13ull * S);
    assert_int_equal(state_of(fleet, a), KVR_RAMPING);
    kvr_health_tick(&fleet->health, 14ull * S);
    assert_int_equal(state_of(fleet, a), KVR_UP);
    assert_int_equal(fleet->table.slots[a].ejections, 1);
}

static void test_one_failure_then_a_pass_is_forgiven(void **state)
{
    struct fleet *fleet = *state;
    uint32_t a = add(fleet, "a:1", 0);
    probe(fleet, a, KVR_PROBE_PASS, 0);
    probe(fleet, a, KVR_PROBE_FAIL, 1ull * S);
    probe(fleet, a, KVR_PROBE_PASS, 2ull * S);
    assert_int_equal(state_of(fleet, a), KVR_UP);
    probe(fleet, a, KVR_PROBE_FAIL, 3ull * S);
    assert_int_equal(state_of(fleet, a), KVR_SUSPECT);
}

static void test_a_busy_replica_is_not_dead(void **state)
{
    struct fleet *fleet = *state;
    uint32_t a = add(fleet, "a:1", 0);
    probe(fleet, a, KVR_PROBE_PASS, 0);
    for (uint64_t t = 1; t < 6; t++) {
        kvr_health_bytes(&fleet->health, a, t * S - S / 4);
        probe(fleet, a, KVR_PROBE_TIMEOUT, t * S);
        assert_int_equal(state_of(fleet, a), KVR_UP);
    }
    /* Silent now: the same time-outs count. */
    probe(fleet, a, KVR_PROBE_TIMEOUT, 8ull * S);
    probe(fleet, a, KVR_PROBE_TIMEOUT, 9ull * S);
    assert_int_equal(state_of(fleet, a), KVR_DOWN);
}

static void test_a_broken_stream_ejects_at_once(void **state)
{
    struct fleet *fleet = *state;
    uint32_t a = add(fleet, "a:1", 0);
    probe(fleet, a, KVR_PROBE_PASS, 0);
    assert_true(kvr_health_broke(&fleet->health, a, S / 2));
    assert_false(kvr_health_broke(&fleet->health, a, S / 2));
    assert_int_equal(state_of(fleet, a), KVR_DOWN);
    probe(fleet, a, KVR_PROBE_PASS, 1ull * S);
    assert_int_equal(state_of(fleet, a), KVR_DOWN);
    probe(fleet, a, KVR_PROBE_PASS, 2ull * S);
    assert_int_equal(state_of(fleet, a), KVR_RAMPING);
}

static void test_every_member_is_probed_once_an_interval(void **state)
{
    struct fleet *fleet = *state;
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "r:%d", i + 1);
        add(fleet, name, 0);
    }
    kvr_replica_remove(&fleet->table, 2);
    unsigned probes[8] = {0};
    for (uint64_t t = 0; t < 10ull * S; t += S / 10) {
        uint32_t slot;
        while ((slot = kvr_health_next_due(&fleet->health, t)) != KVR_NO_REPLICA) {
            probes[slot]++;
            kvr_health_probed(&fleet->health, slot, KVR_PROBE_PASS, t);
        }
        assert_true(kvr_health_next_time(&fleet->health, t) <= t + S);
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(probes[i], i == 2 ? 0 : 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_first_pass_admits_at_once),
        TEST(test_two_failures_eject_two_passes_readmit_with_a_ramp),
        TEST(test_one_failure_then_a_pass_is_forgiven),
        TEST(test_a_busy_replica_is_not_dead),
        TEST(test_a_broken_stream_ejects_at_once),
        TEST(test_every_member_is_probed_once_an_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
