/* core/sim/workload: when requests are sent. Users and their pauses, renewal arrivals, ramps, given
 * times and what is drawn from them, rounds of users, and lists. */
#include "workload_fixture.h"

static struct kvr_workload_options open_loop(double rate, double cv)
{
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.arrivals = KVR_ARRIVALS_RATE;
    options.rate = rate;
    options.gap_cv = cv;
    return options;
}

static struct kvr_arrival next(struct kvr_workload *workload)
{
    struct kvr_arrival arrival;
    assert_true(kvr_workload_next(workload, &arrival));
    return arrival;
}

static void test_even(void **state)
{
    (void)state;
    struct kvr_workload_options options = open_loop(7, 0);
    struct kvr_workload *workload = make(&options);
    for (uint64_t i = 0; i < 100000; i++) /* nothing adds up */
        assert_int_equal(next(workload).due_ns, (uint64_t)((double)i / 7 * 1e3 * 1e6 + 0.5));
    kvr_workload_destroy(workload);
}

static void gaps_of(double cv, double *mean, double *variation)
{
    struct kvr_workload_options options = open_loop(20, cv);
    struct kvr_workload *workload = make(&options);
    double sum = 0, squares = 0, before = 0;
    int n = 100000;
    for (int i = 0; i < n; i++) {
        double at = (double)next(workload).due_ns / 1e9;
        sum += at - before;
        squares += (at - before) * (at - before);
        assert_true(at >= before);
        before = at;
    }
    *mean = sum / n;
    *variation = sqrt(squares / n - *mean * *mean) / *mean;
    kvr_workload_destroy(workload);
}

static void test_renewal(void **state)
{
    (void)state;
    const double variations[] = {0.4, 1, 1.9};
    for (int i = 0; i < 3; i++) {
        double mean, variation;
        gaps_of(variations[i], &mean, &variation);
        near(mean, 0.05, 0.02);
        near(variation, variations[i], 0.03);
    }
}

static void test_ramp(void **state)
{
    (void)state;
    struct kvr_workload_options options = open_loop(10, 0);
    options.rate_end = 50;
    options.ramp_ms = 100000;
    struct kvr_workload *workload = make(&options);
    uint32_t first = 0, last = 0, ramp = 0, after = 0;
    for (;;) {
        double s = (double)next(workload).due_ns / 1e9;
        first += s < 10;
        last += s >= 90 && s < 100;
        ramp += s < 100;
        after += s >= 100 && s < 110;
        if (s > 120)
            break;
    }
    near(first, 120, 0.02); /* 10 a second at 0 s, 14 at 10 s */
    near(last, 480, 0.01);
    near(ramp, 3000, 0.002);
    near(after, 500, 0.01);
    kvr_workload_destroy(workload);
}

/* Each round all users, once each, in an order of its own. */
static void test_rounds(void **state)
{
    (void)state;
    struct kvr_workload_options options = open_loop(6, 1);
    struct kvr_workload *workload = make(&options);
    uint64_t before[30];
    uint32_t same = 0;
    for (uint64_t round = 0; round < 50; round++) {
        bool seen[30] = {false};
        for (int i = 0; i < 30; i++) {
            struct kvr_arrival arrival = next(workload);
            assert_true(arrival.user < 30 && !seen[arrival.user]);
            assert_int_equal(arrival.turn, round);
            seen[arrival.user] = true;
            same += round && before[i] == arrival.user;
            before[i] = arrival.user;
        }
    }
    assert_true(same < 100);
    struct kvr_arrival first, again;
    kvr_workload_rewind(workload);
    first = next(workload);
    next(workload);
    kvr_workload_rewind(workload);
    again = next(workload);
    assert_memory_equal(&first, &again, sizeof first);
    kvr_workload_destroy(workload);
}

