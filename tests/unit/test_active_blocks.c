/* Blocks of prompts in flight: random prompts come and go, against counts in plain arrays. */
#include "unit.h"

#include <string.h>

#include "active_blocks.h"
#include "rng.h"

#define REPLICAS  4u
#define TREE      200u
#define PATH_MAX  24u
#define OPEN_MAX  60u
#define PAIRS_MAX 120u

struct prompt {
    uint64_t chain[PATH_MAX];
    uint32_t nodes[PATH_MAX], len, replica;
};

static uint64_t key_of(uint32_t node)
{
    return kvr_mix64(node + 1000u);
}

/* A path from a root of the tree: node n hangs below n / 2, so prompts share their beginnings. */
static struct prompt random_prompt(struct kvr_rng *rng)
{
    struct prompt prompt = {.replica = (uint32_t)kvr_rng_below(rng, REPLICAS)};
    uint32_t node = (uint32_t)kvr_rng_below(rng, TREE), up[PATH_MAX];
    for (;; node /= 2) {
        up[prompt.len++] = node;
        if (node == 0)
            break;
    }
    for (uint32_t i = 0; i < prompt.len; i++) {
        prompt.nodes[i] = up[prompt.len - 1 - i];
        prompt.chain[i] = key_of(prompt.nodes[i]);
    }
    return prompt;
}

static void test_random_prompts_against_counts(void **state)
{
    (void)state;
    struct kvr_active_blocks active;
    struct kvr_rng rng;
    struct prompt open[OPEN_MAX];
    uint32_t count[REPLICAS][TREE] = {{0}}, opened = 0, refused = 0;
    kvr_rng_init(&rng, 3);
    kvr_active_blocks_init(&active, REPLICAS, PAIRS_MAX);
    for (int step = 0; step < 20000; step++) {
        struct prompt prompt = random_prompt(&rng);
        if (opened < OPEN_MAX && kvr_rng_below(&rng, 100) < 55) {
            bool fits = active.used + prompt.len <= PAIRS_MAX;
            assert_int_equal(
                kvr_active_blocks_add(&active, prompt.replica, prompt.chain, prompt.len), fits);
            refused += !fits;
            for (uint32_t i = 0; fits && i < prompt.len; i++)
                count[prompt.replica][prompt.nodes[i]]++;
            if (fits)
                open[opened++] = prompt;
        } else if (opened) {
            uint32_t at = (uint32_t)kvr_rng_below(&rng, opened);
            for (uint32_t i = 0; i < open[at].len; i++)
                count[open[at].replica][open[at].nodes[i]]--;
            kvr_active_blocks_remove(&active, open[at].replica, open[at].chain, open[at].len);
            open[at] = open[--opened];
        }
        prompt = random_prompt(&rng);
        for (uint32_t r = 0; r < REPLICAS; r++) {
            uint32_t distinct = 0, leading = 0;
            for (uint32_t node = 0; node < TREE; node++)
                distinct += count[r][node] != 0;
            while (leading < prompt.len && count[r][prompt.nodes[leading]])
                leading++;
            assert_int_equal(kvr_active_blocks_distinct(&active, r), distinct);
            assert_int_equal(kvr_active_blocks_match(&active, r, prompt.chain, prompt.len),
                             leading);
        }
    }
    assert_true(refused > 0);
    assert_int_equal(active.refused, refused);
    while (opened--)
        kvr_active_blocks_remove(&active, open[opened].replica, open[opened].chain,
                                 open[opened].len);
    assert_int_equal(active.used, 0);
    kvr_active_blocks_deinit(&active);
}

static void test_grows_as_it_fills(void **state)
{
    (void)state;
    struct kvr_active_blocks active;
    static uint64_t chain[50000];
    kvr_active_blocks_init(&active, 2, 0);
    assert_int_equal(kvr_active_blocks_match(&active, 1, chain, 5), 0); /* before the first */
    for (uint32_t i = 0; i < 50000; i++)
        chain[i] = key_of(i);
    for (uint32_t r = 0; r < 2; r++)
        assert_true(kvr_active_blocks_add(&active, r, chain, 50000));
    assert_true(kvr_active_blocks_add(&active, 1, chain, 49999));
    assert_int_equal(kvr_active_blocks_match(&active, 0, chain, 50000), 50000);
    kvr_active_blocks_remove(&active, 1, chain, 50000);
    assert_int_equal(kvr_active_blocks_match(&active, 1, chain, 50000), 49999);
    kvr_active_blocks_remove(&active, 1, chain, 49999);
    assert_int_equal(kvr_active_blocks_distinct(&active, 1), 0);
    assert_int_equal(kvr_active_blocks_distinct(&active, 0), 50000);
    kvr_active_blocks_remove(&active, 0, chain, 50000);
    assert_dies(kvr_active_blocks_remove(&active, 0, chain, 1));
    kvr_active_blocks_deinit(&active);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_prompts_against_counts),
        cmocka_unit_test(test_grows_as_it_fills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
