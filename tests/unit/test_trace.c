/* Rows of traces, and what becomes of block ids: prompts share exactly their common leading blocks.
 */
#include "unit.h"

#include <math.h>

#include "prompt.h"
#include "rng.h"
#include "tokens.h"
#include "trace.h"
#include "trace_row.h"

struct fixture {
    struct kvr_workload *workload;
    struct kvr_trace *trace;
    struct kvr_error error;
};

static struct fixture begin(double bytes_per_token)
{
    struct kvr_workload_options options;
    struct fixture f = {0};
    kvr_workload_defaults(&options);
    options.kind = KVR_WORKLOAD_LIST;
    options.arrivals = KVR_ARRIVALS_TIMES;
    options.bytes_per_token = bytes_per_token;
    f.workload = kvr_workload_create(&options, &f.error);
    assert_non_null(f.workload);
    f.trace = kvr_trace_create(f.workload);
    return f;
}

static void end(struct fixture *f)
{
    kvr_trace_destroy(f->trace);
    kvr_workload_destroy(f->workload);
}

static int feed(struct fixture *f, const char *text)
{
    return kvr_trace_feed(f->trace, text, strlen(text), &f->error);
}

/* The n-th request in order of time. */
static struct kvr_workload_request request_at(struct fixture *f, uint64_t n)
{
    struct kvr_workload_request request = {0};
    struct kvr_arrival arrival;
    kvr_workload_rewind(f->workload);
    for (uint64_t i = 0; i <= n; i++)
        assert_true(kvr_workload_next(f->workload, &arrival));
    assert_true(kvr_workload_turn(f->workload, arrival.user, arrival.turn, &request));
    return request;
}

/* Blocks of 16 tokens that the prompts of two requests have in common, as an engine hashes them. */
static uint32_t shared_blocks(struct fixture *f, uint64_t a, uint64_t b, double bytes_per_token)
{
    struct kvr_tokens tokens[2];
    uint64_t which[2] = {a, b};
    for (int side = 0; side < 2; side++) {
        struct kvr_workload_request request = request_at(f, which[side]);
        kvr_tokens_init(&tokens[side], bytes_per_token);
        kvr_tokens_begin(&tokens[side], 0, false);
        for (uint32_t i = 0; i < request.pieces_len; i++)
            kvr_tokens_segment(&tokens[side], request.pieces[i].id, request.pieces[i].bytes);
    }
    uint32_t same = 0;
    while (same < tokens[0].blocks_len && same < tokens[1].blocks_len &&
           tokens[0].blocks[same] == tokens[1].blocks[same])
        same++;
    kvr_tokens_deinit(&tokens[0]);
    kvr_tokens_deinit(&tokens[1]);
    return same;
}

static void a_row_says_all_of_a_request(void **state)
{
    (void)state;
    struct kvr_trace_row row = {0};
    struct kvr_error error = {0};
    const char *line =
        "{\"session\":\"s\",\"turn\":3,\"tenant\":\"t\",\"think_ms\":12.5,"
        "\"input_tokens\":100,\"output_tokens\":7,\"block_tokens\":16,"
        "\"blocks\":[[5,2],[7,1],[90,4]],\"measured\":{\"ttft_ms\":[1]},\"user\":\"x\"}";
    assert_int_equal(kvr_trace_row_read(&row, kvr_slice_of(line), &error), KVR_OK);
    assert_true(row.session != 0 && row.tenant != 0);
    assert_int_equal(row.turn, 3);
    assert_true(isnan(row.at_ms));
    assert_true(row.think_ms == 12.5);
    assert_int_equal(row.input_tokens, 100);
    assert_int_equal(row.output_tokens, 7);
    assert_int_equal(row.block_tokens, 16);
    assert_int_equal(row.runs_len, 2); /* neighbours have joined */
    assert_int_equal(row.runs[0].first, 5);
    assert_int_equal(row.runs[0].count, 3);
    assert_int_equal(row.runs[1].first, 90);
    assert_int_equal(row.runs[1].count, 4);

    line = "{\"input_tokens\":1,\"output_tokens\":0,\"at_ms\":0}";
    assert_int_equal(kvr_trace_row_read(&row, kvr_slice_of(line), &error), KVR_OK);
    assert_true(row.session == 0 && row.tenant == 0 && row.turn == 0 && row.runs_len == 0);
    assert_true(row.at_ms == 0 && isnan(row.think_ms));
    kvr_trace_row_deinit(&row);
}

