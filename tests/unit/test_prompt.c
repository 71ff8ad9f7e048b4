/* core/model/prompt: the chain of a prompt does not depend on how its bytes are handed over, agrees
 * with a chain computed as plainly as can be, and is shared exactly as far as prompts are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "prompt.h"
#include "rng.h"

#define BYTES 5000

static unsigned char text[BYTES];

static int make_text(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 5);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (unsigned char)kvr_rng_next(&rng);
    return 0;
}

/* The definition, word by word. Returns the number of blocks. */
static uint32_t naive_chain(const unsigned char *data, size_t len, uint64_t seed,
                            size_t block_bytes, size_t wide_after, uint64_t *chain)
{
    uint32_t blocks = 0;
    for (size_t at = 0;;) {
        size_t size = wide_after && at >= wide_after ? 256 : block_bytes;
        if (len - at < size)
            return blocks;
        seed = XXH3_64bits_withSeed(data + at, size, seed);
        chain[blocks++] = seed;
        at += size;
    }
}

static void test_known_chain(void **state)
{
    (void)state;
    struct kvr_prompt prompt;
    kvr_prompt_init(&prompt, NULL);
    uint64_t seed = kvr_prompt_scope(kvr_slice_of("m"), kvr_slice_of(""), kvr_slice_of("salt"));
    assert_true(seed == XXH3_64bits("m\0\0salt", 8));
    char as[200];
    memset(as, 'a', sizeof as);
    kvr_prompt_begin(&prompt, seed);
    kvr_prompt_add(&prompt, as, sizeof as);
    assert_int_equal(prompt.chain_len, 3); /* 8 bytes left over */
    assert_int_equal(prompt.bytes, 200);
    assert_true(prompt.chain[0] == XXH3_64bits_withSeed(as, 64, seed));
    assert_true(prompt.chain[1] == XXH3_64bits_withSeed(as, 64, prompt.chain[0]));
    /* Pinned: a chain written into a row must mean the same after an upgrade. */
    assert_true(prompt.chain[2] == 0x32040855f2085ef7u);
    kvr_prompt_deinit(&prompt);
}

static void test_scope_tells_names_apart(void **state)
{
    (void)state;
    struct kvr_slice a = kvr_slice_of("a"), ab = kvr_slice_of("ab"), b = kvr_slice_of("b"),
                     no = {0};
    uint64_t scopes[] = {kvr_prompt_scope(ab, no, no), kvr_prompt_scope(a, b, no),
                         kvr_prompt_scope(a, no, b),   kvr_prompt_scope(no, ab, no),
                         kvr_prompt_scope(no, no, ab), kvr_prompt_scope(no, no, no)};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(scopes[i] != scopes[j]);
    char long_name[2000];
    memset(long_name, 'x', sizeof long_name);
    uint64_t whole = kvr_prompt_scope(kvr_slice_make(long_name, sizeof long_name), no, no);
    uint64_t shorter = kvr_prompt_scope(kvr_slice_make(long_name, sizeof long_name - 1), no, no);
    assert_true(whole != shorter);
}

static void test_any_cut_gives_the_naive_chain(void **state)
{
    (void)state;
    static const struct kvr_prompt_options options[] = {{0},
                                                        {.block_bytes = 16},
                                                        {.block_bytes = 100},
                                                        {.block_bytes = 256},
                                                        {.wide_after = 1},
                                                        {.wide_after = 1024},
                                                        {.block_bytes = 48, .wide_after = 1000}};
    struct kvr_rng rng;
    uint64_t expected[BYTES / 16];
    kvr_rng_init(&rng, 9);
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        struct kvr_prompt prompt;
        kvr_prompt_init(&prompt, &options[o]);
        for (int round = 0; round < 300; round++) {
            size_t len = kvr_rng_below(&rng, BYTES + 1);
            uint64_t most = round % 2 ? 40 : 2000;
            uint32_t blocks = naive_chain(text, len, (uint64_t)round, prompt.options.block_bytes,
                                          options[o].wide_after, expected);
            kvr_prompt_begin(&prompt, (uint64_t)round);
            for (size_t at = 0; at < len;) {
                size_t n = kvr_rng_below(&rng, most);
                n = n < len - at ? n : len - at;
                kvr_prompt_add(&prompt, text + at, n);
                at += n;
            }
            assert_int_equal(prompt.bytes, len);
            assert_int_equal(prompt.chain_len, blocks);
            if (blocks)
                assert_memory_equal(prompt.chain, expected, blocks * sizeof *expected);
        }
        kvr_prompt_deinit(&prompt);
    }
}

