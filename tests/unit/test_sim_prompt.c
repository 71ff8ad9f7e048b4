/* core/sim/sim_prompt: the chain of a simulated request is the one that the router makes of the
 * same request on the wire. (Its tokens against an emulated replica's: test_emu_sim_prompt.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api_request.h"
#include "session.h"
#include "sim_fixture.h"
#include "sim_prompt.h"

static const struct kvr_profile *profile_named(const char *name)
{
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of(name));
    assert_non_null(profile);
    return profile;
}

static void compare(const struct kvr_workload_options *options, const struct kvr_profile *profile,
                    const struct kvr_prompt_options *cut)
{
    struct kvr_workload *workload = kvr_workload_create(options, NULL);
    assert_non_null(workload);
    struct kvr_sim_prompt maker;
    struct kvr_prompt wire;
    struct kvr_buffer body = {0};
    kvr_sim_prompt_init(&maker, profile, cut);
    kvr_prompt_init(&wire, cut);
    for (uint64_t user = 0; user < 40; user++) {
        for (uint64_t turn = 0; turn < 9; turn++) {
            struct kvr_workload_request request;
            struct kvr_api_request read;
            assert_true(kvr_workload_turn(workload, user, turn, &request));
            write_body(&request, profile->name, &body);
            assert_int_equal(kvr_api_request_scan(&read, KVR_API_CHAT, kvr_buffer_slice(&body),
                                                  NULL, &wire, NULL),
                             0);
            uint32_t turns = kvr_sim_prompt_chain(&maker, &request);
            assert_int_equal(turns, read.turn);
            assert_true(maker.scope == read.scope);
            assert_int_equal(maker.bytes, read.prompt_bytes);
            assert_int_equal(maker.chain_len, wire.chain_len);
            assert_memory_equal(maker.chain, wire.chain, wire.chain_len * sizeof *wire.chain);
        }
    }
    kvr_buffer_deinit(&body);
    kvr_prompt_deinit(&wire);
    kvr_sim_prompt_deinit(&maker);
    kvr_workload_destroy(workload);
}

static void test_chain_of_sessions(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    const struct kvr_profile *profile = profile_named("rtx3090-8b-awq");
    compare(&options, profile, NULL);
    options.skew = 1.4;
    options.turns = 7;
    compare(&options, profile, &(struct kvr_prompt_options){.block_bytes = 100});
    compare(&options, profile, &(struct kvr_prompt_options){.wide_after = 3000});
    compare(&options, profile, &(struct kvr_prompt_options){.max_blocks = 20});
    options.user_bytes = 61; /* messages shorter than a block */
    options.assistant_bytes = 1;
    compare(&options, profile, NULL);
}

static void test_chain_of_keys(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.kind = KVR_WORKLOAD_KEYS;
    options.bytes_per_token = 4;
    options.keys = 5;
    options.variants = 3;
    compare(&options, profile_named("h100x2-70b-fp8"), NULL);
    options.context_tokens = 7;
    options.variant_tokens = 0;
    compare(&options, profile_named("h100x2-70b-fp8"), NULL);
}

/* More different pieces than the memo keeps: it forgets, and goes on to be right. */
static void test_memo_is_bounded(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.kind = KVR_WORKLOAD_KEYS;
    options.bytes_per_token = 4;
    options.template_tokens = 50;
    options.variant_tokens = 30;
    options.unique_tokens = 20;
    struct kvr_workload *workload = kvr_workload_create(&options, NULL);
    struct kvr_sim_prompt worn, fresh;
    kvr_sim_prompt_init(&worn, profile_named("h100x2-70b-fp8"), NULL);
    uint64_t size = 0;
    for (uint64_t i = 0; i < 300000; i++) {
        struct kvr_workload_request request;
        assert_true(kvr_workload_turn(workload, i, 0, &request));
        kvr_sim_prompt_chain(&worn, &request);
        size = worn.memo.words_len > size ? worn.memo.words_len : size;
        if (i % 1000)
            continue;
        kvr_sim_prompt_init(&fresh, profile_named("h100x2-70b-fp8"), NULL);
        kvr_sim_prompt_chain(&fresh, &request);
        assert_int_equal(worn.chain_len, fresh.chain_len);
        assert_int_equal(worn.bytes, fresh.bytes);
        assert_memory_equal(worn.chain, fresh.chain, fresh.chain_len * sizeof *fresh.chain);
        kvr_sim_prompt_deinit(&fresh);
    }
    assert_true(worn.memo.forgotten >= 1 && worn.memo.found > worn.memo.made);
    assert_true(size <= 1u << 22);
    kvr_sim_prompt_deinit(&worn);
    kvr_workload_destroy(workload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_sessions),
        cmocka_unit_test(test_chain_of_keys),
        cmocka_unit_test(test_memo_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
