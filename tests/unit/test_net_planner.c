/* core/net/planner: plans beside the loop, whatever happens to them while they are made. */
#include "net_fixture.h"

#include <unistd.h>

#include "planner.h"
#include "rng.h"

#define S 1000000000u

struct fixture {
    struct net_fixture net;
    struct kvr_router router;
    struct kvr_planner planner;
    int closed;
    int done; /* calls of on_done */
    int failed;
    char error[KVR_ERROR_TEXT_MAX];
    char file[64];
};

static struct fixture f;

static void on_done(void *context, const struct kvr_error *error)
{
    (void)context;
    f.done++;
    f.failed += error != NULL;
    snprintf(f.error, sizeof f.error, "%s", error ? error->text : "");
}

static void on_closed(void *context)
{
    (void)context;
    f.closed = 1;
}

static void add(const char *name)
{
    struct kvr_replica_spec spec = {.authority = kvr_slice_of(name), .rank = -1};
    assert_true(kvr_router_add_replica(&f.router, 0, &spec, NULL) >= 0);
}

/* Replicas a:1 and b:1; so many keys in the window, of which 1 comes most often. */
static void start(uint32_t keys, uint64_t interval_ns)
{
    memset(&f, 0, sizeof f);
    net_fixture_init(&f.net);
    kvr_router_init(&f.router, &(struct kvr_router_options){.replicas_max = 4});
    add("a:1");
    add("b:1");
    for (uint32_t key = 1; key <= keys; key++)
        kvr_window_add(&f.router.keys, kvr_loop_now(), key, 0, key == 1 ? 1000 : 1);
    kvr_planner_start(&f.planner, &f.net.loop, &f.router,
                      &(struct kvr_planner_options){.interval_ns = interval_ns});
}

static void stop(void)
{
    kvr_planner_close(&f.planner, NULL, on_closed);
    assert_true(net_run_until(&f.net, &f.closed, 1, 5000));
    net_fixture_deinit(&f.net);
    kvr_router_deinit(&f.router);
    if (*f.file)
        unlink(f.file);
}

static void ask(const char *file)
{
    struct kvr_planner_wish wish = {.context = &f, .on_done = on_done};
    snprintf(wish.file, sizeof wish.file, "%s", file);
    assert_int_equal(kvr_planner_ask(&f.planner, &wish, NULL), KVR_OK);
}

static void wait_done(int count)
{
    assert_true(net_run_until(&f.net, &f.done, count, 5000));
}

/* Lets the loop run until the planner is in that phase. */
static void reach(enum kvr_planner_phase phase)
{
    uint64_t at_ns = uv_hrtime();
    for (int turn = 0; f.planner.phase != phase; turn++) {
        assert_true(turn < 2000);
        net_turn(&f.net, &at_ns);
    }
}

static const char *write_plan(const char *lines)
{
    strcpy(f.file, "/tmp/kvroute-test-plan-XXXXXX");
    int descriptor = mkstemp(f.file);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    assert_non_null(file);
    uint32_t count = 0;
    for (const char *at = lines; *at; at++)
        count += *at == '\n';
    fprintf(file, "# kvroute plan 2, %u keys\nkey,rate,destinations\n%s", count, lines);
    fclose(file);
    return f.file;
}

/* A plan is on its way, as far as that. One of a file is in MAKING at once. */
static void ask_until(enum kvr_planner_phase phase)
{
    if (phase == KVR_PLANNER_MAKING)
        ask(write_plan("k,1,a:1\n"));
    else if (phase != KVR_PLANNER_IDLE)
        ask("");
    if (phase != KVR_PLANNER_IDLE)
        reach(phase);
}

static void test_is_made_of_what_was_counted(void **state)
{
    (void)state;
    start(5000, 0); /* several pieces */
    ask("");
    wait_done(1);
    assert_int_equal(f.failed, 0);
    assert_int_equal(f.router.plan->admitted, 5000);
    assert_int_equal(f.planner.last.result, KVR_PLANNER_INSTALLED);
    assert_int_equal(f.planner.last.change.added, 5000);
    const struct kvr_plan_census *census = &f.planner.origin.census;
    assert_int_equal(census->placed[0] + census->placed[1], 5000);
    assert_int_equal(census->models_all, 1);
    assert_int_equal(census->models[0].keys, 5000);
    assert_int_equal(census->models[0].destinations, 2);
    assert_true(f.planner.origin.window_s > 0 && !*f.planner.origin.file);
    assert_int_equal(f.planner.counters.added, 5000);
    stop();
}

static void test_comes_each_interval(void **state)
{
    (void)state;
    start(3, 10000000);
    for (int i = 0; i < 100 && f.planner.counters.results[KVR_PLANNER_SAME] < 2; i++)
        net_run_for(&f.net, 20);
    assert_int_equal(f.planner.counters.results[KVR_PLANNER_INSTALLED], 1);
    assert_true(f.planner.counters.results[KVR_PLANNER_SAME] >= 2);
    stop();
}

/* Wishes one after another do not put off the plan that is due. */
static void test_is_not_put_off_by_wishes(void **state)
{
    (void)state;
    start(3, 10000000);
    const char *file = write_plan("k,1,a:1\n");
    for (int i = 1; i <= 1000 && f.planner.counters.results[KVR_PLANNER_INSTALLED] < 4; i++) {
        ask(file);
        wait_done(i);
    }
    /* By turns of the file and of the window. */
    assert_true(f.planner.counters.results[KVR_PLANNER_INSTALLED] >= 4);
    stop();
}

