/* core/engine/tokens and answer: cuts, prefixes, the segment form against the text form, and the
 * rule by which an answer's blocks are found again in the next turn. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "rng.h"
#include "tokens.h"

#define TEXT_MAX 4096

static uint32_t shared_blocks(const struct kvr_tokens *a, const struct kvr_tokens *b)
{
    uint32_t run = 0;
    while (run < a->blocks_len && run < b->blocks_len && a->blocks[run] == b->blocks[run])
        run++;
    return run;
}

static void add_message(struct kvr_tokens *tokens, enum kvr_markup role, struct kvr_slice text)
{
    kvr_tokens_markup(tokens, role, KVR_MARKUP_OPEN_TOKENS);
    kvr_tokens_text(tokens, text);
    kvr_tokens_markup(tokens, KVR_MARKUP_END, 1);
}

static void test_cuts(void **state)
{
    (void)state;
    const double sizes[] = {1.0, 1.59, 2.0, 3.3, 4.0, 7.25, 8.0, 19.9, 64.0};
    char text[TEXT_MAX];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct kvr_tokens tokens;
        kvr_tokens_init(&tokens, sizes[i]);
        for (size_t len = 0; len < 600; len++) {
            uint32_t count = kvr_tokens_of_bytes(&tokens, len);
            /* The last token holds the last byte, and no token is empty. */
            assert_true(kvr_tokens_cut(&tokens, count) >= len);
            assert_true(count == 0 || kvr_tokens_cut(&tokens, count - 1) < len);
            kvr_tokens_begin(&tokens, 0, true);
            kvr_tokens_text(&tokens, kvr_slice_make(text, len));
            assert_int_equal(tokens.count, count);
            assert_int_equal(tokens.blocks_len, count / 16);
        }
        kvr_tokens_deinit(&tokens);
    }
    struct kvr_tokens study;
    kvr_tokens_init(&study, 1.59);
    assert_int_equal(kvr_tokens_of_bytes(&study, 2048), 1289);
    assert_int_equal(kvr_tokens_of_bytes(&study, 1792), 1128);
    kvr_tokens_deinit(&study);
}

static void test_longer_text_keeps_tokens(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    char text[TEXT_MAX];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)kvr_rng_below(&rng, 256);
    const double sizes[] = {1.59, 4.0, 11.0};
    for (int i = 0; i < 3; i++) {
        struct kvr_tokens a, b;
        kvr_tokens_init(&a, sizes[i]);
        kvr_tokens_init(&b, sizes[i]);
        for (int round = 0; round < 200; round++) {
            size_t len = kvr_rng_below(&rng, TEXT_MAX / 2);
            size_t more = kvr_rng_below(&rng, TEXT_MAX / 2);
            kvr_tokens_begin(&a, 0, true);
            kvr_tokens_text(&a, kvr_slice_make(text, len));
            kvr_tokens_begin(&b, 0, true);
            kvr_tokens_text(&b, kvr_slice_make(text, len + more));
            /* All but the last token, which may have been cut short. */
            for (uint32_t k = 0; k + 1 < a.count; k++)
                assert_int_equal(a.ids[k], b.ids[k]);
            assert_true(shared_blocks(&a, &b) >= (a.count ? (a.count - 1) / 16 : 0));

            /* One other byte: every block from there on is another. */
            if (len) {
                size_t at = kvr_rng_below(&rng, len);
                text[at] ^= 1;
                kvr_tokens_begin(&b, 0, false);
                kvr_tokens_text(&b, kvr_slice_make(text, len));
                text[at] ^= 1;
                uint32_t token = 0;
                while (kvr_tokens_cut(&a, token + 1) <= at)
                    token++;
                for (uint32_t k = 0; k < a.blocks_len; k++)
                    assert_int_equal(a.blocks[k] == b.blocks[k], k < token / 16);
            }
        }
        kvr_tokens_deinit(&a);
        kvr_tokens_deinit(&b);
    }
}

