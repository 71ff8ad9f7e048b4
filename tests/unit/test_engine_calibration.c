/* The published figures of five RTX 3090 that the profile rtx3090-8b-awq was fitted to, and that
 * the ways of running an engine agree to the digit on that very load. */
#include <math.h>
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

/* NVIDIA's public table of an inference container: Llama 3.3 70B in fp8 on two H100. Its tool
 * starts all users at once, and so does this. core/engine/README.md has what this prints. */
static const struct {
    uint32_t users;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    double ttft_ms; /* means */
    double itl_ms;
    double tokens_per_s; /* 0: not published */
} nim[] = {
    {1, 5000, 500, 407, 18.58, 52},     {5, 5000, 500, 547, 21.83, 218},
    {25, 5000, 500, 689, 38.75, 623},   {50, 5000, 500, 835, 59.73, 814},
    {100, 5000, 500, 7996, 92.91, 917}, {1, 500, 2000, 47.8, 18.91, 0},
};

struct cell {
    double ttft_ms; /* means, as in the table */
    double itl_ms;
    double tokens_per_s;
};

static struct cell nim_cell(const char *name, size_t row)
{
    const uint64_t from_ns = SECONDS(200), until_ns = SECONDS(1200);
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of(name));
    struct loop loop;
    struct kvr_tokens tokens;
    loop_init(&loop, &(struct kvr_engine_options){.profile = profile, .seed = 1}, nim[row].users);
    kvr_tokens_init(&tokens, profile->bytes_per_token);
    loop.prompt_bytes = (nim[row].prompt_tokens - profile->chat_head_tokens - 7) * 4;
    loop.max_tokens = nim[row].output_tokens;
    loop.early_share = 0.0;
    for (uint32_t user = 0; user < nim[row].users; user++)
        loop_send(&loop, user, 0);
    loop_go(&loop, &tokens, from_ns);
    uint64_t before = loop.engine.counters.generation_tokens;
    loop_go(&loop, &tokens, until_ns);
    struct cell cell = {.tokens_per_s = (double)(loop.engine.counters.generation_tokens - before) *
                                        1e9 / (double)(until_ns - from_ns)};
    uint32_t measured = 0;
    for (uint32_t i = 0; i < loop.rows_len; i++) {
        if (loop.rows[i].sent_ns < from_ns)
            continue;
        measured++;
        cell.ttft_ms += (double)loop.rows[i].ttft_ns * 1e-6;
        cell.itl_ms += (double)loop.rows[i].itl_mean_ns * 1e-6;
    }
    assert_true(measured > 20);
    cell.ttft_ms /= measured;
    cell.itl_ms /= measured;
    kvr_tokens_deinit(&tokens);
    loop_deinit(&loop);
    return cell;
}

static double error_percent(double predicted, double measured)
{
    return 100.0 * (predicted / measured - 1.0);
}

static void test_70b_table(void **state)
{
    (void)state;
    const char *const names[] = {"h100x2-70b-fp8-nim", "h100x2-70b-fp8"};
    for (int p = 0; p < 2; p++) {
        print_message("| %s: users, tokens | TTFT ms | ITL ms | tokens/s |\n|---|---|---|---|\n",
                      names[p]);
        for (size_t i = 0; i < sizeof nim / sizeof nim[0]; i++) {
            struct cell cell = nim_cell(names[p], i);
            double ttft = error_percent(cell.ttft_ms, nim[i].ttft_ms);
            double itl = error_percent(cell.itl_ms, nim[i].itl_ms);
            double speed = nim[i].tokens_per_s;
            double tokens = speed > 0 ? error_percent(cell.tokens_per_s, speed) : 0;
            print_message("| %u, %u + %u | %.0f of %.0f, %+.1f %% | %.1f of %.2f, %+.1f %% | "
                          "%.0f of %.0f, %+.1f %% |\n",
                          nim[i].users, nim[i].prompt_tokens, nim[i].output_tokens, cell.ttft_ms,
                          nim[i].ttft_ms, ttft, cell.itl_ms, nim[i].itl_ms, itl, cell.tokens_per_s,
                          speed, tokens);
            if (p == 0 && (fabs(itl) > 10 || fabs(tokens) > 6 || fabs(ttft) > 36))
                fail();
        }
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