static struct kvr_workload_options threads(double rate, double gap_ms)
{
    struct kvr_workload_options options = open_loop(rate, 1);
    options.kind = KVR_WORKLOAD_KEYS;
    options.thread_more = 0.493;
    options.thread_gap_ms = gap_ms;
    return options;
}

/* As many requests in the first half minute as in any other: threads are on their way at the start.
 * Turns of one come in order, and the gaps between them are as asked for. */
static void test_threads(void **state)
{
    (void)state;
    struct kvr_workload_options options = threads(100, 20000);
    options.arrivals_max = 60000;
    struct kvr_workload *workload = make(&options);
    static struct {
        double at_s;
        uint64_t turns; /* that have come */
    } seen[200000];
    uint32_t in[20] = {0}, count = 0, gaps = 0;
    double sum = 0, before = 0, last = 0;
    struct kvr_arrival arrival;
    memset(seen, 0, sizeof seen);
    for (; kvr_workload_next(workload, &arrival); count++) {
        double at_s = (double)arrival.due_ns / 1e9;
        assert_true(at_s >= before && arrival.user < 200000);
        before = at_s;
        in[(uint32_t)(at_s / 30) % 20]++;
        if (seen[arrival.user].turns) {
            assert_int_equal(arrival.turn, seen[arrival.user].turns);
            sum += at_s - seen[arrival.user].at_s;
            gaps++;
        }
        seen[arrival.user].at_s = at_s;
        seen[arrival.user].turns = arrival.turn + 1;
        last = at_s;
    }
    assert_int_equal(count, 60000);
    near(last, 600, 0.03);
    near(in[0], 3000, 0.1);
    near(in[1], 3000, 0.1);
    near(in[10], 3000, 0.1);
    near(sum / gaps, 20, 0.05); /* of those that end within the ten minutes */
    kvr_workload_rewind(workload);
    struct kvr_arrival first = next(workload);
    next(workload);
    kvr_workload_rewind(workload);
    struct kvr_arrival again = next(workload);
    assert_memory_equal(&first, &again, sizeof first);
    kvr_workload_destroy(workload);
}

/* One key whose threads begin every 14 gaps on average: threads alone make its requests as bursty
 * as CacheRoute's median key, 1.93. */
static void test_threads_are_bursts(void **state)
{
    (void)state;
    double starts = 0.07 / 30; /* a second */
    struct kvr_workload_options options = threads(starts * (1 + 0.493 / 0.3), 30000);
    struct kvr_workload *workload = make(&options);
    double sum = 0, squares = 0, before = 0;
    int n = 200000;
    for (int i = 0; i < n; i++) {
        double at = (double)next(workload).due_ns / 1e9;
        sum += at - before;
        squares += (at - before) * (at - before);
        before = at;
    }
    double mean = sum / n;
    near(mean, 1 / options.rate, 0.02);
    near(sqrt(squares / n - mean * mean) / mean, 1.93, 0.02);
    kvr_workload_destroy(workload);
}

static void test_bootstrap(void **state)
{
    (void)state;
    double times[201];
    for (int i = 0; i <= 200; i++) /* all gaps different: 1, 2, ... ms */
        times[i] = i * (i + 1) / 2.0;
    struct kvr_workload_options options = open_loop(0, 0);
    options.kind = KVR_WORKLOAD_KEYS;
    options.arrivals = KVR_ARRIVALS_BOOTSTRAP;
    options.times_ms = times;
    options.times_len = 201;
    options.block_len = 10;
    struct kvr_workload *workload = make(&options);
    double before = 0, gap_before = 0;
    bool drawn[201] = {false};
    for (int i = 0; i < 5000; i++) {
        double at = (double)next(workload).due_ns / 1e6;
        double gap = at - before;
        assert_true(fabs(gap - round(gap)) < 1e-5 && gap > 0.5 && gap < 200.5);
        if (i % 10)
            assert_true(fabs(gap - gap_before - 1) < 1e-5); /* successive ones */
        drawn[(int)round(gap)] = true;
        before = at;
        gap_before = gap;
    }
    int different = 0;
    for (int i = 1; i <= 200; i++)
        different += drawn[i];
    assert_true(different > 190);
    kvr_workload_destroy(workload);
    options.rate = 40;
    workload = make(&options);
    for (int i = 0; i < 20000; i++)
        before = (double)next(workload).due_ns / 1e9;
    near(20000 / before, 40, 0.05);
    kvr_workload_destroy(workload);
}