static void test_change_is_seen_from_its_block_on(void **state)
{
    (void)state;
    struct kvr_prompt a, b;
    kvr_prompt_init(&a, NULL);
    kvr_prompt_init(&b, NULL);
    for (size_t changed = 0; changed < BYTES; changed += 61) {
        kvr_prompt_begin(&a, 1);
        kvr_prompt_add(&a, text, BYTES);
        text[changed] ^= 1;
        kvr_prompt_begin(&b, 1);
        kvr_prompt_add(&b, text, BYTES);
        text[changed] ^= 1;
        for (uint32_t i = 0; i < a.chain_len; i++)
            assert_int_equal(a.chain[i] == b.chain[i], i < changed / 64);
    }
    kvr_prompt_deinit(&a);
    kvr_prompt_deinit(&b);
}

static void test_resume_goes_on_where_it_stood(void **state)
{
    (void)state;
    static const struct kvr_prompt_options options[] = {{0}, {.wide_after = 512}};
    struct kvr_prompt whole, part;
    for (size_t o = 0; o < 2; o++) {
        kvr_prompt_init(&whole, &options[o]);
        kvr_prompt_init(&part, &options[o]);
        kvr_prompt_begin(&whole, 3);
        kvr_prompt_add(&whole, text, BYTES);
        for (size_t cut = 0; cut <= BYTES; cut += 37) {
            kvr_prompt_begin(&part, 3);
            kvr_prompt_add(&part, text, cut);
            struct kvr_prompt_tail tail = part.tail;
            uint32_t before = part.chain_len;
            kvr_prompt_begin(&part, 99); /* another request in between */
            kvr_prompt_add(&part, text, 1000);
            kvr_prompt_resume(&part, &tail);
            kvr_prompt_add(&part, text + cut, BYTES - cut);
            assert_int_equal(part.first_block, before);
            assert_int_equal(part.bytes, BYTES);
            assert_int_equal(before + part.chain_len, whole.chain_len);
            if (part.chain_len)
                assert_memory_equal(part.chain, whole.chain + before,
                                    part.chain_len * sizeof *part.chain);
        }
        kvr_prompt_deinit(&whole);
        kvr_prompt_deinit(&part);
    }
}

static void test_block_bound(void **state)
{
    (void)state;
    struct kvr_prompt prompt, free_of_it;
    kvr_prompt_init(&prompt, &(struct kvr_prompt_options){.max_blocks = 10});
    kvr_prompt_init(&free_of_it, NULL);
    kvr_prompt_begin(&free_of_it, 0);
    kvr_prompt_add(&free_of_it, text, BYTES);
    for (int piecewise = 0; piecewise < 2; piecewise++) {
        kvr_prompt_begin(&prompt, 0);
        for (size_t at = 0; at < BYTES; at += piecewise ? 10 : BYTES)
            kvr_prompt_add(&prompt, text + at, piecewise ? 10 : BYTES);
        assert_int_equal(prompt.chain_len, 10);
        assert_memory_equal(prompt.chain, free_of_it.chain, 10 * sizeof *prompt.chain);
        assert_int_equal(prompt.bytes, BYTES);
        assert_true(prompt.cut);
    }
    assert_int_equal(prompt.prompts_cut, 2);
    kvr_prompt_begin(&prompt, 0);
    kvr_prompt_add(&prompt, text, 640); /* exactly as many as may be */
    assert_int_equal(prompt.chain_len, 10);
    assert_false(prompt.cut);
    kvr_prompt_add_piece(&prompt, 1, 100000000000u); /* not walked through */
    assert_true(prompt.cut);
    assert_int_equal(prompt.bytes, 100000000640u);
    assert_int_equal(prompt.prompts_cut, 3);
    kvr_prompt_deinit(&prompt);
    kvr_prompt_deinit(&free_of_it);
}

/* --- pieces without text ------------------------------------------------------------------- */

struct piece {
    uint64_t id;
    uint64_t bytes;
};

static void add_pieces(struct kvr_prompt *prompt, const struct piece *pieces, size_t count)
{
    kvr_prompt_begin(prompt, 1);
    for (size_t i = 0; i < count; i++)
        kvr_prompt_add_piece(prompt, pieces[i].id, pieces[i].bytes);
}

