#include "unit.h"

#include "load.h"
#include "replica.h"

static struct kvr_replica_spec spec(const char *authority, int32_t rank)
{
    return (struct kvr_replica_spec){.authority = kvr_slice_of(authority), .rank = rank};
}

static void test_members_and_names(void **state)
{
    (void)state;
    struct kvr_replica_table table;
    kvr_replica_table_init(&table, 3);
    struct kvr_replica_spec a = spec("127.0.0.1:8001", -1);
    struct kvr_replica_spec b0 = spec("b:80", 0), b1 = spec("b:80", 12);
    assert_int_equal(kvr_replica_add(&table, &a), 0);
    assert_int_equal(kvr_replica_add(&table, &a), KVR_E_EXISTS);
    assert_int_equal(kvr_replica_add(&table, &b0), 1);
    assert_int_equal(kvr_replica_add(&table, &b1), 2);
    assert_string_equal(table.slots[2].name, "b:80#12");
    assert_int_equal(table.slots[2].authority_len, 4);
    assert_int_equal(kvr_replica_find(&table, kvr_slice_of("b:80#12")), 2);
    assert_int_equal(kvr_replica_find(&table, kvr_slice_of("b:80")), KVR_NO_REPLICA);
    struct kvr_replica_spec c = spec("c:1", -1);
    assert_int_equal(kvr_replica_add(&table, &c), KVR_E_LIMIT);
    kvr_replica_table_deinit(&table);
}

static void test_bad_specs_are_refused(void **state)
{
    (void)state;
    struct kvr_replica_table table;
    kvr_replica_table_init(&table, 3);
    const char *const bad[] = {"", "a b", "a\n", "a#1", "a\"", "\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kvr_replica_spec it = spec(bad[i], -1);
        assert_int_equal(kvr_replica_add(&table, &it), KVR_E_INVALID);
    }
    struct kvr_replica_spec heavy = spec("a:1", -1);
    heavy.weight = -1;
    assert_int_equal(kvr_replica_add(&table, &heavy), KVR_E_INVALID);
    assert_int_equal(
        kvr_replica_add(&table,
                        &(struct kvr_replica_spec){.authority = kvr_slice_of("a:1"), .rank = -1}),
        0);
    assert_int_equal(kvr_replica_set_weight(&table, 0, 0), KVR_E_INVALID);
    assert_int_equal(kvr_replica_set_weight(&table, 0, 2.5), 0);
    kvr_replica_table_deinit(&table);
}

static void test_a_held_slot_is_not_given_away(void **state)
{
    (void)state;
    struct kvr_replica_table table;
    kvr_replica_table_init(&table, 2);
    struct kvr_replica_spec a = spec("a:1", -1), b = spec("b:1", -1), c = spec("c:1", -1);
    kvr_replica_add(&table, &a);
    kvr_replica_add(&table, &b);
    uint32_t generation = table.slots[0].generation;
    table.slots[0].holds = 1;
    kvr_replica_remove(&table, 0);
    assert_int_equal(kvr_replica_find(&table, kvr_slice_of("a:1")), KVR_NO_REPLICA);
    assert_string_equal(table.slots[0].name, "a:1");
    assert_int_equal(kvr_replica_add(&table, &c), KVR_E_LIMIT);
    table.slots[0].holds = 0;
    assert_int_equal(kvr_replica_add(&table, &c), 0);
    assert_true(table.slots[0].generation > generation);
    kvr_replica_table_deinit(&table);
}

static void test_models(void **state)
{
    (void)state;
    struct kvr_replica_table table;
    kvr_replica_table_init(&table, 1);
    struct kvr_replica_spec a = spec("a:1", -1);
    kvr_replica_add(&table, &a);
    const struct kvr_replica *replica = &table.slots[0];
    uint64_t m = kvr_name_hash(kvr_slice_of("m")), x = kvr_name_hash(kvr_slice_of("x"));
    assert_true(kvr_replica_serves(replica, m)); /* until it has said what it serves */
    struct kvr_slice names[] = {kvr_slice_of("m"), kvr_slice_of("n")};
    uint64_t version = table.version;
    kvr_replica_set_models(&table, 0, names, 2);
    assert_true(table.version > version);
    assert_true(kvr_replica_serves(replica, m));
    assert_false(kvr_replica_serves(replica, x));
    assert_true(kvr_replica_serves(replica, 0)); /* a request that names no model */
    version = table.version;
    struct kvr_slice swapped[] = {names[1], names[0]};
    kvr_replica_set_models(&table, 0, swapped, 2);
    assert_int_equal(table.version, version); /* nothing new */
    kvr_replica_set_models(&table, 0, NULL, 0);
    assert_false(kvr_replica_serves(replica, m));
    kvr_replica_table_deinit(&table);
}