static void test_times(void **state)
{
    (void)state;
    const double times[] = {0, 5, 5, 9};
    struct kvr_workload_options options = open_loop(0, 0);
    options.arrivals = KVR_ARRIVALS_TIMES;
    options.times_ms = times;
    options.times_len = 4;
    options.time_scale = 2;
    struct kvr_workload *workload = make(&options);
    for (int i = 0; i < 4; i++)
        assert_int_equal(next(workload).due_ns, (uint64_t)(times[i] * 2e6));
    struct kvr_arrival none;
    assert_false(kvr_workload_next(workload, &none));
    kvr_workload_destroy(workload);
}

static void test_users(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.start_ms = 3200;
    options.turns_max = 3;
    struct kvr_workload *workload = make(&options);
    assert_int_equal(kvr_workload_users(workload), 32);
    assert_int_equal(kvr_workload_start_ns(workload, 8), 800000000);
    assert_int_equal(kvr_workload_think_ns(workload, 3, 5), 1000000);
    struct kvr_workload_request request;
    assert_true(kvr_workload_turn(workload, 0, 2, &request));
    assert_false(kvr_workload_turn(workload, 0, 3, &request));
    kvr_workload_destroy(workload);
    options.think_ms = 200;
    options.think_cv = 1;
    workload = make(&options);
    double sum = 0;
    for (uint64_t i = 0; i < 20000; i++)
        sum += (double)kvr_workload_think_ns(workload, i, 1) / 1e6;
    near(sum / 20000, 200, 0.03);
    assert_int_equal(kvr_workload_think_ns(workload, 9, 1), kvr_workload_think_ns(workload, 9, 1));
    kvr_workload_destroy(workload);
}

/* ---- lists ---- */

static int add(struct kvr_workload *workload, uint64_t session, double due_ms, double think_ms,
               uint64_t id)
{
    struct kvr_piece pieces[] = {
        {.id = 1, .bytes = 100, .speaker = KVR_SYSTEM},
        {.id = id, .bytes = 50, .speaker = KVR_USER},
        {.id = id + 1, .bytes = 25, .speaker = KVR_USER, .continues = 1},
    };
    struct kvr_list_request request = {
        .session = session,
        .due_ms = due_ms,
        .think_ms = think_ms,
        .pieces = pieces,
        .pieces_len = 3,
        .max_tokens = 10,
        .output_tokens = 7,
    };
    return kvr_workload_add(workload, &request);
}

static void test_list(void **state)
{
    (void)state;
    struct kvr_workload_options options = open_loop(0, 0);
    options.kind = KVR_WORKLOAD_LIST;
    options.arrivals = KVR_ARRIVALS_TIMES;
    struct kvr_workload *workload = make(&options);
    assert_int_equal(add(workload, 500, 10, 0, 1000), 0);
    assert_int_equal(add(workload, 7, 5, 0, 2000), 0);
    assert_int_equal(add(workload, 500, 30, 4, 3000), 0);
    assert_int_equal(add(workload, 0, 20, 0, 4000), 0);
    assert_int_equal(add(workload, 0, 20, 0, 5000), 0);
    const uint64_t ids[] = {2000, 1000, 4000, 5000, 3000};
    const uint64_t users[] = {1, 0, 2, 3, 0}, turns[] = {0, 0, 0, 0, 1};
    const double due[] = {5, 10, 20, 20, 30};
    for (int i = 0; i < 5; i++) {
        struct kvr_arrival arrival = next(workload);
        struct kvr_workload_request r;
        assert_int_equal(arrival.due_ns, (uint64_t)(due[i] * 1e6));
        assert_int_equal(arrival.user, users[i]);
        assert_int_equal(arrival.turn, turns[i]);
        assert_true(kvr_workload_turn(workload, arrival.user, arrival.turn, &r));
        assert_int_equal(r.pieces[1].id, ids[i]);
        assert_int_equal(r.prompt_bytes, 175);
        assert_int_equal(r.session_turn, turns[i] + 1);
        assert_true((r.session != 0) == (i != 2 && i != 3));
        assert_true(r.output_tokens == 7 && r.stops);
    }
    struct kvr_arrival none;
    assert_false(kvr_workload_next(workload, &none));
    assert_int_equal(add(workload, 1, 1, 1, 1), KVR_E_STATE);
    kvr_workload_destroy(workload);
}