static void test_pieces_share_what_they_have_in_common(void **state)
{
    (void)state;
    struct kvr_prompt a, b;
    kvr_prompt_init(&a, NULL);
    kvr_prompt_init(&b, NULL);
    add_pieces(&a, (struct piece[]){{1, 1000}, {2, 500}, {3, 700}}, 3);
    assert_int_equal(a.chain_len, 2200 / 64);
    assert_int_equal(a.bytes, 2200);
    /* the same */
    add_pieces(&b, (struct piece[]){{1, 1000}, {2, 500}, {3, 700}}, 3);
    assert_memory_equal(a.chain, b.chain, a.chain_len * sizeof *a.chain);
    /* another last piece: shared up to the block in which it starts */
    add_pieces(&b, (struct piece[]){{1, 1000}, {2, 500}, {4, 700}}, 3);
    for (uint32_t i = 0; i < a.chain_len; i++)
        assert_int_equal(a.chain[i] == b.chain[i], i < 1500 / 64);
    /* one piece shorter: its bytes are the first ones of the longer */
    add_pieces(&b, (struct piece[]){{1, 600}, {9, 1600}}, 2);
    for (uint32_t i = 0; i < a.chain_len; i++)
        assert_int_equal(a.chain[i] == b.chain[i], i < 600 / 64);
    /* the same pieces in another order share nothing */
    add_pieces(&b, (struct piece[]){{2, 500}, {1, 1000}, {3, 700}}, 3);
    for (uint32_t i = 0; i < a.chain_len; i++)
        assert_true(a.chain[i] != b.chain[i]);
    /* a continued prompt keeps its chain */
    add_pieces(&b, (struct piece[]){{1, 1000}, {2, 500}, {3, 700}, {5, 3000}}, 4);
    assert_memory_equal(a.chain, b.chain, a.chain_len * sizeof *a.chain);
    assert_int_equal(b.chain_len, 5200 / 64);
    kvr_prompt_deinit(&a);
    kvr_prompt_deinit(&b);
}

static void test_neighbouring_ids_do_not_overlap(void **state)
{
    (void)state;
    struct kvr_prompt prompt;
    uint64_t seen[64 * 8];
    size_t count = 0;
    kvr_prompt_init(&prompt, NULL);
    for (uint64_t id = 0; id < 64; id++) {
        kvr_prompt_begin(&prompt, 1);
        kvr_prompt_add_piece(&prompt, id, 64);
        for (size_t i = 0; i < count; i++)
            assert_true(seen[i] != prompt.chain[0]);
        seen[count++] = prompt.chain[0];
    }
    kvr_prompt_deinit(&prompt);
}

static void test_pieces_mix_with_text(void **state)
{
    (void)state;
    struct kvr_prompt a, b;
    kvr_prompt_init(&a, NULL);
    kvr_prompt_init(&b, NULL);
    kvr_prompt_begin(&a, 1);
    kvr_prompt_add(&a, text, 100);
    kvr_prompt_add_piece(&a, 7, 300);
    kvr_prompt_add(&a, text, 200);
    kvr_prompt_begin(&b, 1);
    kvr_prompt_add(&b, text, 50);
    kvr_prompt_add(&b, text + 50, 50);
    kvr_prompt_add_piece(&b, 7, 300);
    kvr_prompt_add(&b, text, 201);
    assert_int_equal(a.chain_len, 600 / 64);
    assert_memory_equal(a.chain, b.chain, a.chain_len * sizeof *a.chain);
    kvr_prompt_deinit(&a);
    kvr_prompt_deinit(&b);
}

static void test_identity(void **state)
{
    (void)state;
    unsigned char identity[16];
    XXH128_canonical_t wanted;
    XXH128_canonicalFromHash(&wanted, XXH3_128bits("image", 5));
    kvr_prompt_identity(kvr_slice_of("image"), identity);
    assert_memory_equal(identity, wanted.digest, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_chain),
        cmocka_unit_test(test_scope_tells_names_apart),
        cmocka_unit_test(test_any_cut_gives_the_naive_chain),
        cmocka_unit_test(test_change_is_seen_from_its_block_on),
        cmocka_unit_test(test_resume_goes_on_where_it_stood),
        cmocka_unit_test(test_block_bound),
        cmocka_unit_test(test_pieces_share_what_they_have_in_common),
        cmocka_unit_test(test_neighbouring_ids_do_not_overlap),
        cmocka_unit_test(test_pieces_mix_with_text),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, make_text, NULL);
}