#define ROW "\"input_tokens\":40,\"output_tokens\":1"

static void a_bad_row_is_named_with_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"[]", "no JSON object"},
        {"{\"output_tokens\":1}", "input_tokens: is missing"},
        {"{\"input_tokens\":1}", "output_tokens: is missing"},
        {"{\"input_tokens\":0,\"output_tokens\":1}", "input_tokens: 1 to"},
        {"{\"input_tokens\":1.5,\"output_tokens\":1}", "input_tokens: 1 to"},
        {"{\"input_tokens\":\"1\",\"output_tokens\":1}", "input_tokens: 1 to"},
        {"{\"input_tokens\":16777217,\"output_tokens\":1}", "input_tokens: 1 to"},
        {"{\"input_tokens\":1,\"output_tokens\":-1}", "output_tokens: 0 to"},
        {"{" ROW ",\"at_ms\":null}", "at_ms: a time"},
        {"{" ROW ",\"at_ms\":-1}", "at_ms: a time"},
        {"{" ROW ",\"at_ms\":1e999}", "at_ms: a time"},
        {"{" ROW ",\"think_ms\":1}", "think_ms: needs a session"},
        {"{" ROW ",\"session\":\"s\",\"think_ms\":1,\"at_ms\":1}", "think_ms: a row has this or"},
        {"{" ROW ",\"session\":7}", "session: a text"},
        {"{" ROW ",\"tenant\":null}", "tenant: a text"},
        {"{" ROW ",\"turn\":0}", "turn: a number"},
        {"{" ROW ",\"blocks\":[[1,1]]}", "block_tokens: is missing"},
        {"{" ROW ",\"block_tokens\":0}", "block_tokens: 1 to"},
        {"{" ROW ",\"block_tokens\":16,\"blocks\":[1,2]}", "blocks: one list"},
        {"{" ROW ",\"block_tokens\":16,\"blocks\":[[1]]}", "blocks: one list"},
        {"{" ROW ",\"block_tokens\":16,\"blocks\":[[1,0]]}", "blocks: one list"},
        {"{" ROW ",\"block_tokens\":16,\"blocks\":[[1,1,1]]}", "blocks: one list"},
        {"{" ROW ",\"block_tokens\":16,\"blocks\":[[1,1]],\"blocks\":[[1,1]]}", "blocks: one list"},
        {"{" ROW ",\"block_tokens\":16,\"blocks\":[[1,2],[9,2]]}", "blocks: more ids"},
    };
    struct kvr_trace_row row = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_error error = {0};
        int code = kvr_trace_row_read(&row, kvr_slice_of(cases[i].line), &error);
        if (code != KVR_E_INVALID || !strstr(error.text, cases[i].words))
            fail_msg("%s: %d %s", cases[i].line, code, error.text);
    }
    kvr_trace_row_deinit(&row);
}

static void lines_may_be_cut_anywhere(void **state)
{
    (void)state;
    const char *text = "{\"at_ms\":0,\"input_tokens\":5,\"output_tokens\":2}\n\n"
                       "{\"at_ms\":1,\"input_tokens\":6,\"output_tokens\":3}\r\n"
                       "{\"at_ms\":2,\"input_tokens\":7,\"output_tokens\":4}";
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct fixture f = begin(1);
        for (size_t at = 0; at < strlen(text); at += piece) {
            size_t len = strlen(text) - at < piece ? strlen(text) - at : piece;
            assert_int_equal(kvr_trace_feed(f.trace, text + at, len, &f.error), KVR_OK);
        }
        assert_int_equal(kvr_trace_end(f.trace, &f.error), KVR_OK);
        assert_int_equal(kvr_trace_count(f.trace), 3);
        for (uint64_t i = 0; i < 3; i++) {
            assert_int_equal(request_at(&f, i).prompt_bytes, 5 + i);
            assert_int_equal(request_at(&f, i).output_tokens, 2 + i);
            assert_int_equal(request_at(&f, i).max_tokens, 2 + i);
        }
        end(&f);
    }
}

