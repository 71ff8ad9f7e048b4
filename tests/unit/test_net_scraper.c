/* core/net/scraper, and with it the rules of core/net/rounds: who is asked when. */
#include <math.h>

#include "net_fixture.h"
#include "scraper.h"

#define MS ((uint64_t)1000000)

struct world {
    struct net_fixture net;
    struct kvr_replica_table table;
    struct kvr_scraper scraper;
    struct net_targets targets;
    struct net_replica replica;
    int readings;
    int readings_of[8];
    struct kvr_engine_signals last;
    uint64_t last_ns[8];
    bool closes;
};

static void on_signals(void *context, uint32_t slot, const struct kvr_engine_signals *signals)
{
    struct world *world = context;
    world->readings++;
    world->readings_of[slot]++;
    world->last = *signals;
    world->last_ns[slot] = kvr_loop_now();
    if (world->closes)
        kvr_scraper_close(&world->scraper);
}

static const char vllm_page[] = "vllm:num_requests_running 31\nvllm:kv_cache_usage_perc 0.5\n";

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    kvr_replica_table_init(&world->table, 8);
    world->replica.pages[0] =
        (struct net_page){.path = "/metrics", .status = 200, .body = vllm_page};
    net_replica_start(&world->replica, &world->net.loop, NULL);
}

static uint32_t add(struct world *world, const char *authority, const char *address,
                    enum kvr_operational state)
{
    struct kvr_replica_spec spec = {.authority = kvr_slice_of(authority), .rank = -1};
    int slot = kvr_replica_add(&world->table, &spec);
    assert_true(slot >= 0);
    net_targets_set(&world->targets, (uint32_t)slot, address);
    if (state != KVR_DOWN)
        kvr_replica_set_operational(&world->table, (uint32_t)slot, state, kvr_loop_now());
    return (uint32_t)slot;
}

static void scrape(struct world *world, uint64_t interval_ns)
{
    struct kvr_scraper_options options = {.interval_ns = interval_ns};
    struct kvr_target_source source = {&world->targets, net_on_target};
    struct kvr_scraper_events events = {.context = world, .on_signals = on_signals};
    kvr_scraper_start(&world->scraper, &world->net.loop, &world->table, &options, &source, &events);
}

static void end(struct world *world)
{
    kvr_scraper_close(&world->scraper);
    net_replica_stop(&world->net, &world->replica);
    net_fixture_deinit(&world->net);
    kvr_replica_table_deinit(&world->table);
}

static void reads_at_the_interval_with_the_replicas_key(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    world.replica.key = "sk-1";
    world.replica.authority = "a:1";
    uint32_t slot = add(&world, "a:1", world.replica.listener.address, KVR_UP);
    world.targets.key[slot] = "sk-1";
    snprintf(world.targets.authority[slot], sizeof world.targets.authority[slot], "a:1");
    scrape(&world, 50 * MS);
    assert_true(net_run_until(&world.net, &world.readings, 1, 1000));
    assert_true(world.last.running == 31);
    assert_true(world.last.kv_usage == 0.5);
    assert_true(isnan(world.last.waiting));
    uint64_t from = kvr_loop_now();
    uint64_t ran_from = world.net.ran_ns;
    assert_true(net_run_until(&world.net, &world.readings, 9, 2000));
    assert_true(kvr_loop_now() - from >= 350 * MS);
    assert_true(world.net.ran_ns - ran_from <= 700 * MS);
    assert_int_equal(world.replica.refused, 0);
    assert_int_equal(world.scraper.rounds.counters.failed, 0);
    end(&world);
}

static bool try_spread(void)
{
    struct world world;
    begin(&world);
    char name[16];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "r%d:1", i);
        add(&world, name, world.replica.listener.address, KVR_UP);
    }
    scrape(&world, 400 * MS);
    assert_true(net_run_until(&world.net, &world.readings, 16, 3000));
    uint64_t first = UINT64_MAX, last = 0;
    bool calm = world.net.hold_ups == 0;
    for (int i = 0; calm && i < 8; i++) {
        assert_int_equal(world.readings_of[i], 2);
        first = world.last_ns[i] < first ? world.last_ns[i] : first;
        last = world.last_ns[i] > last ? world.last_ns[i] : last;
    }
    if (calm)
        assert_in_range(last - first, 100 * MS, 450 * MS);
    end(&world);
    return calm;
}

static void replicas_are_spread_over_the_interval(void **state)
{
    (void)state;
    net_when_calm(try_spread);
}

