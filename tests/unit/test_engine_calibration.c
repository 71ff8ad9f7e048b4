/* The published figures of five RTX 3090 that the profile rtx3090-8b-awq was fitted to, and that
 * the ways of running an engine agree to the digit on that very load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine_driver.h"

#define SECONDS(x) ((uint64_t)(x)*1000000000u)

static const struct kvr_profile *study(void)
{
    return kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
}

static void assert_between(const char *what, double value, double low, double high)
{
    print_message("%s %.2f, allowed %.2f to %.2f\n", what, value, low, high);
    if (!(value >= low && value <= high))
        fail();
}

static void test_one_user(void **state)
{
    (void)state;
    struct loop loop;
    loop_init(&loop, &(struct kvr_engine_options){.profile = study(), .seed = 1}, 1);
    loop.early_share = 0.0;
    loop_run(&loop, SECONDS(300));
    assert_true(loop.rows_len > 300);
    assert_between("alone, unseen: TTFT p50 ms",
                   loop_median_ms(&loop, SECONDS(5), offsetof(struct loop_row, ttft_ns)), 313, 345);
    assert_between("alone: ITL p50 ms",
                   loop_median_ms(&loop, SECONDS(5), offsetof(struct loop_row, itl_p50_ns)), 7.4,
                   8.2);
    loop_deinit(&loop);
}

static void test_one_user_sends_again(void **state)
{
    (void)state;
    struct loop loop;
    loop_init(&loop, &(struct kvr_engine_options){.profile = study(), .seed = 1}, 1);
    loop.turns = UINT32_MAX;
    loop_run(&loop, SECONDS(100));
    assert_int_equal(loop.rows[0].cached_tokens, 0);
    assert_int_equal(loop.rows[1].cached_tokens, 1312); /* 1,324 tokens, all blocks but the last */
    assert_between("alone, sent again: TTFT p50 ms",
                   loop_median_ms(&loop, SECONDS(5), offsetof(struct loop_row, ttft_ns)), 40, 52);
    loop_deinit(&loop);
}

static void test_32_users_on_one_replica(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct loop loop;
        loop_init(&loop, &(struct kvr_engine_options){.profile = study(), .seed = seed}, 32);
        loop_run(&loop, SECONDS(350));
        uint32_t measured = 0;
        for (uint32_t i = 0; i < loop.rows_len; i++)
            measured += loop.rows[i].sent_ns >= SECONDS(50);
        assert_between("32 users: ITL p50 ms",
                       loop_median_ms(&loop, SECONDS(50), offsetof(struct loop_row, itl_p50_ns)),
                       45, 60);
        assert_between("32 users: requests/s", measured / 300.0, 2.4, 2.9);
        loop_deinit(&loop);
    }
}

/* A public table of an inference container: Llama 3.3 70B in fp8 on two H100, 5,000 tokens in, 500
 * out. Means between tokens and throughput; its first-token times hang on how the clients start. */
static void test_70b_table(void **state)
{
    (void)state;
    const uint32_t users[] = {1, 5, 25, 50, 100};
    const double itl_ms[] = {18.58, 21.83, 38.75, 59.73, 92.91};
    const double tokens_per_s[] = {52, 218, 623, 814, 917};
    for (int i = 0; i < 5; i++) {
        const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of("h100x2-70b-fp8-nim"));
        struct loop loop;
        loop_init(&loop, &(struct kvr_engine_options){.profile = profile, .seed = 1}, users[i]);
        loop.prompt_bytes = 20000;
        loop.max_tokens = 500;
        loop.early_share = 0.0;
        loop_run(&loop, SECONDS(600));
        uint64_t tokens = 0;
        for (uint32_t k = 0; k < loop.rows_len; k++)
            tokens += loop.rows[k].sent_ns >= SECONDS(100) ? loop.rows[k].output_tokens : 0;
        double itl = loop_median_ms(&loop, SECONDS(100), offsetof(struct loop_row, itl_mean_ns));
        print_message("%u users: ", users[i]);
        assert_between("ITL ms", itl, 0.92 * itl_ms[i], 1.08 * itl_ms[i]);
        assert_between("tokens/s", (double)tokens / 500.0, 0.83 * tokens_per_s[i],
                       1.17 * tokens_per_s[i]);
        loop_deinit(&loop);
    }
}

/* Every token reported, every step woken for, or neither: the same events at the same nanosecond.
 */
static void test_ways_agree(void **state)
{
    (void)state;
    struct kvr_profile exact = *study();
    exact.jitter = 0.0;
    const struct kvr_profile *profiles[] = {study(), &exact};
    for (int p = 0; p < 2; p++) {
        uint64_t digests[4];
        uint64_t steps[4];
        for (int way = 0; way < 4; way++) {
            struct loop loop;
            loop_init(&loop,
                      &(struct kvr_engine_options){
                          .profile = profiles[p],
                          .seed = 7,
                          .token_events = way == 1,
                          .every_step = way == 2,
                          .kv_events = way == 3,
                      },
                      20);
            loop.turns = 3;
            loop_run(&loop, SECONDS(120));
            assert_true(loop.rows_len > 300);
            kvr_engine_verify(&loop.engine);
            digests[way] = loop.digest;
            steps[way] = loop.engine.counters.steps;
            loop_deinit(&loop);
        }
        for (int way = 1; way < 4; way++) {
            assert_int_equal(digests[way], digests[0]);
            assert_int_equal(steps[way], steps[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_user),
        cmocka_unit_test(test_one_user_sends_again),
        cmocka_unit_test(test_32_users_on_one_replica),
        cmocka_unit_test(test_70b_table),
        cmocka_unit_test(test_ways_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