static void a_bad_line_is_counted_and_ends_it(void **state)
{
    (void)state;
    struct fixture f = begin(1);
    assert_int_equal(feed(&f, "{\"at_ms\":9,\"input_tokens\":5,\"output_tokens\":2}\n\n"), KVR_OK);
    assert_int_equal(feed(&f, "{\"at_ms\":8,\"input_tokens\":5,\"output_tokens\":2}\n"),
                     KVR_E_INVALID);
    assert_string_equal(f.error.text, "line 3: at_ms: is before the line above");
    assert_int_equal(feed(&f, "{\"at_ms\":9,\"input_tokens\":5,\"output_tokens\":2}\n"),
                     KVR_E_STATE);
    assert_int_equal(kvr_trace_end(f.trace, &f.error), KVR_E_STATE);
    assert_int_equal(kvr_trace_count(f.trace), 1);
    end(&f);

    f = begin(1);
    assert_int_equal(feed(&f, "{\"at_ms\":9,\"inp"), KVR_OK);
    assert_int_equal(kvr_trace_end(f.trace, &f.error), KVR_E_INVALID);
    assert_non_null(strstr(f.error.text, "line 1: "));
    end(&f);
}

/* Leading common blocks are shared and nothing behind them, even where an id is known. */
static void equal_ids_are_equal_prefixes(void **state)
{
    (void)state;
    struct fixture f = begin(1); /* a byte a token: segments are as long as pieces */
    const char *text = "{\"at_ms\":0,\"input_tokens\":96,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,4],[9,2]]}\n"
                       "{\"at_ms\":1,\"input_tokens\":128,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,3],[70,5]]}\n"
                       "{\"at_ms\":2,\"input_tokens\":96,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,4],[9,1],[30,1]]}\n"
                       "{\"at_ms\":3,\"input_tokens\":96,\"output_tokens\":1,\"block_tokens\":32,"
                       "\"blocks\":[[1,2]]}\n"
                       "{\"at_ms\":4,\"input_tokens\":64,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[5,1],[9,2]]}\n";
    assert_int_equal(feed(&f, text), KVR_OK);
    assert_int_equal(shared_blocks(&f, 0, 0, 1), 6);
    assert_int_equal(shared_blocks(&f, 0, 1, 1), 3);
    assert_int_equal(shared_blocks(&f, 0, 2, 1), 5);
    assert_int_equal(shared_blocks(&f, 1, 2, 1), 3);
    assert_int_equal(shared_blocks(&f, 0, 3, 1), 0); /* ids of another block size are others */
    assert_int_equal(shared_blocks(&f, 0, 4, 1), 0);
    end(&f);
}

static void what_no_id_covers_is_new(void **state)
{
    (void)state;
    struct fixture f = begin(1);
    /* floor: 40 tokens, 2 ids. Ceil: 3 ids, the last one of 8 tokens. None at all. */
    const char *text = "{\"at_ms\":0,\"input_tokens\":40,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,2]]}\n"
                       "{\"at_ms\":1,\"input_tokens\":40,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,2]]}\n"
                       "{\"at_ms\":2,\"input_tokens\":40,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,3]]}\n"
                       "{\"at_ms\":3,\"input_tokens\":40,\"output_tokens\":1}\n"
                       "{\"at_ms\":4,\"input_tokens\":40,\"output_tokens\":0}\n"
                       "{\"at_ms\":5,\"input_tokens\":90,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,2]]}\n"
                       "{\"at_ms\":6,\"input_tokens\":90,\"output_tokens\":1,\"block_tokens\":16,"
                       "\"blocks\":[[1,2]]}\n";
    assert_int_equal(feed(&f, text), KVR_OK);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(request_at(&f, i).prompt_bytes, 40);
    assert_int_equal(request_at(&f, 0).pieces_len, 2);
    struct kvr_workload_request partial = request_at(&f, 2);
    assert_int_equal(partial.pieces_len, 1);
    assert_int_equal(partial.pieces[0].bytes, 40);
    assert_int_equal(shared_blocks(&f, 0, 1, 1), 2);
    assert_int_equal(shared_blocks(&f, 0, 2, 1), 2);
    assert_int_equal(shared_blocks(&f, 5, 6, 1), 2); /* and not the 58 tokens behind */
    assert_int_equal(shared_blocks(&f, 3, 4, 1), 0);
    assert_int_equal(request_at(&f, 4).output_tokens, 1);
    end(&f);
}