static void absent_pages_are_asked_for_ever_more_rarely(void **state)
{
    (void)state;
    static const struct {
        uint16_t status;
        const char *body;
    } cases[] = {{404, ""}, {501, "{\"error\":{}}"}, {200, "<html>login</html>"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world world;
        begin(&world);
        world.replica.pages[0].status = cases[i].status;
        world.replica.pages[0].body = cases[i].body;
        add(&world, "a:1", world.replica.listener.address, KVR_UP);
        scrape(&world, 20 * MS);
        /* The first within 20 ms, then 40, 80, 160 later, and not sooner. */
        assert_true(net_run_until(&world.net, &world.replica.pages[0].asked, 1, 1000));
        uint64_t from = kvr_loop_now();
        assert_true(net_run_until(&world.net, &world.replica.pages[0].asked, 4, 1000));
        assert_true(kvr_loop_now() - from >= 270 * MS);
        net_run_for(&world.net, 20);
        assert_int_equal(world.scraper.rounds.counters.absent, world.replica.pages[0].asked);
        assert_int_equal(world.readings, 0);
        assert_int_equal(world.scraper.unread,
                         cases[i].status == 200 ? world.replica.pages[0].asked : 0);
        end(&world);
    }
}

static void failures_are_counted_and_asked_again(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    world.replica.pages[0].status = 500;
    uint32_t slot = add(&world, "a:1", world.replica.listener.address, KVR_UP);
    scrape(&world, 40 * MS);
    int *asked = &world.replica.pages[0].asked;
    assert_true(net_run_until(&world.net, asked, 3, 1000));
    world.replica.pages[0].silent = true;
    assert_true(net_run_until(&world.net, asked, 6, 1500));
    net_run_for(&world.net, 50);
    assert_true(world.scraper.rounds.counters.timed_out >= 2);
    assert_true(world.scraper.rounds.counters.failed >= 5);
    world.targets.unknown[slot] = true;
    uint64_t failed = world.scraper.rounds.counters.failed;
    net_run_for(&world.net, 200);
    assert_true(world.scraper.rounds.counters.failed >= failed + 2);
    world.targets.unknown[slot] = false;
    world.replica.pages[0].silent = false;
    world.replica.pages[0].status = 200;
    assert_true(net_run_until(&world.net, &world.readings, 1, 1000));
    end(&world);
}

static void down_replicas_are_left_alone(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    uint32_t slot = add(&world, "a:1", world.replica.listener.address, KVR_DOWN);
    scrape(&world, 30 * MS);
    net_run_for(&world.net, 150);
    assert_int_equal(world.replica.pages[0].asked, 0);
    kvr_replica_set_operational(&world.table, slot, KVR_UP, kvr_loop_now());
    kvr_scraper_wake(&world.scraper);
    assert_true(net_run_until(&world.net, &world.readings, 2, 200));
    kvr_replica_set_operational(&world.table, slot, KVR_DOWN, kvr_loop_now());
    kvr_scraper_wake(&world.scraper);
    int asked = world.replica.pages[0].asked;
    net_run_for(&world.net, 150);
    assert_int_equal(world.replica.pages[0].asked, asked);
    end(&world);
}

static bool try_another_generation(void)
{
    struct world world;
    begin(&world);
    world.replica.pages[0].silent = true;
    uint32_t slot = add(&world, "a:1", world.replica.listener.address, KVR_UP);
    scrape(&world, 200 * MS);
    assert_true(net_run_until(&world.net, &world.replica.pages[0].asked, 1, 1000));
    kvr_replica_restarted(&world.table, slot);
    net_run_for(&world.net, 190);
    bool calm = world.net.hold_ups == 0;
    assert_int_equal(world.readings, 0);
    if (calm)
        assert_int_equal(world.scraper.rounds.counters.timed_out, 0);
    world.replica.pages[0].silent = false;
    assert_true(net_run_until(&world.net, &world.readings, 1, 1000));
    /* Removed for good: nobody is asked any more. */
    kvr_replica_remove(&world.table, slot);
    kvr_scraper_wake(&world.scraper);
    int asked = world.replica.pages[0].asked;
    net_run_for(&world.net, 300);
    assert_int_equal(world.replica.pages[0].asked, asked);
    end(&world);
    return calm;
}

static void answers_of_another_generation_are_dropped(void **state)
{
    (void)state;
    net_when_calm(try_another_generation);
}

static void a_start_time_alone_is_read(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    world.replica.pages[0].body = "process_start_time_seconds 1.7e9\n";
    add(&world, "a:1", world.replica.listener.address, KVR_UP);
    scrape(&world, 30 * MS);
    assert_true(net_run_until(&world.net, &world.readings, 2, 1000));
    assert_true(world.last.process_start_s == 1.7e9);
    assert_true(isnan(world.last.running));
    end(&world);
}

static void closes_at_any_time(void **state)
{
    (void)state;
    for (unsigned ms = 0; ms <= 60; ms += 6) {
        struct world world;
        begin(&world);
        world.replica.pages[0].silent = ms % 4;
        add(&world, "a:1", world.replica.listener.address, KVR_UP);
        add(&world, "b:1", world.replica.listener.address, KVR_UP);
        scrape(&world, 20 * MS);
        if (ms)
            net_run_for(&world.net, ms);
        end(&world);
    }
    struct world world;
    begin(&world);
    world.closes = true;
    add(&world, "a:1", world.replica.listener.address, KVR_UP);
    add(&world, "b:1", world.replica.listener.address, KVR_UP);
    scrape(&world, 20 * MS);
    net_run_for(&world.net, 100);
    assert_int_equal(world.readings, 1);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_at_the_interval_with_the_replicas_key),
        cmocka_unit_test(replicas_are_spread_over_the_interval),
        cmocka_unit_test(absent_pages_are_asked_for_ever_more_rarely),
        cmocka_unit_test(failures_are_counted_and_asked_again),
        cmocka_unit_test(down_replicas_are_left_alone),
        cmocka_unit_test(answers_of_another_generation_are_dropped),
        cmocka_unit_test(a_start_time_alone_is_read),
        cmocka_unit_test(closes_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