static void test_ids_give_the_chain_of_their_text(void **state)
{
    (void)state;
    struct kvr_tokens text, ids;
    kvr_tokens_init(&text, 4.0);
    kvr_tokens_init(&ids, 4.0);
    kvr_tokens_begin(&text, 7, true);
    kvr_tokens_markup(&text, KVR_MARKUP_HEAD, 28);
    add_message(&text, KVR_MARKUP_USER,
                kvr_slice_of("The quick brown fox jumps over the lazy dog, twice a day, "
                             "and thinks nothing of it at all."));
    kvr_tokens_begin(&ids, 7, false);
    for (uint32_t i = 0; i < text.count; i++) {
        assert_true(text.ids[i] <= INT32_MAX);
        kvr_tokens_id(&ids, text.ids[i]);
    }
    assert_true(text.blocks_len >= 3);
    assert_int_equal(shared_blocks(&text, &ids), text.blocks_len);
    assert_int_equal(kvr_tokens_digest(&text), kvr_tokens_digest(&ids));

    /* Another salt: another cache. */
    kvr_tokens_begin(&ids, 8, false);
    for (uint32_t i = 0; i < text.count; i++)
        kvr_tokens_id(&ids, text.ids[i]);
    assert_int_equal(shared_blocks(&text, &ids), 0);
    assert_int_not_equal(kvr_tokens_digest(&text), kvr_tokens_digest(&ids));
    kvr_tokens_deinit(&text);
    kvr_tokens_deinit(&ids);
}

#define PIECES  6
#define PROMPTS 12

/* A prompt as pieces of named texts, in both forms. */
static void build(struct kvr_tokens *text, struct kvr_tokens *segments, struct kvr_rng *rng)
{
    kvr_tokens_begin(text, 0, false);
    kvr_tokens_begin(segments, 0, false);
    uint64_t pieces = 1 + kvr_rng_below(rng, PIECES);
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t id = kvr_rng_below(rng, 2); /* often the same start */
        uint32_t len = (uint32_t)(kvr_rng_below(rng, 2) ? 40 : 1 + kvr_rng_below(rng, 70));
        char bytes[4 * 80];
        kvr_answer_bytes(id, 0, 4 * len, bytes);
        kvr_tokens_text(text, kvr_slice_make(bytes, 4 * len));
        kvr_tokens_segment(segments, id, len);
    }
    assert_int_equal(text->count, segments->count);
    assert_int_equal(text->blocks_len, segments->blocks_len);
}

static void test_segments_match_as_text_does(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 2);
    struct kvr_tokens text[PROMPTS], segments[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) {
        kvr_tokens_init(&text[i], 4.0);
        kvr_tokens_init(&segments[i], 4.0);
    }
    uint64_t shared = 0;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < PROMPTS; i++)
            build(&text[i], &segments[i], &rng);
        for (int i = 0; i < PROMPTS; i++)
            for (int k = 0; k < i; k++) {
                uint32_t by_text = shared_blocks(&text[i], &text[k]);
                uint32_t by_segments = shared_blocks(&segments[i], &segments[k]);
                assert_int_equal(by_segments, by_text);
                shared += by_segments;
            }
    }
    assert_true(shared > 10000);
    for (int i = 0; i < PROMPTS; i++) {
        kvr_tokens_deinit(&text[i]);
        kvr_tokens_deinit(&segments[i]);
    }
}

static void test_segment_prefixes(void **state)
{
    (void)state;
    struct kvr_tokens a, b;
    kvr_tokens_init(&a, 4.0);
    kvr_tokens_init(&b, 4.0);
    /* The same segment, shorter: equal as far as whole blocks go. */
    kvr_tokens_begin(&a, 0, false);
    kvr_tokens_segment(&a, 5, 28);
    kvr_tokens_segment(&a, 6, 100);
    kvr_tokens_begin(&b, 0, false);
    kvr_tokens_segment(&b, 5, 28);
    kvr_tokens_segment(&b, 6, 60);
    kvr_tokens_segment(&b, 7, 60);
    assert_int_equal(shared_blocks(&a, &b), (28 + 60) / 16);
    /* The same tokens at another place are another prefix. */
    kvr_tokens_begin(&b, 0, false);
    kvr_tokens_segment(&b, 5, 27);
    kvr_tokens_segment(&b, 6, 100);
    assert_int_equal(shared_blocks(&a, &b), 1);
    kvr_tokens_begin(&b, 0, false);
    kvr_tokens_segment(&b, 6, 100);
    assert_int_equal(shared_blocks(&a, &b), 0);
    kvr_tokens_deinit(&a);
    kvr_tokens_deinit(&b);
}

static void begin_chat(struct kvr_tokens *tokens, const char *question)
{
    kvr_tokens_begin(tokens, 0, false);
    kvr_tokens_markup(tokens, KVR_MARKUP_HEAD, 28);
    add_message(tokens, KVR_MARKUP_USER, kvr_slice_of(question));
}