static void test_illegal_moves_die(void **state)
{
    (void)state;
    struct kvr_replica_table table;
    kvr_replica_table_init(&table, 1);
    struct kvr_replica_spec a = spec("a:1", -1);
    kvr_replica_add(&table, &a);
    assert_dies(kvr_replica_set_operational(&table, 0, KVR_SUSPECT, 1));
    kvr_replica_set_operational(&table, 0, KVR_UP, 1);
    assert_dies(kvr_replica_set_operational(&table, 0, KVR_RAMPING, 1));
    assert_dies(kvr_replica_set_administrative(&table, 5, KVR_OFF));
    kvr_replica_table_deinit(&table);
}

static struct kvr_engine_signals counters(double hits, double queries, double prompt)
{
    struct kvr_engine_signals signals = kvr_engine_signals_unread();
    signals.prefix_hit_tokens = hits;
    signals.prefix_query_tokens = queries;
    signals.prompt_tokens = prompt;
    return signals;
}

#define S 1000000000u

static void test_hit_rate_of_a_window(void **state)
{
    (void)state;
    struct kvr_load load;
    kvr_load_init(&load);
    struct kvr_engine_signals at = counters(1000, 10000, 5);
    assert_false(kvr_load_read_signals(&load, &at, 1ull * S, 10ull * S));
    assert_true(isnan(load.hit_rate));
    at = counters(1500, 11000, 6);
    kvr_load_read_signals(&load, &at, 2ull * S, 10ull * S);
    assert_true(isnan(load.hit_rate)); /* 1,000 tokens asked: too few to say */
    at = counters(3000, 14000, 7);
    kvr_load_read_signals(&load, &at, 3ull * S, 10ull * S);
    assert_float_equal(load.hit_rate, 0.5, 1e-9);
}

/* Engines that count no hits but say a rate of their own: SGLang, old vLLM. */
static void test_hit_rate_of_a_gauge(void **state)
{
    (void)state;
    struct kvr_load load;
    kvr_load_init(&load);
    struct kvr_engine_signals at = kvr_engine_signals_unread();
    at.prefix_hit_rate = 0.25;
    assert_false(kvr_load_read_signals(&load, &at, 1ull * S, 10ull * S));
    assert_float_equal(load.hit_rate, 0.25, 1e-9);
    at = kvr_engine_signals_unread();
    kvr_load_read_signals(&load, &at, 2ull * S, 10ull * S);
    assert_true(isnan(load.hit_rate));
    /* Where there are counters, they count. */
    at = counters(1000, 10000, 5);
    at.prefix_hit_rate = 0.9;
    kvr_load_read_signals(&load, &at, 3ull * S, 10ull * S);
    assert_true(isnan(load.hit_rate));
    at = counters(3000, 14000, 7);
    at.prefix_hit_rate = 0.9;
    kvr_load_read_signals(&load, &at, 4ull * S, 10ull * S);
    assert_float_equal(load.hit_rate, 0.5, 1e-9);
}

static void test_restart_is_seen(void **state)
{
    (void)state;
    struct kvr_load load;
    kvr_load_init(&load);
    struct kvr_engine_signals at = counters(1000, 10000, 500);
    kvr_load_read_signals(&load, &at, 1ull * S, 10ull * S);
    at = counters(0, 0, 10);
    assert_true(kvr_load_read_signals(&load, &at, 2ull * S, 10ull * S));
    assert_true(isnan(load.hit_rate));
    at.process_start_s = 100;
    assert_false(kvr_load_read_signals(&load, &at, 3ull * S, 10ull * S));
    at.process_start_s = 160;
    assert_true(kvr_load_read_signals(&load, &at, 4ull * S, 10ull * S));
    at = kvr_engine_signals_unread(); /* a page that says nothing is no restart */
    assert_false(kvr_load_read_signals(&load, &at, 5ull * S, 10ull * S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_and_names),
        cmocka_unit_test(test_bad_specs_are_refused),
        cmocka_unit_test(test_a_held_slot_is_not_given_away),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_illegal_moves_die),
        cmocka_unit_test(test_hit_rate_of_a_window),
        cmocka_unit_test(test_hit_rate_of_a_gauge),
        cmocka_unit_test(test_restart_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
