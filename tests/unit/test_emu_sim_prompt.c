/* The tokens of a simulated prompt against those that an emulated replica makes of the same request
 * on the wire: as many, and any two prompts share as many blocks in the one as in the other, those
 * of what is generated among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "emu_ask.h"
#include "memory.h"
#include "sim_fixture.h"
#include "sim_prompt.h"

#define PROMPTS_MAX 400u

struct prompt {
    uint64_t *simulated, *wire;
    uint32_t blocks_len;
};

static struct prompt prompts[PROMPTS_MAX];
static uint32_t prompts_len;

static uint64_t *copy(const struct kvr_tokens *tokens)
{
    uint64_t *blocks = kvr_alloc(tokens->blocks_len * sizeof *blocks + 1);
    memcpy(blocks, tokens->blocks, tokens->blocks_len * sizeof *blocks);
    return blocks;
}

/* As a replica does: goes on with the answer's text. */
static void generate(struct kvr_tokens *tokens, uint32_t output_tokens)
{
    uint64_t seed = kvr_tokens_digest(tokens);
    size_t len = kvr_tokens_cut(tokens, output_tokens);
    char *text = kvr_alloc(len + 1);
    kvr_answer_bytes(seed, 0, len, text);
    kvr_tokens_text(tokens, kvr_slice_make(text, len));
    kvr_free(text);
}

static void take(struct kvr_sim_prompt *maker, const struct kvr_profile *profile,
                 struct kvr_tokens *wire, const struct kvr_workload_request *request)
{
    struct kvr_emu_ask ask;
    struct kvr_emu_problem problem = {0};
    struct kvr_buffer body = {0}, scratch = {0};
    write_body(request, profile->name, &body);
    assert_true(kvr_emu_ask_read(&ask, KVR_API_CHAT, kvr_buffer_slice(&body), &problem));
    assert_true(kvr_emu_prompt_write(&ask, 0, profile, 0, false, wire, &scratch, &problem));
    uint32_t prompt_tokens = kvr_sim_prompt_tokens(maker, request);
    assert_int_equal(prompt_tokens, wire->count);
    generate(wire, request->output_tokens);
    assert_int_equal(maker->tokens.count, wire->count);
    assert_int_equal(maker->tokens.blocks_len, wire->blocks_len);
    assert_true(prompts_len < PROMPTS_MAX);
    prompts[prompts_len++] = (struct prompt){copy(&maker->tokens), copy(wire), wire->blocks_len};
    kvr_buffer_deinit(&body);
    kvr_buffer_deinit(&scratch);
}

static uint32_t shared(const uint64_t *a, const uint64_t *b, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}

static void forget_all(void)
{
    for (uint32_t i = 0; i < prompts_len; i++) {
        kvr_free(prompts[i].simulated);
        kvr_free(prompts[i].wire);
    }
    prompts_len = 0;
}

static uint32_t compare_all(void)
{
    uint32_t sharing = 0, later = 0, pairs = 0;
    for (uint32_t i = 0; i < prompts_len; i++)
        for (uint32_t j = 0; j < i; j++) {
            uint32_t most = prompts[i].blocks_len < prompts[j].blocks_len ? prompts[i].blocks_len
                                                                          : prompts[j].blocks_len;
            uint32_t n = shared(prompts[i].simulated, prompts[j].simulated, most);
            uint32_t wire = shared(prompts[i].wire, prompts[j].wire, most);
            /* Different texts may begin with the same letters, and so end one block later. */
            assert_true(wire == n || wire == n + 1);
            later += wire != n;
            pairs++;
            sharing += n > 8;
        }
    assert_true(later < pairs / 8); /* one letter of 16 is the first token of a card's text */
    forget_all();
    return sharing;
}

static uint32_t compare(const struct kvr_workload_options *options, const char *name)
{
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of(name));
    struct kvr_workload *workload = kvr_workload_create(options, NULL);
    struct kvr_sim_prompt maker;
    struct kvr_tokens wire;
    kvr_sim_prompt_init(&maker, profile, NULL);
    kvr_tokens_init(&wire, profile->bytes_per_token);
    for (uint64_t user = 0; user < 24; user++)
        for (uint64_t turn = 0; turn < 12; turn++) {
            struct kvr_workload_request request;
            assert_true(kvr_workload_turn(workload, user, turn, &request));
            take(&maker, profile, &wire, &request);
        }
    kvr_tokens_deinit(&wire);
    kvr_sim_prompt_deinit(&maker);
    kvr_workload_destroy(workload);
    return compare_all();
}

static void test_sessions(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.sessions = 30;
    assert_true(compare(&options, "rtx3090-8b-awq") > 100);
    options.bytes_per_token = 4;
    options.user_bytes = 301;
    options.assistant_bytes = 77;
    assert_true(compare(&options, "h100-8b-bf16") > 100);
}

/* Messages of several pieces: a token may reach over from one into the next. */
static void test_keys(void **state)
{
    (void)state;
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    options.kind = KVR_WORKLOAD_KEYS;
    options.keys = 6;
    options.variants = 2;
    options.template_tokens = 300.3;
    options.context_tokens = 17.7;
    options.variant_tokens = 201.1;
    options.unique_tokens = 40;
    assert_true(compare(&options, "rtx3090-8b-awq") > 1000);
    options.bytes_per_token = 4;
    options.output_cv = 1;
    assert_true(compare(&options, "h100x2-70b-fp8") > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
