/* The paged KV cache on real traffic, against published numbers: block and token hit rates of half
 * an hour of Mooncake's conversations in LRU caches of several sizes, and in endless ones behind a
 * round robin (experiments/data/mooncake-conversation/README.md). The rows come out of the
 * Lua importer, so importer, row reader and cache are all in it. What is known behind the first
 * unknown block of a prompt never counts. */
#include "unit.h"

#include <math.h>

#include "buffer.h"
#include "kv_cache.h"
#include "memory.h"
#include "rng.h"
#include "trace_row.h"

#define REQUESTS     5606u
#define BLOCKS       144280u
#define CACHES_MAX   16u
#define PROMPT_MAX   256u
#define BLOCK_TOKENS 512u

struct prompt {
    uint64_t tokens;
    uint64_t *hashes; /* one a block */
    uint32_t blocks;
};

static struct prompt prompts[REQUESTS];
static uint32_t prompts_len;

static void add_prompt(const struct kvr_trace_row *row)
{
    assert_true(prompts_len < REQUESTS);
    struct prompt *prompt = &prompts[prompts_len++];
    assert_int_equal(row->block_tokens, BLOCK_TOKENS);
    *prompt = (struct prompt){row->input_tokens, kvr_alloc(PROMPT_MAX * sizeof(uint64_t)), 0};
    for (uint32_t i = 0; i < row->runs_len; i++)
        for (uint64_t k = 0; k < row->runs[i].count; k++) {
            assert_true(prompt->blocks < PROMPT_MAX);
            prompt->hashes[prompt->blocks++] = kvr_mix64(row->runs[i].first + k + 1);
        }
}

static int read_prompts(void **state)
{
    (void)state;
    FILE *rows = popen("cd '" KVR_SOURCE_DIR "' && LUA_PATH='scripts/?.lua;;' luajit -e '"
                       "require(\"kvroute.import\").main({\"mooncake\", \"experiments/data/"
                       "mooncake-conversation/conversation_trace.first.jsonl.gz\"}, \"import\")'",
                       "r");
    assert_non_null(rows);
    struct kvr_trace_row row = {0};
    struct kvr_error error;
    char *line = NULL;
    size_t room = 0;
    for (ssize_t len; (len = getline(&line, &room, rows)) > 0;) {
        struct kvr_slice text = kvr_slice_make(line, (size_t)len);
        assert_int_equal(kvr_trace_row_read(&row, text, &error), KVR_OK);
        add_prompt(&row);
    }
    free(line);
    kvr_trace_row_deinit(&row);
    return pclose(rows);
}

static int drop_prompts(void **state)
{
    (void)state;
    while (prompts_len)
        kvr_free(prompts[--prompts_len].hashes);
    return 0;
}

/* Leading blocks of the prompt that the cache holds. All of it is held, and most recent,
 * afterwards, its first block most of all. */
static uint32_t serve(struct kvr_kv_cache *cache, const struct prompt *prompt)
{
    uint32_t blocks[PROMPT_MAX], idle;
    uint32_t hits = kvr_kv_cache_lookup(cache, prompt->hashes, prompt->blocks, blocks, &idle);
    kvr_kv_cache_pin(cache, blocks, hits);
    kvr_kv_cache_allocate(cache, blocks + hits, prompt->blocks - hits);
    for (uint32_t i = hits; i < prompt->blocks; i++)
        assert_true(kvr_kv_cache_register(cache, blocks[i], prompt->hashes[i],
                                          i ? prompt->hashes[i - 1] : 0, 0, i));
    kvr_kv_cache_release(cache, blocks, prompt->blocks);
    return hits;
}

struct rates {
    double blocks, tokens;
};

/* The trace over so many caches in turn, each of so many blocks. */
static struct rates replay(uint32_t caches_len, uint32_t capacity)
{
    struct kvr_kv_cache caches[CACHES_MAX];
    uint64_t blocks = 0, hit_blocks = 0, tokens = 0, hit_tokens = 0;
    for (uint32_t i = 0; i < caches_len; i++)
        kvr_kv_cache_init(&caches[i], capacity, false);
    for (uint32_t i = 0; i < prompts_len; i++) {
        const struct prompt *prompt = &prompts[i];
        uint64_t hits = serve(&caches[i % caches_len], prompt);
        blocks += prompt->blocks;
        tokens += prompt->tokens;
        hit_blocks += hits;
        hit_tokens += hits == prompt->blocks ? prompt->tokens : hits * BLOCK_TOKENS;
    }
    assert_int_equal(blocks, BLOCKS);
    for (uint32_t i = 0; i < caches_len; i++) {
        kvr_kv_cache_verify(&caches[i]);
        kvr_kv_cache_deinit(&caches[i]);
    }
    return (struct rates){(double)hit_blocks / (double)blocks, (double)hit_tokens / (double)tokens};
}

/* `blocks` and `tokens` are as published, with four digits; tokens < 0: not published. */
static void expect(uint32_t caches, uint32_t capacity, double blocks, double tokens)
{
    struct rates rates = replay(caches, capacity);
    char size[16] = "endless";
    if (capacity < BLOCKS)
        snprintf(size, sizeof size, "%u", capacity);
    print_message("%6u  %8s  %6.4f  %6.4f\n", caches, size, rates.blocks, rates.tokens);
    assert_true(fabs(rates.blocks - blocks) <= 0.00005);
    assert_true(tokens < 0 || fabs(rates.tokens - tokens) <= 0.00005);
}

static void one_cache_of_each_size(void **state)
{
    (void)state;
    assert_int_equal(prompts_len, REQUESTS);
    print_message("caches    blocks  blocks  tokens\n");
    expect(1, 500, .0397, .0405);
    expect(1, 1000, .0432, .0440);
    expect(1, 2000, .0525, .0535);
    expect(1, 5000, .1114, .1135);
    expect(1, 10000, .2062, .2100);
    expect(1, 20000, .2772, .2823);
    expect(1, 50000, .3364, .3426);
    expect(1, BLOCKS, .3402, .3465);
}

static void round_robin_over_endless_caches(void **state)
{
    (void)state;
    expect(2, BLOCKS, .2447, .2493);
    expect(4, BLOCKS, .1714, .1746);
    expect(8, BLOCKS, .1211, .1234);
    expect(16, BLOCKS, .0900, .0917);
}

static void round_robin_over_eight_caches_of_each_size(void **state)
{
    (void)state;
    expect(8, 250, .0399, -1);
    expect(8, 500, .0457, -1);
    expect(8, 1000, .0612, -1);
    expect(8, 2500, .0855, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_cache_of_each_size),
        cmocka_unit_test(round_robin_over_endless_caches),
        cmocka_unit_test(round_robin_over_eight_caches_of_each_size),
    };
    return cmocka_run_group_tests(tests, read_prompts, drop_prompts);
}
