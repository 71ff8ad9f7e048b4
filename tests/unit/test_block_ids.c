#include "unit.h"

#include "block_ids.h"
#include "rng.h"

static void test_shared_prefixes_are_runs(void **state)
{
    (void)state;
    struct kvr_block_ids ids;
    struct kvr_block_run runs[8];
    kvr_block_ids_init(&ids, 16);
    uint64_t first[] = {11, 12, 13, 14}, second[] = {11, 12, 25, 26, 27};
    assert_int_equal(kvr_block_ids_runs(&ids, first, 4, runs), 1);
    assert_true(runs[0].first == 1 && runs[0].count == 4);
    assert_int_equal(kvr_block_ids_runs(&ids, second, 5, runs), 2);
    assert_true(runs[0].first == 1 && runs[0].count == 2);
    assert_true(runs[1].first == 5 && runs[1].count == 3);
    assert_int_equal(kvr_block_ids_runs(&ids, first, 0, runs), 0);
    kvr_block_ids_deinit(&ids);
}

/* A number never names two keys, also after others were forgotten. */
static void test_numbers_are_never_reused(void **state)
{
    (void)state;
    struct kvr_block_ids ids;
    struct kvr_block_run runs[64];
    static uint64_t key_of[200000];
    struct kvr_rng rng;
    kvr_rng_init(&rng, 3);
    kvr_block_ids_init(&ids, 100); /* becomes 128 */
    assert_int_equal(ids.keys_max, 128);
    for (int step = 0; step < 2000; step++) {
        uint64_t chain[64];
        uint32_t len = 1 + (uint32_t)kvr_rng_below(&rng, 64);
        uint64_t family = kvr_rng_below(&rng, 5) * 1000;
        for (uint32_t i = 0; i < len; i++)
            chain[i] = i < 10 ? family + i + 1 : kvr_rng_next(&rng);
        uint32_t count = kvr_block_ids_runs(&ids, chain, len, runs);
        uint32_t at = 0;
        for (uint32_t r = 0; r < count; r++)
            for (uint32_t k = 0; k < runs[r].count; k++, at++) {
                uint64_t id = runs[r].first + k;
                assert_true(id < 200000);
                assert_true(key_of[id] == 0 || key_of[id] == chain[at]);
                key_of[id] = chain[at];
            }
        assert_int_equal(at, len);
        assert_true(ids.count <= ids.keys_max);
    }
    assert_true(ids.epochs > 10);
    kvr_block_ids_deinit(&ids);
}

/* What comes again and again keeps its number, however much else comes once. */
static void test_what_is_in_use_is_not_forgotten(void **state)
{
    (void)state;
    struct kvr_block_ids ids;
    struct kvr_block_run runs[2];
    uint64_t hot = 5, once = 1000;
    kvr_block_ids_init(&ids, 16);
    for (int step = 0; step < 1000; step++) {
        assert_int_equal(kvr_block_ids_runs(&ids, &hot, 1, runs), 1);
        assert_true(runs[0].first == 1);
        for (int i = 0; i < 10; i++, once++)
            assert_int_equal(kvr_block_ids_runs(&ids, &once, 1, runs), 1);
    }
    assert_true(ids.epochs > 500);
    kvr_block_ids_deinit(&ids);
}

static void test_a_chain_longer_than_the_table(void **state)
{
    (void)state;
    struct kvr_block_ids ids;
    struct kvr_block_run runs[100];
    uint64_t chain[100];
    kvr_block_ids_init(&ids, 8);
    for (int i = 0; i < 100; i++)
        chain[i] = 7000 + (uint64_t)i;
    assert_int_equal(kvr_block_ids_runs(&ids, chain, 100, runs), 1);
    assert_int_equal(runs[0].count, 100);
    kvr_block_ids_deinit(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_prefixes_are_runs),
        cmocka_unit_test(test_numbers_are_never_reused),
        cmocka_unit_test(test_what_is_in_use_is_not_forgotten),
        cmocka_unit_test(test_a_chain_longer_than_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
