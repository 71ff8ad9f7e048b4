/* core/emu/emu_ask, emu_prompt and emu_store: which bodies are alike, which extend one another, and
 * what is refused with which reason. */
#include "emu_ask.h"
#include "emu_store.h"
#include "unit.h"

static struct kvr_profile profile;

struct written {
    struct kvr_tokens tokens;
    struct kvr_buffer scratch;
    struct kvr_emu_ask ask;
    struct kvr_emu_problem problem;
    bool ok;
};

static void write_prompt(struct written *w, enum kvr_api api, const char *body, uint32_t index)
{
    memset(w, 0, sizeof *w);
    kvr_tokens_init(&w->tokens, profile.bytes_per_token);
    w->ok = kvr_emu_ask_read(&w->ask, api, kvr_slice_of(body), &w->problem) &&
            kvr_emu_prompt_write(&w->ask, index, &profile, w->ask.salt, true, &w->tokens,
                                 &w->scratch, &w->problem);
}

static void drop(struct written *w)
{
    kvr_tokens_deinit(&w->tokens);
    kvr_buffer_deinit(&w->scratch);
}

/* Leading tokens that two bodies have in common; -1 when they are the same altogether. */
static int common(enum kvr_api api, const char *a, const char *b)
{
    struct written x;
    struct written y;
    write_prompt(&x, api, a, 0);
    write_prompt(&y, api, b, 0);
    assert_true(x.ok);
    assert_true(y.ok);
    uint32_t n = 0;
    while (n < x.tokens.count && n < y.tokens.count && x.tokens.ids[n] == y.tokens.ids[n])
        n++;
    bool same = n == x.tokens.count && n == y.tokens.count;
    drop(&x);
    drop(&y);
    return same ? -1 : (int)n;
}

static uint32_t count(enum kvr_api api, const char *body, uint32_t index)
{
    struct written w;
    write_prompt(&w, api, body, index);
    assert_true(w.ok);
    uint32_t n = w.tokens.count;
    drop(&w);
    return n;
}

