/* core/model/block_store and lanes: chains of all shapes, taken, cut out and put back at random,
 * against an array that says which key has which block; and eight places at once against one by
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "block_store.h"
#include "lanes.h"
#include "rng.h"

#define BLOCKS 300u
#define KEYS   500u
#define LEN    40u

static struct kvr_block_store store;
static uint32_t block_of[KEYS]; /* what the table should say; 0 none */
static uint64_t touched[KEYS];  /* number of the last link */
static uint64_t links;

/* Key 0 is a key like any other, though unused blocks have it. */
static uint64_t key_of(uint32_t k)
{
    return k ? kvr_mix64(k) : 0;
}

static void start(uint64_t seed)
{
    kvr_block_store_init(&store, BLOCKS, seed);
    memset(block_of, 0, sizeof block_of);
    memset(touched, 0, sizeof touched);
    links = 0;
}

static void check_order(void)
{
    uint32_t walked = 0;
    uint64_t last = UINT64_MAX;
    for (uint32_t b = store.blocks[0].older; b; b = store.blocks[b].older, walked++) {
        uint32_t k = 0;
        while (k < KEYS && block_of[k] != b)
            k++;
        assert_true(k < KEYS && store.blocks[b].key == key_of(k) && touched[k] < last);
        assert_int_equal(store.blocks[store.blocks[b].older].newer, b);
        last = touched[k];
    }
    assert_int_equal(store.blocks[store.blocks[0].older].newer, 0);
    assert_int_equal(walked, store.count);
}

/* A chain of keys: mostly in a row, as prompts that share their opening are. */
static uint32_t random_chain(struct kvr_rng *rng, uint32_t *ks)
{
    uint32_t len = 1 + (uint32_t)kvr_rng_below(rng, LEN);
    uint32_t k = (uint32_t)kvr_rng_below(rng, 8) * 20;
    for (uint32_t i = 0; i < len; i++) {
        ks[i] = k;
        k = kvr_rng_below(rng, 15) ? k + 1 : k + 1 + (uint32_t)kvr_rng_below(rng, 100);
        k = k < KEYS ? k : KEYS - 1;
        if (ks[i] == k)
            return i + 1;
    }
    return len;
}

/* From key `from` on, told which block came before it or not. */
static void check_find(const uint64_t *chain, const uint32_t *ks, uint32_t len, uint32_t from,
                       uint32_t before)
{
    uint32_t numbers[LEN], there = 0;
    while (from + there < len && block_of[ks[from + there]])
        there++;
    bool run = true, expected = true;
    uint32_t found =
        kvr_block_store_find_leading(&store, chain + from, len - from, before, numbers, &run);
    assert_int_equal(found, there);
    for (uint32_t i = 0, last = before; i < found; last = numbers[i++])
        expected = expected && (last == 0 || store.blocks[last].older == numbers[i]);
    assert_int_equal(run, expected);
    for (uint32_t i = 0; i < there; i++)
        assert_int_equal(numbers[i], block_of[ks[from + i]]);
    if (from + there < len)
        assert_int_equal(numbers[there], 0);
    kvr_block_store_find(&store, chain + from, len - from, before, numbers);
    for (uint32_t i = from; i < len; i++)
        assert_int_equal(numbers[i - from], block_of[ks[i]]);
}

static void check_finds(const uint32_t *ks, uint32_t len)
{
    uint64_t chain[LEN] = {0};
    for (uint32_t i = 0; i < len; i++)
        chain[i] = key_of(ks[i]);
    check_find(chain, ks, len, 0, 0);
    check_find(chain, ks, len, len / 2, 0);
    if (len > 1)
        check_find(chain, ks, len, len / 2, block_of[ks[len / 2 - 1]]);
}

static uint32_t runs;

/* Whether the chain is one run of the order, and then the same as admit. */
static bool admit_run(const uint32_t *ks, const uint32_t *numbers, uint32_t len)
{
    for (uint32_t i = 1; i < len; i++)
        if (store.blocks[numbers[i - 1]].older != numbers[i])
            return false;
    kvr_block_store_unlink_run(&store, numbers, len);
    kvr_block_store_link_run(&store, numbers, len);
    for (uint32_t i = len; i-- > 0;)
        touched[ks[i]] = ++links;
    runs++;
    return true;
}

static void admit(const uint32_t *ks, uint32_t len)
{
    uint32_t numbers[LEN] = {0}, missing = 0;
    for (uint32_t i = 0; i < len; i++) {
        numbers[i] = block_of[ks[i]];
        missing += numbers[i] == 0;
    }
    if (missing == 0 && admit_run(ks, numbers, len))
        return;
    assert_int_equal(kvr_block_store_unlink_chain(&store, numbers, len), missing);
    while (store.count + len > BLOCKS) {
        uint32_t oldest = kvr_block_store_oldest(&store), k = 0;
        while (block_of[k] != oldest)
            k++;
        kvr_block_store_release(&store, oldest);
        block_of[k] = 0;
    }
    for (uint32_t i = len; i-- > 0;) {
        if (numbers[i] == 0)
            numbers[i] = kvr_block_store_take(&store, key_of(ks[i]));
        block_of[ks[i]] = numbers[i];
        touched[ks[i]] = ++links;
    }
    kvr_block_store_link_chain(&store, numbers, len);
}

