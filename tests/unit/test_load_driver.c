/* core/load: both drivers against peers in the same loop: who sends what when, bounds, and every
 * end of a run. */
#include "load_driver.h"
#include "net_fixture.h"

#define SSE                                                                                        \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"                        \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":1}}\n\n"          \
    "data: [DONE]\n\n"

struct world {
    struct net_fixture net;
    struct net_replica replica;
    struct kvr_workload_options workload;
    struct kvr_load_options load;
    struct kvr_load_target target;
    struct kvr_load_body body;
    struct kvr_load_driver driver;
    int ended;
};

static void begin(struct world *world, uint16_t status)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    world->replica.pages[0] = (struct net_page){.path = "/v1/chat/completions",
                                                .status = status,
                                                .body = SSE,
                                                .content_type = "text/event-stream"};
    net_replica_start(&world->replica, &world->net.loop, NULL);
    kvr_workload_defaults(&world->workload);
    world->workload.users = 3;
    world->workload.think_ms = 0;
    world->load = (struct kvr_load_options){
        .time_scale = 1,
        .in_flight_max = 100,
        .client = {.target = &world->target,
                   .path = "/v1/chat/completions",
                   .timeout_ns = 5000000000u},
    };
}

static void on_ended(void *context)
{
    struct world *world = context;
    world->ended++;
}

static void start(struct world *world)
{
    struct kvr_error error = {0};
    if (!world->target.authority[0])
        assert_int_equal(kvr_load_target_find(&world->target, &world->net.loop,
                                              world->replica.listener.address, &error),
                         0);
    assert_int_equal(
        kvr_load_body_init(&world->body, KVR_LOAD_CHAT, "m", true, kvr_slice_of(""), &error), 0);
    world->load.workload = kvr_workload_create(&world->workload, &error);
    assert_non_null(world->load.workload);
    world->load.body = &world->body;
    int rc = kvr_load_driver_start(&world->driver, &world->net.loop, &world->load, world, on_ended,
                                   &error);
    if (rc)
        fail_msg("%s", error.text);
}

static void end(struct world *world)
{
    assert_true(net_run_until(&world->net, &world->ended, 1, 5000));
    assert_int_equal(world->ended, 1);
    assert_int_equal(world->driver.client.in_flight, 0);
    assert_int_equal(world->driver.client.pool.count, 0);
    kvr_load_driver_deinit(&world->driver);
    kvr_load_body_deinit(&world->body);
    kvr_workload_destroy(world->load.workload);
    net_replica_stop(&world->net, &world->replica);
    net_fixture_deinit(&world->net);
}

/* ---- closed ---- */

static void test_closed_by_count(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    world.load.requests_max = 100;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    const struct kvr_load_report *report = &world.driver.report;
    assert_int_equal(report->started, 100);
    assert_int_equal(report->succeeded, 100);
    assert_int_equal(world.replica.pages[0].asked, 100);
    assert_int_equal(world.driver.client.pool.opened, 3); /* a connection a user, kept */
    assert_int_equal(report->in_flight_most, 3);
    assert_int_equal(report->gap.count, 97); /* all but the users' first */
    assert_true(kvr_sketch_quantile(&report->gap, 0.5) < 2e5);
    assert_int_equal(report->input_tokens, 1000);
    end(&world);
}

/* However short the run, each user sends once; and what began is waited for. */
static void test_closed_by_time(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    world.load.duration_ms = 0.001;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    assert_int_equal(world.driver.report.succeeded, 3);
    end(&world);
}

static void test_warmup(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    world.workload.think_ms = 10;
    world.load.duration_ms = 400;
    world.load.warmup_ms = 200;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    const struct kvr_load_report *report = &world.driver.report;
    assert_true(report->warmups >= 3 && report->measured >= 3);
    assert_int_equal(report->warmups + report->measured, report->started);
    assert_true(report->first_ms >= 200);
    assert_int_equal(report->ttft.count, report->measured);
    end(&world);
}