static void test_answer_is_found_in_the_next_turn(void **state)
{
    (void)state;
    const double sizes[] = {1.0, 1.59, 4.0};
    for (int i = 0; i < 3; i++) {
        struct kvr_tokens first, second;
        kvr_tokens_init(&first, sizes[i]);
        kvr_tokens_init(&second, sizes[i]);
        begin_chat(&first, "What is the airspeed velocity of an unladen swallow?");
        kvr_tokens_markup(&first, KVR_MARKUP_ASSISTANT, KVR_MARKUP_OPEN_TOKENS);
        uint32_t prompt = first.count;
        uint64_t seed = kvr_tokens_digest(&first);
        for (uint32_t said = 1; said < 100; said += 7) {
            size_t bytes = kvr_tokens_cut(&first, said);
            char answer[TEXT_MAX];
            kvr_answer_bytes(seed, 0, bytes, answer);
            begin_chat(&first, "What is the airspeed velocity of an unladen swallow?");
            kvr_tokens_markup(&first, KVR_MARKUP_ASSISTANT, KVR_MARKUP_OPEN_TOKENS);
            kvr_tokens_text(&first, kvr_slice_make(answer, bytes));
            assert_int_equal(first.count, prompt + said);

            begin_chat(&second, "What is the airspeed velocity of an unladen swallow?");
            add_message(&second, KVR_MARKUP_ASSISTANT, kvr_slice_make(answer, bytes));
            add_message(&second, KVR_MARKUP_USER, kvr_slice_of("African or European?"));
            assert_int_equal(shared_blocks(&first, &second), (prompt + said) / 16);
        }
        kvr_tokens_deinit(&first);
        kvr_tokens_deinit(&second);
    }
}

static void test_answer_text(void **state)
{
    (void)state;
    char whole[1000], part[1000];
    kvr_answer_bytes(9, 0, sizeof whole, whole);
    for (size_t i = 0; i < sizeof whole; i++)
        assert_true(isprint((unsigned char)whole[i]));
    struct kvr_rng rng;
    kvr_rng_init(&rng, 3);
    for (int round = 0; round < 500; round++) {
        size_t from = kvr_rng_below(&rng, 1000);
        size_t len = kvr_rng_below(&rng, 1000 - from);
        kvr_answer_bytes(9, from, len, part);
        assert_memory_equal(part, whole + from, len);
    }
    kvr_answer_bytes(10, 0, sizeof part, part);
    assert_memory_not_equal(part, whole, 100);
}

static void test_answer_length(void **state)
{
    (void)state;
    int stopped = 0;
    double sum = 0.0;
    uint32_t least = 64, most = 0;
    for (uint64_t seed = 0; seed < 100000; seed++) {
        struct kvr_answer_length length = kvr_answer_length(seed, 64, 0.2);
        assert_true(length.stopped ? length.tokens >= 1 && length.tokens <= 63
                                   : length.tokens == 64);
        if (!length.stopped)
            continue;
        stopped++;
        sum += length.tokens;
        least = length.tokens < least ? length.tokens : least;
        most = length.tokens > most ? length.tokens : most;
    }
    assert_in_range(stopped, 19500, 20500);
    assert_true(sum / stopped > 31.0 && sum / stopped < 33.0);
    assert_int_equal(least, 1);
    assert_int_equal(most, 63);
    assert_int_equal(kvr_answer_length(1, 1, 1.0).tokens, 1);
    assert_false(kvr_answer_length(1, 64, 0.0).stopped);
    assert_int_equal(kvr_answer_length(5, 64, 0.5).tokens, kvr_answer_length(5, 64, 0.5).tokens);
}

/* Chains are part of committed figures: they must never change by accident. */
static void test_same_chain_everywhere(void **state)
{
    (void)state;
    struct kvr_tokens tokens;
    kvr_tokens_init(&tokens, 1.59);
    begin_chat(&tokens, "Same seed, same digits, on any machine; caf\xc3\xa9 too.");
    kvr_tokens_segment(&tokens, 12345, 678);
    assert_int_equal(tokens.count, 28 + 4 + 32 + 678);
    assert_int_equal(tokens.blocks[0], UINT64_C(0xcb43cbc9d687b7c6));
    assert_int_equal(tokens.blocks[tokens.blocks_len - 1], UINT64_C(0xdf617d6875a01115));
    assert_int_equal(kvr_tokens_digest(&tokens), UINT64_C(0x937579fd4db9454d));
    kvr_tokens_deinit(&tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_longer_text_keeps_tokens),
        cmocka_unit_test(test_ids_give_the_chain_of_their_text),
        cmocka_unit_test(test_segments_match_as_text_does),
        cmocka_unit_test(test_segment_prefixes),
        cmocka_unit_test(test_answer_is_found_in_the_next_turn),
        cmocka_unit_test(test_answer_text),
        cmocka_unit_test(test_answer_length),
        cmocka_unit_test(test_same_chain_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