static void test_random_chains(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 4);
    uint32_t in_a_row = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        start(seed);
        for (uint32_t call = 0; call < 1500; call++) {
            uint32_t ks[LEN];
            uint32_t len = random_chain(&rng, ks);
            check_finds(ks, len);
            if (kvr_rng_below(&rng, 3)) {
                admit(ks, len);
                check_finds(ks, len);
                for (uint32_t i = 1; i < len; i++)
                    in_a_row += block_of[ks[i]] + 1 == block_of[ks[i - 1]] ||
                                block_of[ks[i]] == block_of[ks[i - 1]] + 1;
            }
            if (call % 32 == 0)
                check_order();
        }
        check_order();
        kvr_block_store_deinit(&store);
    }
    /* Or nothing was ever found without the table, or moved in one piece. */
    assert_true(in_a_row > 10000 && runs > 1000);
}

/* The way down the slab ends at block 0, whose key, 0, is no key. */
static void test_key_zero_is_not_block_zero(void **state)
{
    (void)state;
    uint32_t numbers[3], ks[] = {1, 2};
    bool run = true;
    start(1);
    admit(ks, 2);
    assert_int_equal(block_of[2], 1);
    uint64_t chain[] = {key_of(1), key_of(2), 0};
    assert_int_equal(kvr_block_store_find_leading(&store, chain, 3, 0, numbers, &run), 2);
    assert_int_equal(numbers[2], 0);
    uint32_t zero[] = {0};
    admit(zero, 1);
    assert_int_equal(kvr_block_store_find_leading(&store, chain, 3, 0, numbers, &run), 3);
    assert_int_equal(numbers[2], 3);
    kvr_block_store_deinit(&store);
}

/* A block that went is not found along the order, though its key is still in the slab. */
static void test_released_block_is_not_found(void **state)
{
    (void)state;
    uint32_t numbers[3], ks[] = {1, 2, 3};
    bool run = true;
    uint64_t chain[] = {key_of(1), key_of(2), key_of(3)};
    start(1);
    admit(ks, 3);
    kvr_block_store_release(&store, block_of[2]);
    assert_int_equal(kvr_block_store_find_leading(&store, chain, 3, 0, numbers, &run), 1);
    kvr_block_store_find(&store, chain, 3, 0, numbers);
    assert_int_equal(numbers[0], 3);
    assert_int_equal(numbers[1], 0);
    assert_int_equal(numbers[2], 1);
    kvr_block_store_deinit(&store);
}

/* A number that is twice in a chain, or not in the order, is taken out of it once. */
static void test_unlink_takes_each_once(void **state)
{
    (void)state;
    uint32_t ks[] = {1, 2, 3, 4, 5};
    start(1);
    admit(ks, 5);
    uint32_t numbers[] = {block_of[2], block_of[3], 0, block_of[3], block_of[2], block_of[5]};
    assert_int_equal(kvr_block_store_unlink_chain(&store, numbers, 6), 3);
    const uint32_t left[] = {block_of[2], block_of[3], 0, 0, 0, block_of[5]};
    assert_memory_equal(numbers, left, sizeof left);
    assert_int_equal(store.count, 2);
    assert_int_equal(store.blocks[0].older, block_of[1]);
    assert_int_equal(store.blocks[block_of[1]].older, block_of[4]);
    assert_int_equal(store.blocks[block_of[4]].older, 0);
    assert_int_equal(kvr_block_store_oldest(&store), block_of[4]);
    kvr_block_store_deinit(&store);
}

static void test_lanes(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 12);
    for (uint32_t round = 0; round < 20000; round++) {
        struct kvr_block block, other;
        struct kvr_stamp_clock clock = {.oldest = (uint32_t)kvr_rng_next(&rng)};
        /* Few or many are fresh, up to half of all stamps. */
        clock.next = clock.oldest + 1 + (uint32_t)kvr_rng_below(&rng, UINT64_C(1) << (round % 31));
        for (uint32_t i = 0; i < KVR_BLOCK_HOLDERS; i++) {
            uint32_t near = (uint32_t)kvr_rng_below(&rng, 4) - 2;
            uint64_t kind = kvr_rng_below(&rng, 3);
            block.stamps[i] = kind == 0   ? clock.oldest + near
                              : kind == 1 ? clock.next + near
                                          : (uint32_t)kvr_rng_next(&rng);
            block.tenancies[i] = (uint16_t)(kvr_rng_below(&rng, 3) + (round % 2 ? 0x7fff : 0));
        }
        uint32_t stale = 0, naming = 0;
        for (uint32_t i = 0; i < KVR_BLOCK_HOLDERS; i++) {
            stale |= (uint32_t)!kvr_stamp_fresh(&clock, block.stamps[i]) << i;
            naming |= (uint32_t)(block.tenancies[i] == block.tenancies[3]) << i;
        }
        assert_int_equal(kvr_lanes_stale(kvr_lanes_span(&clock), block.stamps), stale);
        assert_int_equal(kvr_lanes_naming(block.tenancies, block.tenancies[3]), naming);
        other = block;
        assert_true(kvr_lanes_alike(block.tenancies, other.tenancies));
        other.tenancies[round % 8] ^= (uint16_t)(1u << kvr_rng_below(&rng, 16));
        assert_false(kvr_lanes_alike(block.tenancies, other.tenancies));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains),
        cmocka_unit_test(test_key_zero_is_not_block_zero),
        cmocka_unit_test(test_released_block_is_not_found),
        cmocka_unit_test(test_unlink_takes_each_once),
        cmocka_unit_test(test_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
