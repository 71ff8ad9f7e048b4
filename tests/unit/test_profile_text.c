/* Profiles as files: what is compiled in is what the files say, what is written reads back, and a
 * refusal names the file, the line, the key and the value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "data_file.h"
#include "profile_text.h"

static void assert_same(const struct kvr_profile *a, const struct kvr_profile *b)
{
    struct kvr_buffer texts[2] = {{0}};
    kvr_profile_text_write(a, &texts[0]);
    kvr_profile_text_write(b, &texts[1]);
    kvr_buffer_append(&texts[0], "", 1);
    kvr_buffer_append(&texts[1], "", 1);
    assert_string_equal(texts[0].data, texts[1].data);
    kvr_buffer_deinit(&texts[0]);
    kvr_buffer_deinit(&texts[1]);
    assert_memory_equal(a, b, sizeof *a);
}

static void test_built_in_are_the_files(void **state)
{
    (void)state;
    const struct kvr_profile *built_in;
    size_t count = 0;
    while ((built_in = kvr_profile_at(count))) {
        count++;
        char path[256];
        struct kvr_buffer text = {0};
        snprintf(path, sizeof path, "../../core/engine/profiles/%s.lua", built_in->name);
        data_file_read(path, &text);
        struct kvr_profile profile;
        struct kvr_error error = {0};
        if (kvr_profile_text_read(path, kvr_buffer_slice(&text), &profile, &error))
            fail_msg("%s", error.text);
        assert_same(&profile, built_in);
        assert_ptr_equal(kvr_profile_find(kvr_slice_of(profile.name)), built_in);
        kvr_buffer_deinit(&text);
    }
    assert_true(count >= 5);
    assert_null(kvr_profile_find(kvr_slice_of("rtx3090")));
}

static void test_written_reads_back(void **state)
{
    (void)state;
    struct kvr_profile profile = *kvr_profile_at(0);
    profile.step_floor_ms = 0.0;
    profile.prefill_token_ms = 1.0 / 3.0;
    profile.decode_context_ms = 1.23456789e-7;
    profile.cache_generated = false;
    struct kvr_buffer text = {0};
    struct kvr_profile back;
    struct kvr_error error = {0};
    kvr_profile_text_write(&profile, &text);
    if (kvr_profile_text_read("back", kvr_buffer_slice(&text), &back, &error))
        fail_msg("%s", error.text);
    assert_same(&back, &profile);
    kvr_buffer_deinit(&text);
}

#define LEAST                                                                                      \
    "name = 'mine'\nstep_floor_ms = 1\nprefill_token_ms = 0.1\nbytes_per_token = 4\nblocks = 9\n"  \
    "max_num_batched_tokens = 64\nmax_num_seqs = 8\nmax_model_len = 100\n"

static void test_least(void **state)
{
    (void)state;
    struct kvr_profile profile;
    assert_int_equal(kvr_profile_text_read("x", kvr_slice_of(LEAST), &profile, NULL), KVR_OK);
    assert_string_equal(profile.name, "mine");
    assert_int_equal(profile.form, KVR_STEP_LINEAR);
    assert_int_equal(profile.replicas, 1);
    assert_int_equal(profile.blocks, 9);
    assert_true(profile.cache_generated && profile.jitter == 0.0);
}

static void test_refused(void **state)
{
    (void)state;
    const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {LEAST "blocks = 0\n",
         "my.lua:9: blocks: must be an integer between 1 and 100000000, got 0"},
        {LEAST "blocks = 1.5\n", "my.lua:9: blocks: must be an integer between"},
        {LEAST "\n\njitter = 'much'\n",
         "my.lua:11: jitter: must be a number between 0 and 1, got \"much\""},
        {LEAST "step_flor_ms = 3\n",
         "my.lua:9: step_flor_ms: no such setting; did you mean step_floor_ms?"},
        {LEAST "form = 'cubic'\n",
         "my.lua:9: form: must be one of linear, roofline, got \"cubic\""},
        {LEAST "max_num_seqs = 65\n",
         "my.lua:6: max_num_batched_tokens: must be at least max_num_seqs, 65, got 64"},
        {LEAST "name = 'a b'\n", "my.lua:9: name: must be of letters"},
        {LEAST "name = ('x'):rep(3)\n", "my.lua:9:"},
        {LEAST "decode_seq_ms = 0/0\n", "my.lua:9: decode_seq_ms: must be a number"},
        {"name = 'mine'\n", "my.lua: step_floor_ms: is missing"},
        {"step_floor_ms = 1\n", "my.lua: name: is missing"},
        {"return { name = 'mine' }\n", "my.lua:1: returns a value"},
        {"name = \n", "my.lua:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_profile profile;
        struct kvr_error error = {0};
        assert_int_equal(
            kvr_profile_text_read("my.lua", kvr_slice_of(cases[i].text), &profile, &error),
            KVR_E_INVALID);
        if (strncmp(error.text, cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("%s, want %s", error.text, cases[i].error);
    }
}

/* The schema and kvr_profile_check draw the same bounds: what one refuses, the other does. */
static void test_bounds_agree(void **state)
{
    (void)state;
    const char *const keys[] = {
        "step_floor_ms",
        "weights_ms",
        "prefill_step_ms",
        "prefill_token_ms",
        "prefill_context_ms",
        "decode_seq_ms",
        "decode_seq_squared_ms",
        "decode_context_ms",
        "jitter",
        "overhead_ms",
        "startup_ms",
        "bytes_per_token",
        "blocks",
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_model_len",
        "chat_head_tokens",
        "chat_system_head_tokens",
        "replicas",
    };
    const double values[] = {-1,      0,       1,      2,       63,   64,     65,    100,   101,
                             256,     257,     1000,   1001,    8192, 8193,   65535, 65536, 131072,
                             131073,  0.001,   0.0011, 0.1,     0.11, 10,     11,    1e6,   1e6 + 1,
                             4194304, 4194305, 1e7,    1e7 + 1, 1e8,  1e8 + 1};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            char text[512];
            struct kvr_profile profile;
            struct kvr_error error = {0};
            snprintf(text, sizeof text, LEAST "max_num_seqs = 1\n%s = %.14g\n", keys[k], values[i]);
            int code = kvr_profile_text_read("my.lua", kvr_slice_of(text), &profile, &error);
            /* In a profile's own words only what is of two settings: the rest is the schema's. */
            if (code && strncmp(error.text, "my.lua: profile:", 16) == 0)
                fail_msg("%s", error.text);
            if (code == 0)
                assert_int_equal(kvr_profile_check(&profile, NULL), KVR_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in_are_the_files),
        cmocka_unit_test(test_written_reads_back),
        cmocka_unit_test(test_least),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