/* Think time is simulated: 1,000 ms at a scale of 100 are 10 of the wall's. */
static void test_think_time_scales(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    world.workload.users = 1;
    world.workload.think_ms = 1000;
    world.load.time_scale = 100;
    world.load.requests_max = 4;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    const struct kvr_load_report *report = &world.driver.report;
    assert_true(report->gap.least >= 1000000000u && report->gap.count == 3);
    assert_true(report->wall_s >= 0.03);
    end(&world);
}

/* A user that is refused a connection does not try again at once. */
static void test_nobody_listens(void **state)
{
    (void)state;
    struct world world;
    struct kvr_error error;
    begin(&world, 200);
    assert_int_equal(
        kvr_load_target_find(&world.target, &world.net.loop, "http://127.0.0.1:1/v1/", &error), 0);
    world.load.duration_ms = 250;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    const struct kvr_load_report *report = &world.driver.report;
    assert_int_equal(report->failures[KVR_LOAD_CONNECT], report->measured);
    assert_true(report->measured >= 3 && report->measured <= 9);
    assert_int_equal(report->body_hash, 0); /* nothing was sent */
    end(&world);
}

/* An answer with a status is an answer: the next turn goes out at once. */
static void test_refusals(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 429);
    world.load.requests_max = 30;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    assert_int_equal(world.driver.report.failures[KVR_LOAD_STATUS], 30);
    assert_int_equal(world.driver.report.statuses[0].status, 429);
    assert_int_equal(world.driver.report.statuses[0].count, 30);
    end(&world);
}

/* ---- open ---- */

static void be_open(struct world *world, double rate)
{
    world->workload.arrivals = KVR_ARRIVALS_RATE;
    world->workload.rate = rate;
}

static void test_open_keeps_its_times(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    be_open(&world, 100);
    world.load.requests_max = 20;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    const struct kvr_load_report *report = &world.driver.report;
    assert_int_equal(report->succeeded, 20);
    assert_int_equal(report->gap.count, 0); /* the closed driver's */
    assert_true(report->last_ms - report->first_ms > 189.9 &&
                report->last_ms - report->first_ms < 190.1);
    end(&world);
}

/* Nothing answers: what is over the bound is dropped and said so, and a stop cuts the rest. */
static void test_open_is_bounded(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    be_open(&world, 1000);
    world.replica.pages[0].silent = true;
    world.load.in_flight_max = 5;
    world.load.requests_max = 50;
    start(&world);
    while (world.driver.arrives)
        net_run_for(&world.net, 1);
    assert_int_equal(world.driver.client.in_flight, 5);
    assert_int_equal(world.driver.report.failures[KVR_LOAD_DROPPED], 45);
    assert_int_equal(world.driver.report.late.count, 0); /* what was not sent was not late */
    assert_int_equal(world.ended, 0);
    kvr_load_driver_stop(&world.driver);
    kvr_load_driver_stop(&world.driver); /* twice is once */
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    assert_int_equal(world.driver.report.failures[KVR_LOAD_CANCELLED], 5);
    assert_true(world.driver.report.interrupted);
    end(&world);
}

static void test_timeout(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 200);
    be_open(&world, 1000);
    world.replica.pages[0].silent = true;
    world.load.requests_max = 4;
    world.load.client.timeout_ns = 50000000;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    assert_int_equal(world.driver.report.failures[KVR_LOAD_TIMEOUT], 4);
    end(&world);
}

/* The end of the workload is an end. */
static void test_times_run_out(void **state)
{
    (void)state;
    static const double times_ms[] = {0, 1, 1, 5, 20};
    struct world world;
    begin(&world, 200);
    world.workload.arrivals = KVR_ARRIVALS_TIMES;
    world.workload.times_ms = times_ms;
    world.workload.times_len = 5;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    assert_int_equal(world.driver.report.succeeded, 5);
    assert_true(world.driver.report.last_ms == 20);
    end(&world);
}

/* ---- the same bytes ---- */

