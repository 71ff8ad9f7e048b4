/* What a client may use, against a list of everything it ever did. */
#include "unit.h"

#include "quota.h"
#include "rng.h"

#define S  1000000000ull
#define MS 1000000ull

static void test_a_window_forgets_after_a_minute(void **state)
{
    (void)state;
    struct kvr_rate_window window = {0};
    uint64_t start = 1000 * S + 700 * MS;
    kvr_rate_window_add(&window, start, 3);
    kvr_rate_window_add(&window, start + 30 * S, 4);
    assert_int_equal(kvr_rate_window_sum(&window, start + 60 * S), 7);
    assert_int_equal(kvr_rate_window_wait(&window, start + 60 * S, 7), 0);
    assert_int_equal(kvr_rate_window_wait(&window, start + 60 * S, 4), 300 * MS);
    assert_int_equal(kvr_rate_window_sum(&window, start + 60 * S + 300 * MS), 4);
    assert_int_equal(kvr_rate_window_wait(&window, start + 61 * S, 0), 29 * S + 300 * MS);
    assert_int_equal(kvr_rate_window_sum(&window, start + 1000 * S), 0);
    assert_int_equal(kvr_rate_window_wait(&window, start + 1000 * S, 0), 0);
}

struct event {
    uint64_t at_ns, amount;
};

static uint64_t naive_sum(const struct event *events, int count, uint64_t now)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        if (events[i].at_ns / S + KVR_RATE_SECONDS > now / S)
            sum += events[i].amount;
    return sum;
}

static void test_a_window_agrees_with_a_list(void **state)
{
    (void)state;
    static struct event events[4000];
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    struct kvr_rate_window window = {0};
    uint64_t now = 12345 * MS;
    for (int i = 0; i < 4000; i++) {
        uint64_t step = kvr_rng_next(&rng) % 20 ? 300 * MS : 100 * S;
        now += kvr_rng_next(&rng) % step;
        events[i] = (struct event){now, kvr_rng_next(&rng) % 100};
        kvr_rate_window_add(&window, now, events[i].amount);
        uint64_t sum = kvr_rate_window_sum(&window, now);
        assert_int_equal(sum, naive_sum(events, i + 1, now));
        uint64_t most = kvr_rng_next(&rng) % (sum + 1);
        uint64_t wait = kvr_rate_window_wait(&window, now, most);
        assert_true(naive_sum(events, i + 1, now + wait) <= most);
        if (wait)
            assert_true(naive_sum(events, i + 1, now + wait - 1) > most);
    }
}

static void test_no_minute_has_more_than_is_allowed(void **state)
{
    (void)state;
    static uint64_t taken[4000];
    int count = 0;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 11);
    struct kvr_quota quota = {.most[KVR_QUOTA_REQUESTS] = 50};
    uint64_t wait;
    for (uint64_t now = S; now < 600 * S; now += kvr_rng_next(&rng) % (400 * MS)) {
        if (kvr_quota_enter(&quota, now, 0, &wait) != KVR_QUOTA_OK)
            continue;
        kvr_quota_leave(&quota);
        taken[count++] = now;
    }
    assert_true(count > 450); /* ten minutes' worth, less what comes back late */
    for (int i = 50; i < count; i++)
        assert_true(taken[i] - taken[i - 50] >= 60 * S);
    assert_int_equal(quota.entered, count);
    assert_true(quota.refused[KVR_QUOTA_REQUESTS] > 0);
}

static void test_each_limit_is_named(void **state)
{
    (void)state;
    struct kvr_quota quota = {.most = {2, 4, 1000}};
    uint64_t wait = 1;
    assert_int_equal(kvr_quota_enter(&quota, S, 300, &wait), KVR_QUOTA_OK);
    assert_int_equal(kvr_quota_enter(&quota, S, 300, &wait), KVR_QUOTA_OK);
    assert_int_equal(kvr_quota_enter(&quota, S, 300, &wait), KVR_QUOTA_CONCURRENCY);
    assert_int_equal(wait, 0);
    kvr_quota_leave(&quota);
    kvr_quota_leave(&quota);
    assert_int_equal(kvr_quota_enter(&quota, 2 * S, 500, &wait), KVR_QUOTA_PROMPT_TOKENS);
    assert_int_equal(wait, 60 * S);
    /* What was refused has used up nothing. */
    assert_int_equal(kvr_quota_enter(&quota, 2 * S, 400, &wait), KVR_QUOTA_OK);
    kvr_quota_leave(&quota);
    assert_int_equal(kvr_quota_enter(&quota, 2 * S, 0, &wait), KVR_QUOTA_OK);
    kvr_quota_leave(&quota);
    assert_int_equal(kvr_quota_enter(&quota, 2 * S, 0, &wait), KVR_QUOTA_REQUESTS);
    assert_int_equal(wait, 60 * S);
    assert_int_equal(kvr_quota_enter(&quota, 100 * S, 1001, &wait), KVR_QUOTA_PROMPT_TOKENS);
    assert_true(wait == UINT64_MAX); /* never, however long it waits */
    assert_int_equal(quota.open, 0);
    assert_int_equal(quota.entered_tokens, 1000);
    assert_string_equal(kvr_quota_limit_name(KVR_QUOTA_REQUESTS), "requests_per_minute");
    assert_dies(kvr_quota_leave(&quota));
}

static void test_unlimited_is_not_zero(void **state)
{
    (void)state;
    struct kvr_quota quota = {0};
    uint64_t wait;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(kvr_quota_enter(&quota, S, 1u << 30, &wait), KVR_QUOTA_OK);
    assert_int_equal(quota.open, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_forgets_after_a_minute),
        cmocka_unit_test(test_a_window_agrees_with_a_list),
        cmocka_unit_test(test_no_minute_has_more_than_is_allowed),
        cmocka_unit_test(test_each_limit_is_named),
        cmocka_unit_test(test_unlimited_is_not_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