static void test_alike(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"hello there\"}]}",
         "{ \"messages\" : [ { \"content\" : [ {\"type\":\"text\",\"text\":\"hello \"},"
         "{\"text\":\"there\",\"type\":\"text\"} ], \"role\":\"user\" } ], \"model\":\"x\" }"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\\n\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"\xc3\xa9\\u000a\"}]}"},
        {"{\"tools\":[{\"a\":1}],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[ { \"a\" : 1 } ]}"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}",
         "{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"}]}"},
        {"{\"messages\":[1],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
         "{\"mess\\u0061ges\":[{\"role\":\"user\",\"content\":\"x\"}]}"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_int_equal(common(KVR_API_CHAT, same[i][0], same[i][1]), -1);
    assert_int_equal(common(KVR_API_RESPONSES, "{\"input\":\"x\"}",
                            "{\"input\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
                     -1);
    assert_int_equal(common(KVR_API_COMPLETIONS, "{\"prompt\":\"x\"}", "{\"prompt\":[\"x\"]}"), -1);
    assert_int_equal(common(KVR_API_COMPLETIONS, "{\"prompt\":[1,2]}", "{\"prompt\":[[1,2]]}"), -1);
    assert_int_equal(common(KVR_API_GENERATE, "{\"text\":\"x\"}", "{\"text\":[\"x\"]}"), -1);
}

static void test_prefixes(void **state)
{
    (void)state;
    /* The next turn shares everything but the three tokens that opened the answer, and these too
     * when the answer is what follows. */
    const char *first = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello there, you\"}]}";
    const char *next = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello there, you\"},"
                       "{\"role\":\"assistant\",\"content\":\"well\"},"
                       "{\"role\":\"user\",\"content\":\"and?\"}]}";
    const char *other = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello there, you\"},"
                        "{\"role\":\"user\",\"content\":\"and?\"}]}";
    uint32_t whole = count(KVR_API_CHAT, first, 0);
    assert_int_equal(common(KVR_API_CHAT, first, next), (int)whole);
    assert_int_equal(common(KVR_API_CHAT, first, other), (int)whole - 3);
    /* Other tools differ right behind the head. */
    assert_int_equal(common(KVR_API_CHAT,
                            "{\"tools\":[1],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                            "{\"tools\":[2],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
                     (int)profile.chat_head_tokens + 3);
    /* Images count, and differ by what they are. */
    const char *red = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                      "\"see\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"red\"}}]}]}";
    const char *blue = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                       "\"see\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"blu\"}}]}]}";
    assert_int_equal(common(KVR_API_CHAT, red, blue), (int)profile.chat_head_tokens + 3 + 1 + 1);
    assert_true(count(KVR_API_CHAT, red, 0) > 256);
}

static void test_batches(void **state)
{
    (void)state;
    static const struct {
        const char *prompt;
        uint32_t prompts;
    } cases[] = {
        {"\"x\"", 1}, {"[\"a\",\"b\",\"c\"]", 3}, {"[1,2,3]", 1}, {"[[1,2],[3]]", 2}, {"[]", 0},
        {"\"\"", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[128];
        struct kvr_emu_ask ask;
        struct kvr_emu_problem problem;
        snprintf(body, sizeof body, "{\"prompt\":%s}", cases[i].prompt);
        assert_true(kvr_emu_ask_read(&ask, KVR_API_COMPLETIONS, kvr_slice_of(body), &problem));
        assert_int_equal(kvr_emu_prompt_count(&ask), cases[i].prompts);
    }
    const char *ids = "{\"prompt\":[[1,2],[3],[4,5,6]]}";
    assert_int_equal(count(KVR_API_COMPLETIONS, ids, 0), 2);
    assert_int_equal(count(KVR_API_COMPLETIONS, ids, 1), 1);
    assert_int_equal(count(KVR_API_COMPLETIONS, ids, 2), 3);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        enum kvr_api api;
        const char *body;
        enum kvr_emu_refusal refusal;
        const char *param;
    } cases[] = {
        {KVR_API_CHAT, "{", KVR_EMU_BAD_JSON, "body"},
        {KVR_API_CHAT, "", KVR_EMU_BAD_JSON, "body"},
        {KVR_API_CHAT, "{} {}", KVR_EMU_BAD_JSON, "body"},
        {KVR_API_CHAT, "3", KVR_EMU_BAD_FIELD, "body"},
        {KVR_API_CHAT, "{}", KVR_EMU_BAD_FIELD, "body.messages"},
        {KVR_API_CHAT, "{\"messages\":null}", KVR_EMU_BAD_FIELD, "body.messages"},
        {KVR_API_CHAT, "{\"messages\":{}}", KVR_EMU_BAD_FIELD, "body.messages"},
        {KVR_API_CHAT, "{\"messages\":[],\"model\":1}", KVR_EMU_BAD_FIELD, "body.model"},
        {KVR_API_CHAT, "{\"messages\":[],\"n\":0}", KVR_EMU_BAD_VALUE, "n"},
        {KVR_API_CHAT, "{\"messages\":[],\"n\":1.5}", KVR_EMU_BAD_FIELD, "body.n"},
        {KVR_API_CHAT, "{\"messages\":[],\"max_tokens\":-1}", KVR_EMU_BAD_VALUE, "max_tokens"},
        {KVR_API_CHAT, "{\"messages\":[],\"max_tokens\":1e400}", KVR_EMU_BAD_FIELD,
         "body.max_tokens"},
        {KVR_API_CHAT, "{\"messages\":[],\"max_tokens\":2,\"min_tokens\":3}", KVR_EMU_BAD_VALUE,
         "min_tokens"},
        {KVR_API_CHAT, "{\"messages\":[],\"stream_options\":{}}", KVR_EMU_BAD_VALUE,
         "stream_options"},
        {KVR_API_EMBEDDINGS, "{\"prompt\":\"x\"}", KVR_EMU_BAD_FIELD, "body.input"},
        {KVR_API_GENERATE, "{}", KVR_EMU_BAD_FIELD, "body.text"},
        {KVR_API_COMPLETIONS, "{\"prompt\":\"\"}", KVR_EMU_BAD_VALUE, "prompt"},
        {KVR_API_COMPLETIONS, "{\"prompt\":[1,\"x\"]}", KVR_EMU_BAD_FIELD, "body.prompt"},
        {KVR_API_COMPLETIONS, "{\"prompt\":[-1]}", KVR_EMU_BAD_VALUE, "prompt"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct written w;
        write_prompt(&w, cases[i].api, cases[i].body, 0);
        assert_false(w.ok);
        assert_int_equal(w.problem.refusal, cases[i].refusal);
        assert_string_equal(w.problem.param, cases[i].param);
        drop(&w);
    }
}

static void test_fields(void **state)
{
    (void)state;
    struct kvr_emu_ask ask;
    struct kvr_emu_problem problem;
    const char *body = "{\"messages\":[],\"stream\":true,\"stream_options\":{},\"max_tokens\":5,"
                       "\"max_completion_tokens\":7,\"n\":2,\"seed\":9,\"ignore_eos\":true,"
                       "\"model\":\"a\\u002fb\",\"cache_salt\":\"s\",\"unknown\":[{}]}";
    assert_true(kvr_emu_ask_read(&ask, KVR_API_CHAT, kvr_slice_of(body), &problem));
    assert_true(ask.stream && ask.include_usage && ask.ignore_eos && !ask.continuous_usage);
    assert_int_equal(ask.max_tokens, 7);
    assert_int_equal(ask.n, 2);
    assert_int_equal(ask.seed, 9);
    assert_string_equal(ask.model, "a/b");
    assert_true(ask.salt != 0);
    body = "{\"text\":\"x\",\"sampling_params\":{\"max_new_tokens\":3,\"ignore_eos\":true}}";
    assert_true(kvr_emu_ask_read(&ask, KVR_API_GENERATE, kvr_slice_of(body), &problem));
    assert_int_equal(ask.max_tokens, 3);
    assert_true(ask.ignore_eos);
}

static void test_store(void **state)
{
    (void)state;
    struct kvr_emu_store store;
    struct kvr_buffer text = {0};
    kvr_emu_store_init(&store, 2);
    kvr_emu_store_join(kvr_slice_of(""), kvr_slice_of("\"hi\""), kvr_slice_of("yo\""), &text);
    assert_true(kvr_slice_is(kvr_buffer_slice(&text),
                             "[{\"role\":\"user\",\"content\":\"hi\"},"
                             "{\"role\":\"assistant\",\"content\":\"yo\\\"\"}]"));
    kvr_emu_store_add(&store, "a", kvr_buffer_slice(&text));
    text.len = 0;
    kvr_emu_store_join(kvr_emu_store_find(&store, "a"), kvr_slice_of("[ {\"x\":1} ]"),
                       kvr_slice_of(""), &text);
    assert_non_null(memmem(text.data, text.len, "\\\"\"},{\"x\":1}]", 13));
    text.len = 0;
    kvr_emu_store_join(kvr_slice_of("[]"), kvr_slice_of("[]"), kvr_slice_of(""), &text);
    assert_true(kvr_slice_is(kvr_buffer_slice(&text), "[]"));
    kvr_emu_store_add(&store, "b", kvr_slice_of("[2]"));
    kvr_emu_store_add(&store, "c", kvr_slice_of("[3]"));
    assert_int_equal(kvr_emu_store_find(&store, "a").len, 0); /* the oldest is gone */
    assert_true(kvr_slice_is(kvr_emu_store_find(&store, "b"), "[2]"));
    assert_true(kvr_slice_is(kvr_emu_store_find(&store, "c"), "[3]"));
    kvr_buffer_deinit(&text);
    kvr_emu_store_deinit(&store);
}

int main(void)
{
    profile = *kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
    profile.bytes_per_token = 4;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike),   cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_batches), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_fields),  cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