/* Nor do intervals that are shorter than a planning put off a wish. */
static void test_puts_no_wish_off(void **state)
{
    (void)state;
    start(3, 0);
    f.planner.is_due = true;
    ask("");
    uint64_t at_ns = uv_hrtime();
    for (int turn = 0; !f.done; turn++) {
        assert_true(turn < 2000);
        f.planner.is_due = true;
        net_turn(&f.net, &at_ns);
    }
    stop();
}

static void test_one_wish_waits(void **state)
{
    (void)state;
    start(3, 0);
    struct kvr_planner_wish wish = {.context = &f, .on_done = on_done};
    struct kvr_error error = {0};
    ask("");
    ask("");
    assert_int_equal(kvr_planner_ask(&f.planner, &wish, &error), KVR_E_STATE);
    assert_string_equal(error.text, "another plan is being made");
    wait_done(2);
    ask("");
    kvr_planner_forget(&f.planner, &f);
    reach(KVR_PLANNER_CLEANING);
    reach(KVR_PLANNER_IDLE);
    assert_int_equal(f.done, 2);
    stop();
}

static void test_failures_change_nothing(void **state)
{
    (void)state;
    start(0, 0);
    ask("");
    wait_done(1);
    assert_string_equal(f.error, "no request with a routing key came within the window");
    ask("/no/such/plan.csv");
    wait_done(2);
    assert_non_null(strstr(f.error, "/no/such/plan.csv"));
    ask(write_plan("k,1,a:1\nm,1,c:1\n"));
    wait_done(3);
    assert_non_null(strstr(f.error, ": line 4: destinations are replicas"));
    assert_int_equal(f.failed, 3);
    assert_null(f.router.plan);
    /* Without a member there is no destination. */
    kvr_window_add(&f.router.keys, kvr_loop_now(), 1, 0, 1);
    kvr_router_remove_replica(&f.router, 0);
    kvr_router_remove_replica(&f.router, 1);
    ask("");
    wait_done(4);
    assert_non_null(strstr(f.error, "destinations, not 0"));
    stop();
}

/* In whatever phase it is withheld, the plan goes at once, none comes, and what was being made on
 * its ground is let go. */
static void test_is_withheld_in_any_phase(void **state)
{
    (void)state;
    static const enum kvr_planner_phase phases[] = {KVR_PLANNER_IDLE, KVR_PLANNER_COUNTING,
                                                    KVR_PLANNER_MAKING, KVR_PLANNER_CLEANING};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        start(5000, 0);
        ask("");
        wait_done(1);
        reach(KVR_PLANNER_IDLE);
        ask_until(phases[i]);
        kvr_planner_withhold(&f.planner, "why not");
        assert_null(f.router.plan);
        struct kvr_planner_wish wish = {.on_done = on_done};
        struct kvr_error error = {0};
        assert_int_equal(kvr_planner_ask(&f.planner, &wish, &error), KVR_E_STATE);
        assert_string_equal(error.text, "plans are withheld: why not");
        net_run_for(&f.net, 20);
        reach(KVR_PLANNER_IDLE);
        assert_null(f.router.plan);
        assert_int_equal(f.planner.counters.withdrawals, 1);
        /* And again, at once, while what it began is still under way. */
        kvr_planner_resume(&f.planner);
        reach(KVR_PLANNER_CLEANING);
        assert_non_null(f.router.plan);
        kvr_planner_withhold(&f.planner, "");
        kvr_planner_resume(&f.planner);
        assert_null(f.router.plan);
        reach(KVR_PLANNER_COUNTING);
        reach(KVR_PLANNER_CLEANING);
        assert_non_null(f.router.plan);
        assert_int_equal(f.planner.counters.withdrawals, 2);
        stop();
    }
}

static void test_closes_in_any_phase(void **state)
{
    (void)state;
    static const enum kvr_planner_phase phases[] = {KVR_PLANNER_IDLE, KVR_PLANNER_COUNTING,
                                                    KVR_PLANNER_MAKING, KVR_PLANNER_CLEANING};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        start(5000, 0);
        ask_until(phases[i]);
        int told = f.done;
        stop();
        assert_int_equal(f.done, told);
    }
}

static void test_begins_with_a_file(void **state)
{
    (void)state;
    start(0, 0);
    struct kvr_error error = {0};
    assert_int_equal(kvr_planner_load_first(&f.planner, write_plan("k,1,a:1 b:1\n"), &error), 0);
    assert_int_equal(f.router.plan->copies, 2);
    assert_string_equal(f.planner.origin.file, f.file);
    assert_true(f.planner.origin.window_s == 0);
    assert_int_equal(kvr_planner_load_first(&f.planner, "/no/such", &error), KVR_E_NOT_FOUND);
    assert_int_equal(f.router.plan->copies, 2);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_made_of_what_was_counted),
        cmocka_unit_test(test_comes_each_interval),
        cmocka_unit_test(test_is_not_put_off_by_wishes),
        cmocka_unit_test(test_puts_no_wish_off),
        cmocka_unit_test(test_one_wish_waits),
        cmocka_unit_test(test_failures_change_nothing),
        cmocka_unit_test(test_is_withheld_in_any_phase),
        cmocka_unit_test(test_closes_in_any_phase),
        cmocka_unit_test(test_begins_with_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