/* Each session a user, who begins when its first request was due and then takes its own pauses. */
static void test_list_closed(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.kind = KVR_WORKLOAD_LIST;
    struct kvr_workload *workload = make(&options);
    for (uint64_t i = 0; i < 3000; i++)
        assert_int_equal(add(workload, 1 + i % 1000 * 77, (double)i, (double)(i / 1000), i), 0);
    kvr_workload_rewind(workload);
    assert_int_equal(kvr_workload_users(workload), 1000);
    for (uint64_t user = 0; user < 1000; user++) {
        assert_int_equal(kvr_workload_start_ns(workload, user), user * 1000000);
        struct kvr_workload_request r;
        for (uint64_t turn = 0; turn < 3; turn++) {
            assert_true(kvr_workload_turn(workload, user, turn, &r));
            assert_int_equal(r.pieces[1].id, turn * 1000 + user);
            assert_int_equal(kvr_workload_think_ns(workload, user, turn), turn * 1000000);
        }
        assert_false(kvr_workload_turn(workload, user, 3, &r));
    }
    kvr_workload_destroy(workload);
}

static void test_list_refusals(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    struct kvr_workload *sessions = make(&options);
    assert_int_equal(add(sessions, 1, 0, 0, 1), KVR_E_STATE);
    kvr_workload_destroy(sessions);
    options.kind = KVR_WORKLOAD_LIST;
    struct kvr_workload *workload = make(&options);
    struct kvr_piece piece = {.id = 1, .bytes = 9, .speaker = KVR_USER};
    struct kvr_list_request good = {.pieces = &piece, .pieces_len = 1, .output_tokens = 4};
    struct kvr_list_request bad = good;
    bad.pieces_len = 0;
    assert_int_equal(kvr_workload_add(workload, &bad), KVR_E_INVALID);
    bad = good;
    bad.output_tokens = 0;
    assert_int_equal(kvr_workload_add(workload, &bad), KVR_E_INVALID);
    bad = good;
    bad.max_tokens = 3;
    assert_int_equal(kvr_workload_add(workload, &bad), KVR_E_INVALID);
    bad = good;
    bad.due_ms = -1;
    assert_int_equal(kvr_workload_add(workload, &bad), KVR_E_INVALID);
    piece.continues = 1;
    assert_int_equal(kvr_workload_add(workload, &good), KVR_E_INVALID);
    piece = (struct kvr_piece){.id = 1, .bytes = 0, .speaker = KVR_USER};
    assert_int_equal(kvr_workload_add(workload, &good), KVR_E_INVALID);
    piece.bytes = 9;
    assert_int_equal(kvr_workload_add(workload, &good), 0);
    kvr_workload_destroy(workload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even),        cmocka_unit_test(test_renewal),
        cmocka_unit_test(test_ramp),        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_threads_are_bursts),
        cmocka_unit_test(test_bootstrap),   cmocka_unit_test(test_times),
        cmocka_unit_test(test_users),       cmocka_unit_test(test_list),
        cmocka_unit_test(test_list_closed), cmocka_unit_test(test_list_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