/* With 1.59 bytes a token, equal prefixes are still equal bytes wherever the runs are cut. */
static void pieces_are_as_long_as_their_tokens(void **state)
{
    (void)state;
    struct fixture f = begin(1.59);
    const char *text =
        "{\"at_ms\":0,\"input_tokens\":6758,\"output_tokens\":1,\"block_tokens\":512,"
        "\"blocks\":[[0,1],[52,6],[90,7]]}\n"
        "{\"at_ms\":1,\"input_tokens\":3900,\"output_tokens\":1,\"block_tokens\":512,"
        "\"blocks\":[[0,1],[52,6],[99,1]]}\n";
    assert_int_equal(feed(&f, text), KVR_OK);
    assert_int_equal(request_at(&f, 0).prompt_bytes, (uint32_t)(6758 * 1.59));
    assert_int_equal(request_at(&f, 1).prompt_bytes, (uint32_t)(3900 * 1.59));

    struct kvr_prompt prompts[2];
    for (uint64_t side = 0; side < 2; side++) {
        struct kvr_workload_request request = request_at(&f, side);
        kvr_prompt_init(&prompts[side], NULL);
        kvr_prompt_begin(&prompts[side], 1);
        for (uint32_t i = 0; i < request.pieces_len; i++)
            kvr_prompt_add_piece(&prompts[side], request.pieces[i].id, request.pieces[i].bytes);
    }
    uint32_t same = 0;
    while (prompts[0].chain[same] == prompts[1].chain[same])
        same++;
    assert_int_equal(same, (uint32_t)(7 * 512 * 1.59) / KVR_PROMPT_BLOCK_BYTES);
    kvr_prompt_deinit(&prompts[0]);
    kvr_prompt_deinit(&prompts[1]);
    end(&f);
}

/* A router's rows know bytes. */
static void lengths_may_be_in_bytes(void **state)
{
    (void)state;
    struct fixture f = begin(1.59);
    const char *text = "{\"at_ms\":0,\"input_tokens\":100,\"output_tokens\":1,\"input_bytes\":1000,"
                       "\"block_bytes\":64,\"blocks\":[[1,15]]}\n"
                       "{\"at_ms\":1,\"input_tokens\":60,\"output_tokens\":1,\"input_bytes\":600,"
                       "\"block_bytes\":64,\"blocks\":[[1,5],[16,4]]}\n";
    assert_int_equal(feed(&f, text), KVR_OK);
    struct kvr_workload_request first = request_at(&f, 0);
    assert_int_equal(first.prompt_bytes, 1000);
    assert_int_equal(first.pieces_len, 2);
    assert_int_equal(first.pieces[0].bytes, 15 * 64);
    struct kvr_workload_request second = request_at(&f, 1);
    assert_int_equal(second.prompt_bytes, 600);
    assert_int_equal(second.pieces_len, 3);
    assert_int_equal(second.pieces[0].bytes, 5 * 64);
    assert_int_equal(second.pieces[1].bytes, 4 * 64);
    end(&f);
    f = begin(1);
    assert_int_equal(feed(&f, text), KVR_OK);
    assert_int_equal(shared_blocks(&f, 0, 1, 1), 5 * 64 / 16);
    end(&f);
}

static void sessions_go_on_after_their_answers(void **state)
{
    (void)state;
    struct fixture f = begin(1);
    const char *text =
        "{\"session\":\"a\",\"at_ms\":1000,\"input_tokens\":5,\"output_tokens\":1}\n"
        "{\"session\":\"a\",\"turn\":4,\"think_ms\":250,\"input_tokens\":6,\"output_tokens\":1}\n"
        "{\"session\":\"b\",\"tenant\":\"t\",\"at_ms\":3000,\"input_tokens\":7,\"output_tokens\":1}"
        "\n"
        "{\"session\":\"b\",\"think_ms\":0,\"input_tokens\":8,\"output_tokens\":1}\n";
    assert_int_equal(feed(&f, text), KVR_OK);
    kvr_workload_rewind(f.workload);
    assert_int_equal(kvr_workload_users(f.workload), 2);
    assert_int_equal(kvr_workload_start_ns(f.workload, 0), 1000000000);
    assert_int_equal(kvr_workload_start_ns(f.workload, 1), 3000000000);
    assert_int_equal(kvr_workload_think_ns(f.workload, 0, 1), 250000000);
    assert_int_equal(kvr_workload_think_ns(f.workload, 0, 2), 0); /* there is no such turn */
    struct kvr_workload_request request = {0};
    assert_true(kvr_workload_turn(f.workload, 0, 1, &request));
    assert_int_equal(request.prompt_bytes, 6);
    assert_int_equal(request.session_turn, 4);
    assert_int_equal(request.tenant, 0);
    request = (struct kvr_workload_request){0};
    assert_true(kvr_workload_turn(f.workload, 1, 0, &request));
    assert_int_equal(request.prompt_bytes, 7);
    assert_true(request.tenant != 0 && request.key == request.tenant);
    assert_false(kvr_workload_turn(f.workload, 1, 2, &request));
    end(&f);
}