static uint64_t hash_of(double rate, uint64_t seed)
{
    struct world world;
    begin(&world, 200);
    if (rate > 0)
        be_open(&world, rate);
    else
        world.workload.users = 1;
    world.workload.seed = seed;
    world.load.requests_max = 12;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    assert_int_equal(world.driver.report.succeeded, 12);
    uint64_t hash = world.driver.report.body_hash;
    end(&world);
    return hash;
}

static void test_equal_seed_equal_bytes(void **state)
{
    (void)state;
    assert_true(hash_of(0, 1) == hash_of(0, 1));
    assert_true(hash_of(0, 1) != hash_of(0, 2));
    assert_true(hash_of(1000, 1) == hash_of(1000, 1)); /* also when answers overlap */
}

/* ---- rows ---- */

static void test_rows(void **state)
{
    (void)state;
    char path[] = "/tmp/kvroute-load-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "old\n", 4), 4);
    close(fd);
    struct world world;
    begin(&world, 200);
    world.load.requests_max = 25;
    world.load.rows = path;
    start(&world);
    assert_true(net_run_until(&world.net, &world.ended, 1, 5000));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    static char line[4096];
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        assert_non_null(strstr(line, "\"outcome\":\"success\""));
        lines++;
    }
    fclose(file);
    unlink(path);
    assert_int_equal(lines, 25);
    assert_int_equal(world.driver.report.rows_dropped, 0);
    end(&world);
}

static void test_rows_that_cannot_be(void **state)
{
    (void)state;
    struct world world;
    struct kvr_error error = {0};
    begin(&world, 200);
    world.load.rows = "/nowhere/at/all.jsonl";
    world.load.body = &world.body;
    world.load.workload = kvr_workload_create(&world.workload, &error);
    assert_int_equal(kvr_load_driver_start(&world.driver, &world.net.loop, &world.load, &world,
                                           on_ended, &error),
                     KVR_E_IO);
    assert_non_null(strstr(error.text, "/nowhere/at/all.jsonl"));
    kvr_load_driver_deinit(&world.driver);
    kvr_workload_destroy(world.load.workload);
    net_replica_stop(&world.net, &world.replica);
    net_fixture_deinit(&world.net);
}

/* ---- the endpoint ---- */

static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *url, *authority, *base;
    } good[] = {
        {"http://127.0.0.1:8080", "127.0.0.1:8080", ""},
        {"127.0.0.1:8080/", "127.0.0.1:8080", ""},
        {"HTTP://localhost", "localhost:80", ""},
        {"http://127.0.0.1:1/v1", "127.0.0.1:1", ""},
        {"http://127.0.0.1:1/a/b/v1/", "127.0.0.1:1", "/a/b"},
        {"http://[::1]:9", "[::1]:9", ""},
        {"http://[::1]", "[::1]:80", ""},
    };
    static const char *const bad[] = {"",
                                      "http://",
                                      "https://127.0.0.1:1",
                                      "http://127.0.0.1:99999",
                                      "http://a b:1",
                                      "http://user@127.0.0.1:1",
                                      "http://127.0.0.1:1/?x",
                                      "http://no.such.name.invalid:1"};
    struct net_fixture net;
    net_fixture_init(&net);
    struct kvr_load_target target;
    struct kvr_error error;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (kvr_load_target_find(&target, &net.loop, good[i].url, &error))
            fail_msg("%s", error.text);
        assert_string_equal(target.authority, good[i].authority);
        assert_string_equal(target.base, good[i].base);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(kvr_load_target_find(&target, &net.loop, bad[i], &error), KVR_E_INVALID);
    net_fixture_deinit(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_by_count),
        cmocka_unit_test(test_closed_by_time),
        cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_think_time_scales),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_open_keeps_its_times),
        cmocka_unit_test(test_open_is_bounded),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_times_run_out),
        cmocka_unit_test(test_equal_seed_equal_bytes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_that_cannot_be),
        cmocka_unit_test(test_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