/* Random families of prompts, each a prefix of an earlier one with new blocks behind it, against a
 * count of leading common ids. */
#define PROMPTS    60u
#define IDS_MAX    64u
#define ROW_TOKENS 16u

struct chain {
    uint64_t ids[IDS_MAX];
    uint32_t len;
    uint32_t tokens;
};

static void grow_chain(struct chain *chain, const struct chain *from, uint64_t *next_id,
                       struct kvr_rng *rng)
{
    uint32_t kept = from ? (uint32_t)kvr_rng_below(rng, from->len + 1) : 0;
    if (from && kept == from->len && from->tokens % ROW_TOKENS)
        kept--; /* an id of a partial block ends its chain */
    if (kept)
        memcpy(chain->ids, from->ids, kept * sizeof *chain->ids);
    chain->len = kept;
    uint32_t more = 1 + (uint32_t)kvr_rng_below(rng, 8);
    for (uint32_t i = 0; i < more && chain->len < IDS_MAX; i++)
        chain->ids[chain->len++] = (*next_id)++;
    chain->tokens = chain->len * ROW_TOKENS;
    uint32_t tail = (uint32_t)kvr_rng_below(rng, 40);
    if (tail < ROW_TOKENS)
        chain->tokens -= tail; /* the last block is partial and has an id */
    else
        chain->tokens += tail - ROW_TOKENS; /* tokens without */
}

static void feed_chain(struct fixture *f, const struct chain *chain, uint32_t at)
{
    char line[4096];
    int len = snprintf(line, sizeof line,
                       "{\"at_ms\":%u,\"input_tokens\":%u,\"output_tokens\":1,"
                       "\"block_tokens\":%u,\"blocks\":[",
                       at, chain->tokens, ROW_TOKENS);
    for (uint32_t i = 0; i < chain->len; i++)
        len += snprintf(line + len, sizeof line - (size_t)len, "%s[%llu,1]", i ? "," : "",
                        (unsigned long long)chain->ids[i]);
    snprintf(line + len, sizeof line - (size_t)len, "]}\n");
    assert_int_equal(feed(f, line), KVR_OK);
}

static void random_families_share_what_their_ids_say(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct kvr_rng rng;
        struct fixture f = begin(1);
        struct chain chains[PROMPTS];
        uint64_t next_id = kvr_rng_below((kvr_rng_init(&rng, seed), &rng), 3);
        for (uint32_t i = 0; i < PROMPTS; i++) {
            const struct chain *from = i ? &chains[kvr_rng_below(&rng, i)] : NULL;
            grow_chain(&chains[i], from, &next_id, &rng);
            feed_chain(&f, &chains[i], i);
        }
        for (uint32_t i = 1; i < PROMPTS; i++) {
            uint32_t other = (uint32_t)kvr_rng_below(&rng, i), same = 0;
            const struct chain *a = &chains[i], *b = &chains[other];
            while (same < a->len && same < b->len && a->ids[same] == b->ids[same] &&
                   (same + 1) * ROW_TOKENS <= a->tokens && (same + 1) * ROW_TOKENS <= b->tokens)
                same++;
            assert_int_equal(shared_blocks(&f, i, other, 1), same);
        }
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_says_all_of_a_request),
        cmocka_unit_test(a_bad_row_is_named_with_its_field),
        cmocka_unit_test(lines_may_be_cut_anywhere),
        cmocka_unit_test(a_bad_line_is_counted_and_ends_it),
        cmocka_unit_test(equal_ids_are_equal_prefixes),
        cmocka_unit_test(what_no_id_covers_is_new),
        cmocka_unit_test(pieces_are_as_long_as_their_tokens),
        cmocka_unit_test(random_families_share_what_their_ids_say),
        cmocka_unit_test(lengths_may_be_in_bytes),
        cmocka_unit_test(sessions_go_on_after_their_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
