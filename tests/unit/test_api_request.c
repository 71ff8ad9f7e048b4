/* core/model/api_*: every field, every shape of a prompt, and what makes two bodies one prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api_field.h"
#include "json_reader.h"
#include "request_fixture.h"
#include "rng.h"

static void scan(struct scanned *scanned, enum kvr_api api, const char *body)
{
    scan_body(scanned, api, kvr_slice_of(body), NULL, 16);
    if (scanned->code != KVR_OK)
        fail_msg("%s: %s", body, scanned->error.text);
}

static void assert_slice(struct kvr_slice slice, const char *text)
{
    if (!kvr_slice_is(slice, text))
        fail_msg("\"%.*s\" is not \"%s\"", (int)slice.len, slice.data ? slice.data : "", text);
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum kvr_api api;
        const char *name;
    } cases[] = {
        {"/v1/chat/completions", KVR_API_CHAT, "chat"},
        {"/v1/chat/completions?api-version=1", KVR_API_CHAT, "chat"},
        {"/v1/completions", KVR_API_COMPLETIONS, "completions"},
        {"/v1/responses", KVR_API_RESPONSES, "responses"},
        {"/v1/messages?beta=true", KVR_API_MESSAGES, "messages"},
        {"/v1/embeddings?", KVR_API_EMBEDDINGS, "embeddings"},
        {"/generate", KVR_API_GENERATE, "generate"},
        {"/v1/messages/count_tokens", KVR_API_OPAQUE, "opaque"},
        {"/v1/responses/resp_1/cancel", KVR_API_OPAQUE, "opaque"},
        {"/v1/chat/completions/", KVR_API_OPAQUE, "opaque"},
        {"/V1/completions", KVR_API_OPAQUE, "opaque"},
        {"/x?/v1/completions", KVR_API_OPAQUE, "opaque"},
        {"", KVR_API_OPAQUE, "opaque"},
        {"/", KVR_API_OPAQUE, "opaque"},
        {"?", KVR_API_OPAQUE, "opaque"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum kvr_api api = kvr_api_of(kvr_slice_of(cases[i].path));
        assert_int_equal(api, cases[i].api);
        assert_string_equal(kvr_api_name(api), cases[i].name);
    }
}

static void test_fields(void **state)
{
    (void)state;
    struct scanned s;
    scan(&s, KVR_API_CHAT,
         "{\"model\":\"org\\/m-8b\",\"stream\":true,\"n\":3,\"max_tokens\":50,\"priority\":-2,"
         "\"lora_path\":\"ad\\u0061pter\",\"cache_salt\":\"s\\n\",\"user\":\"u\",\"seed\":1,"
         "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":null,"
         "\"logit_bias\":{\"1\":[2,{\"a\":null}]}}");
    assert_slice(s.request.model, "org/m-8b");
    assert_slice(s.request.lora, "adapter");
    assert_slice(s.request.cache_salt, "s\n");
    assert_slice(s.request.user, "u");
    assert_true(s.request.stream);
    assert_int_equal(s.request.n, 3);
    assert_int_equal(s.request.max_tokens, 50);
    assert_true(s.request.priority == -2);
    assert_int_equal(s.request.prompts, 1);
    assert_int_equal(s.request.messages, 1);
    assert_int_equal(s.request.turn, 1);
    assert_int_equal(s.request.prompt_tokens, -1);
    assert_int_equal(s.request.prompt_bytes, 9);
    assert_true(s.request.scope ==
                kvr_prompt_scope(s.request.model, s.request.lora, s.request.cache_salt));
    scanned_check(&s, s.request.scope);
    scanned_close(&s);

    scan(&s, KVR_API_CHAT, "{}"); /* what nothing is said of */
    assert_int_equal(s.request.model.len, 0);
    assert_false(s.request.stream);
    assert_int_equal(s.request.n, 1);
    assert_int_equal(s.request.max_tokens, -1);
    assert_true(s.request.priority == 0);
    assert_int_equal(s.request.prompts, 0);
    assert_int_equal(s.request.turn, 0);
    assert_int_equal(s.prompt.chain_len, 0);
    scanned_close(&s);
}

static void test_unexpected_types_are_passed_over(void **state)
{
    (void)state;
    struct scanned s;
    scan(&s, KVR_API_CHAT,
         "{\"model\":5,\"stream\":\"true\",\"n\":\"2\",\"max_tokens\":\"9\",\"priority\":{},"
         "\"cache_salt\":null,\"messages\":{\"role\":\"user\"},\"tools\":\"x\",\"metadata\":[1]}");
    assert_int_equal(s.request.model.len, 0);
    assert_false(s.request.stream);
    assert_int_equal(s.request.n, 1);
    assert_int_equal(s.request.max_tokens, -1);
    assert_int_equal(s.request.prompts, 0);
    assert_int_equal(s.text.len, 0);
    scanned_close(&s);
    scan(&s, KVR_API_CHAT,
         "{\"messages\":[1,\"x\",null,[],{\"role\":7,\"content\":8,\"name\":[]},"
         "{\"content\":[1,null,true,[],{\"text\":5,\"image_url\":6,\"input_audio\":[]}]}]}");
    assert_string_equal(s.text.data, "\x01\x03\x01\x03");
    assert_int_equal(s.request.messages, 2);
    assert_int_equal(s.request.turn, 0);
    scanned_close(&s);
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        enum kvr_api api;
        const char *body;
        int64_t max_tokens;
    } cases[] = {
        {KVR_API_CHAT, "{\"max_tokens\":1e2}", 100},
        {KVR_API_CHAT, "{\"max_tokens\":100.0}", 100},
        {KVR_API_CHAT, "{\"max_tokens\":12.9}", 12},
        {KVR_API_CHAT, "{\"max_tokens\":0}", 0},
        {KVR_API_CHAT, "{\"max_tokens\":-1}", -1},
        {KVR_API_CHAT, "{\"max_tokens\":null}", -1},
        {KVR_API_CHAT, "{\"max_tokens\":1e400}", 1000000000000000},
        {KVR_API_CHAT, "{\"max_tokens\":7,\"max_tokens\":null}", -1},
        {KVR_API_CHAT, "{\"max_completion_tokens\":5,\"max_tokens\":7}", 5},
        {KVR_API_CHAT, "{\"max_tokens\":7,\"max_completion_tokens\":5}", 5},
        {KVR_API_CHAT, "{\"max_completion_tokens\":null,\"max_tokens\":7}", 7},
        {KVR_API_CHAT, "{\"max_output_tokens\":5}", -1},
        {KVR_API_RESPONSES, "{\"max_output_tokens\":5}", 5},
        {KVR_API_GENERATE, "{\"sampling_params\":{\"max_new_tokens\":9,\"n\":2}}", 9},
        {KVR_API_GENERATE, "{\"parameters\":{\"max_new_tokens\":9}}", 9},
        {KVR_API_GENERATE, "{\"sampling_params\":{\"max_tokens\":8}}", 8},
        {KVR_API_CHAT, "{\"sampling_params\":{\"max_new_tokens\":9}}", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scanned s;
        scan(&s, cases[i].api, cases[i].body);
        if (s.request.max_tokens != cases[i].max_tokens)
            fail_msg("%s: %lld", cases[i].body, (long long)s.request.max_tokens);
        scanned_close(&s);
    }
    struct scanned s;
    scan(&s, KVR_API_GENERATE, "{\"sampling_params\":{\"n\":2}}");
    assert_int_equal(s.request.n, 2);
    scanned_close(&s);
    scan(&s, KVR_API_CHAT, "{\"n\":1e9}");
    assert_int_equal(s.request.n, KVR_API_N_MAX);
    scanned_close(&s);
    scan(&s, KVR_API_CHAT, "{\"n\":-4}");
    assert_int_equal(s.request.n, 1);
    scanned_close(&s);
}

static void test_the_last_of_two_keys_counts(void **state)
{
    (void)state;
    struct scanned s;
    scan(&s, KVR_API_CHAT,
         "{\"model\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"one\"},"
         "{\"role\":\"user\",\"content\":[{\"image_url\":\"x\"}]}],"
         "\"stream\":true,\"tools\":[{\"a\":1}],\"cache_salt\":\"x\",\"m\\u006fdel\":\"b\","
         "\"messages\":[{\"role\":\"user\",\"content\":\"two\"}],\"stream\":false,\"tools\":[],"
         "\"cache_s\\u0061lt\":\"y\",\"conversation_id\":\"c\",\"conversation_id\":null}");
    assert_slice(s.request.model, "b");
    assert_slice(s.request.cache_salt, "y");
    assert_false(s.request.stream);
    assert_string_equal(s.text.data, "\x01user\x02two\x03");
    assert_int_equal(s.request.messages, 1);
    assert_int_equal(s.request.turn, 1);
    assert_int_equal(s.request.media, 0);
    assert_int_equal(s.request.extra_tokens, 0);
    assert_int_equal(s.request.opening_bytes, s.text.len);
    assert_true(s.request.identities[KVR_IDENTITY_CONVERSATION_ID] == 0);
    scanned_close(&s);
    scan(
        &s, KVR_API_CHAT,
        "{\"messages\":[{\"role\":\"x\",\"content\":\"old\",\"role\":\"user\",\"content\":\"new\"},"
        "{\"content\":\"gone\",\"role\":\"user\",\"content\":null}]}");
    assert_string_equal(s.text.data, "\x01user\x02new\x03\x01user\x03");
    scanned_close(&s);
    scan(&s, KVR_API_COMPLETIONS, "{\"prompt\":[1,2],\"prompt\":\"text\"}");
    assert_string_equal(s.text.data, "text");
    assert_int_equal(s.request.prompt_tokens, -1);
    scanned_close(&s);
}

/* --- canonical text ------------------------------------------------------------------------ */

static void test_canonical_text(void **state)
{
    (void)state;
    static const struct {
        enum kvr_api api;
        const char *body, *text;
    } cases[] = {
        {KVR_API_CHAT,
         "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"name\":"
         "\"bo\","
         "\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A\",\"reasoning_content\":\"R\","
         "\"tool_calls\":[ { \"id\" : \"c1\" } ]},{\"role\":\"tool\",\"tool_call_id\":\"c1\","
         "\"content\":\"T\"}]}",
         "\x01system\x02S\x03\x01user\x05"
         "bo\x02U\x03\x01"
         "assistant\x02"
         "A\x08R\x06[{\"id\":\"c1\"}]\x03\x01tool\x02T\x07"
         "c1\x03"},
        {KVR_API_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "\"b\",{\"type\":\"refusal\",\"refusal\":\"c\"}]},{\"role\":\"assistant\",\"content\":"
         "null},"
         "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":null},{\"role\":\"assistant\","
         "\"tool_calls\":[]}],\"tools\":[{\"f\" : 1, \"cache_control\":{\"type\":\"x\"}}]}",
         "[{\"f\":1}]\x01user\x02"
         "abc\x03\x01"
         "assistant\x03\x01"
         "assistant\x03\x01"
         "assistant\x03"},
        {KVR_API_CHAT,
         "{\"functions\":[{\"name\":\"f\"},7],\"messages\":[{\"role\":\"assistant\","
         "\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}",
         "[{\"name\":\"f\"},7]\x01"
         "assistant\x06{\"name\":\"f\",\"arguments\":\"{}\"}\x03"},
        {KVR_API_MESSAGES,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"U\","
         "\"cache_control\":{\"type\":\"ephemeral\"}}]},{\"role\":\"assistant\",\"content\":["
         "{\"type\":\"thinking\",\"thinking\":\"R\",\"signature\":\"zz\"},{\"type\":\"tool_use\","
         "\"id\":\"t1\",\"name\":\"f\",\"input\":{\"x\": 1}}]},{\"role\":\"user\",\"content\":["
         "{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"text\","
         "\"text\":\"ok\"}]}]}],\"system\":[{\"type\":\"text\",\"text\":\"S\"}],\"tools\":["
         "{\"name\":\"f\"}]}",
         "[{\"name\":\"f\"}]\x01system\x02S\x03\x01user\x02U\x03\x01"
         "assistant\x02R\x07t1\x05"
         "f\x06{\"x\":1}\x03\x01user\x02\x07t1ok\x03"},
        {KVR_API_RESPONSES,
         "{\"input\":\"hi\",\"tools\":[{\"type\":\"x\"}],\"instructions\":\"be\"}",
         "\x01system\x02"
         "be\x03[{\"type\":\"x\"}]\x01user\x02hi\x03"},
        {KVR_API_RESPONSES,
         "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_text\",\"text\":\"hi\"}]},{\"type\":\"reasoning\",\"summary\":[{\"type\":"
         "\"summary_text\",\"text\":\"R\"}]},{\"type\":\"function_call\",\"call_id\":\"c\","
         "\"name\":\"f\",\"arguments\":\"{ }\"},{\"type\":\"function_call_output\",\"call_id\":"
         "\"c\",\"output\":\"O\"}]}",
         "\x01user\x02hi\x03\x01\x08R\x03\x01\x05"
         "f\x06{ }\x07"
         "c\x03\x01\x02O\x07"
         "c\x03"},
        {KVR_API_COMPLETIONS, "{\"prompt\":\"raw \\u00e9\"}", "raw \xc3\xa9"},
        {KVR_API_GENERATE, "{\"text\":\"raw\",\"stream\":false}", "raw"},
        {KVR_API_GENERATE, "{\"inputs\":\"raw\"}", "raw"},
        {KVR_API_COMPLETIONS, "{\"prompt\":\"\"}", ""},
        {KVR_API_COMPLETIONS, "{\"prompt\":[]}", ""},
        {KVR_API_COMPLETIONS, "{\"prompt\":[[]]}", ""},
        {KVR_API_COMPLETIONS, "{\"prompt\":null}", ""},
        {KVR_API_COMPLETIONS, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", ""},
        {KVR_API_CHAT, "{\"prompt\":\"x\",\"input\":\"y\",\"text\":\"z\"}", ""},
        {KVR_API_RESPONSES, "{\"input\":\"hi\",\"text\":{\"format\":{\"type\":\"text\"}}}",
         "\x01user\x02hi\x03"},
        {KVR_API_RESPONSES, "{\"input\":\"\"}", ""},
        {KVR_API_CHAT, "{\"messages\":[],\"tools\":[{\"f\":1}]}", ""},
        {KVR_API_EMBEDDINGS, "{\"input\":\"text\"}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scanned s;
        scan(&s, cases[i].api, cases[i].body);
        if (!kvr_slice_is(kvr_buffer_slice(&s.text), cases[i].text))
            fail_msg("%s\nbecame \"%s\"", cases[i].body, s.text.data);
        scanned_check(&s, s.request.scope);
        assert_int_equal(s.prompt.chain_len, s.text.len / 16);
        scanned_close(&s);
    }
}

/* The same conversation through three APIs is one prompt. */
static void test_apis_agree(void **state)
{
    (void)state;
    struct scanned chat, messages, responses;
    scan(&chat, KVR_API_CHAT,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":"
         "\"user\",\"content\":\"Which depot?\"}],\"max_tokens\":5}");
    scan(&messages, KVR_API_MESSAGES,
         "{\"max_tokens\":5,\"system\":\"Be brief.\",\"messages\":[{\"content\":\"Which depot?\","
         "\"role\":\"user\"}],\"model\":\"m\"}");
    scan(&responses, KVR_API_RESPONSES,
         "{\"input\":\"Which depot?\",\"instructions\":\"Be brief.\",\"model\":\"m\"}");
    assert_true(chat.prompt.chain_len > 1);
    assert_int_equal(shared_blocks(&chat, &messages), chat.prompt.chain_len);
    assert_int_equal(shared_blocks(&chat, &responses), chat.prompt.chain_len);
    assert_int_equal(chat.request.opening_bytes, chat.text.len);
    assert_int_equal(messages.request.opening_bytes, chat.text.len);
    assert_int_equal(responses.request.opening_bytes, chat.text.len);
    scanned_close(&chat);
    scanned_close(&messages);
    scanned_close(&responses);
}

static void test_key_order_in_a_message_does_not_matter(void **state)
{
    (void)state;
    static const char *const fields[] = {"\"role\":\"assistant\"", "\"name\":\"bo\"",
                                         "\"content\":\"text\"",   "\"reasoning\":\"why\"",
                                         "\"tool_calls\":[1]",     "\"tool_call_id\":\"c\""};
    static const char wanted[] = "\x01"
                                 "assistant\x05"
                                 "bo\x02text\x08why\x06[1]\x07"
                                 "c\x03";
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    for (int round = 0; round < 400; round++) {
        struct kvr_buffer body = {0};
        struct scanned s;
        size_t order[6] = {0, 1, 2, 3, 4, 5};
        for (size_t i = 5; i > 0; i--) {
            size_t j = kvr_rng_below(&rng, i + 1), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        kvr_buffer_append_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{");
        for (size_t i = 0; i < 6; i++)
            kvr_buffer_printf(&body, "%s%s", i ? "," : "", fields[order[i]]);
        kvr_buffer_append_text(&body, "},{\"content\":\"r\",\"role\":\"user\"}]}");
        kvr_buffer_append(&body, "", 1);
        scan(&s, KVR_API_CHAT, body.data);
        assert_memory_equal(s.text.data, "\x01user\x02q\x03", 8);
        assert_string_equal(s.text.data + 8 + sizeof wanted - 1, "\x01user\x02r\x03");
        assert_memory_equal(s.text.data + 8, wanted, sizeof wanted - 1);
        assert_int_equal(s.request.opening_bytes, 8);
        scanned_close(&s);
        kvr_buffer_deinit(&body);
    }
}

static void test_media(void **state)
{
    (void)state;
    static const char *const same[] = {
        "{\"image_url\":{\"url\":\"http://x/a.png\"}}",
        "{\"type\":\"image_url\",\"image_url\":{\"detail\":\"low\",\"url\":\"http:\\/\\/x\\/"
        "a.png\"}}",
        "{\"type\":\"input_image\",\"image_url\":\"http://x/a.png\",\"detail\":\"high\"}",
        "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"http://x/a.png\"}}",
        "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"http://x/"
        "a.png\",\"format\":\"wav\"}}",
        "{\"type\":\"video_url\",\"video_url\":{\"url\":\"http://x/a.png\"}}",
        "{\"type\":\"file\",\"file\":{\"file_data\":\"http://x/a.png\"}}",
        "{\"type\":\"input_file\",\"file_id\":\"http://x/a.png\"}",
    };
    unsigned char wanted[24] = "\x01user\x02\x04";
    kvr_prompt_identity(kvr_slice_of("http://x/a.png"), wanted + 7);
    wanted[23] = 'q';
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char body[512];
        struct scanned s;
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":[%s,{\"text\":\"q\"}]}]}", same[i]);
        struct kvr_api_options options = {.media_tokens = 77};
        scan_body(&s, KVR_API_CHAT, kvr_slice_of(body), &options, 16);
        assert_int_equal(s.code, KVR_OK);
        assert_memory_equal(s.text.data, wanted, sizeof wanted);
        assert_int_equal(s.request.media, 1);
        assert_int_equal(s.request.extra_tokens, 77);
        assert_int_equal(s.request.prompt_bytes, s.text.len - 17);
        assert_int_equal(s.request.turn, 1);
        scanned_close(&s);
    }
    struct scanned s;
    scan(&s, KVR_API_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"image_url\":{\"url\":\"\"}},"
         "{\"image_url\":{}},{\"source\":{\"type\":\"base64\",\"data\":null}}]}]}");
    assert_int_equal(s.request.media, 0); /* nothing to identify */
    assert_string_equal(s.text.data, "\x01user\x03");
    scanned_close(&s);
}

static void test_what_changes_the_rendering_changes_the_chain(void **state)
{
    (void)state;
    static const char message[] = "\"messages\":[{\"role\":\"user\",\"content\":\"long enough\"}]";
    static const char *const arguments[] = {"",
                                            ",\"chat_template_kwargs\":{\"enable_thinking\":false}",
                                            ",\"chat_template_kwargs\":{\"enable_thinking\":true}",
                                            ",\"reasoning_effort\":\"high\"",
                                            ",\"chat_template\":\"high\"",
                                            ",\"documents\":[{\"t\":1}]"};
    uint64_t firsts[6], scope = 0;
    for (size_t i = 0; i < 6; i++) {
        char body[256];
        struct scanned s;
        snprintf(body, sizeof body, "{\"model\":\"m\",%s%s}", message, arguments[i]);
        scan(&s, KVR_API_CHAT, body);
        firsts[i] = s.prompt.chain[0];
        scope = i == 0 ? s.request.scope : scope;
        assert_true(s.request.scope == scope); /* sessions do not depend on it */
        for (size_t j = 0; j < i; j++)
            assert_true(firsts[i] != firsts[j]);
        scanned_close(&s);
    }
    static const char *const alike[] = {
        "{\"chat_template_kwargs\":{ \"enable_thinking\" : false },\"model\":\"m\",",
        "{\"chat_template_kwargs\":{\"x\":1},\"chat_template_kwargs\":{\"enable_thinking\":"
        "false},\"reasoning_effort\":null,\"documents\":[],\"model\":\"m\","};
    for (size_t i = 0; i < 2; i++) {
        char body[256];
        struct scanned s;
        snprintf(body, sizeof body, "%s%s}", alike[i], message);
        scan(&s, KVR_API_CHAT, body);
        assert_true(s.prompt.chain[0] == firsts[1]);
        scanned_close(&s);
    }
}

static void test_model_lora_and_salt_change_every_block(void **state)
{
    (void)state;
    static const char *const names[] = {"\"model\":\"a\"", "\"model\":\"b\"",
                                        "\"model\":\"a\",\"lora_path\":\"l\"",
                                        "\"model\":\"a\",\"cache_salt\":\"l\"",
                                        "\"model\":\"a\",\"lora\":[{\"id\":0,\"scale\":1}]"};
    struct scanned s[5];
    for (size_t i = 0; i < 5; i++) {
        char body[256];
        snprintf(body, sizeof body, "{%s,\"prompt\":\"long enough for two blocks of it\"}",
                 names[i]);
        scan(&s[i], KVR_API_COMPLETIONS, body);
        assert_int_equal(s[i].prompt.chain_len, 2);
        for (size_t j = 0; j < i; j++)
            assert_int_equal(shared_blocks(&s[i], &s[j]), 0);
    }
    assert_slice(s[4].request.lora, "[{\"id\":0,\"scale\":1}]");
    for (size_t i = 0; i < 5; i++)
        scanned_close(&s[i]);
}

/* --- prompts that are no conversation ------------------------------------------------------ */

static void test_token_ids(void **state)
{
    (void)state;
    struct scanned s;
    scan(&s, KVR_API_COMPLETIONS,
         "{\"prompt\":[1, 258,\n4294967295,1e3,7.0,-1,5000000000,\"x\",null]}");
    static const unsigned char ids[] = {1, 0, 0, 0, 2, 1, 0,   0,   255, 255, 255, 255, 232, 3,
                                        0, 0, 7, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255};
    assert_int_equal(s.text.len, sizeof ids);
    assert_memory_equal(s.text.data, ids, sizeof ids);
    assert_int_equal(s.request.prompt_tokens, 7);
    assert_int_equal(s.request.prompt_bytes, sizeof ids);
    assert_int_equal(s.request.opening_bytes, 0);
    scanned_close(&s);
    static const char *const same[] = {"{\"input_ids\":[1,2,3,4,5]}",
                                       "{\"input_ids\":[[1,2,3,4,5]]}"};
    for (size_t i = 0; i < 2; i++) {
        scan(&s, KVR_API_GENERATE, same[i]);
        assert_int_equal(s.text.len, 20);
        assert_int_equal(s.request.prompt_tokens, 5);
        assert_int_equal(s.request.prompts, 1);
        scanned_close(&s);
    }
}

static void test_batches(void **state)
{
    (void)state;
    static const struct {
        enum kvr_api api;
        const char *body, *text;
        uint32_t prompts;
        int64_t tokens;
        uint64_t bytes, other_bytes, other_tokens;
    } cases[] = {
        {KVR_API_COMPLETIONS, "{\"prompt\":[\"ab\",\"c\\u00e9\",\"\"]}", "ab", 3, -1, 2, 7, 0},
        {KVR_API_COMPLETIONS, "{\"prompt\":[[65],[1,2],[]]}", "A\0\0\0", 3, 1, 4, 0, 2},
        {KVR_API_COMPLETIONS, "{\"prompt\":[\"ab\",[1,2]]}", "ab", 2, -1, 2, 0, 2},
        {KVR_API_COMPLETIONS, "{\"prompt\":[]}", "", 0, -1, 0, 0, 0},
        {KVR_API_EMBEDDINGS, "{\"input\":\"abc\"}", "", 1, -1, 3, 0, 0},
        {KVR_API_EMBEDDINGS, "{\"input\":[\"abc\",\"de\"]}", "", 2, -1, 3, 2, 0},
        {KVR_API_EMBEDDINGS, "{\"input\":[5,6,7]}", "", 1, 3, 0, 0, 0},
        {KVR_API_EMBEDDINGS, "{\"input\":[[5,6,7],[8]]}", "", 2, 3, 0, 0, 1},
        {KVR_API_EMBEDDINGS, "{\"messages\":[{\"a\":1}]}", "", 1, -1, 7, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scanned s;
        scan(&s, cases[i].api, cases[i].body);
        size_t len = i == 1 ? 4 : strlen(cases[i].text);
        if (s.request.prompts != cases[i].prompts || s.request.prompt_tokens != cases[i].tokens ||
            s.request.prompt_bytes != cases[i].bytes ||
            s.request.other_bytes != cases[i].other_bytes ||
            s.request.other_tokens != cases[i].other_tokens || s.text.len != len)
            fail_msg("%s", cases[i].body);
        assert_memory_equal(s.text.data, cases[i].text, len);
        assert_int_equal(s.prompt.chain_len, len / 16);
        scanned_close(&s);
    }
}

static void test_turns(void **state)
{
    (void)state;
    static const struct {
        enum kvr_api api;
        const char *body;
        uint32_t messages, turn;
    } cases[] = {
        {KVR_API_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}", 1, 0},
        {KVR_API_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
         "\"b\"},{\"content\":[{\"text\":\"c\"}],\"role\":\"user\"}]}",
         3, 2},
        {KVR_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", 1, 0},
        {KVR_API_CHAT, "{\"messages\":[{\"role\":\"us\\u0065r\",\"content\":\"x\"}]}", 1, 1},
        {KVR_API_MESSAGES,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{"
         "\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"out\"}]},{\"role\":\"user\","
         "\"content\":[{\"type\":\"tool_result\",\"content\":[{\"text\":\"out\"}]},{\"type\":"
         "\"text\",\"text\":\"b\"}]}]}",
         3, 2},
        {KVR_API_RESPONSES, "{\"input\":\"x\"}", 1, 1},
        {KVR_API_RESPONSES, "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", 1, 0},
        {KVR_API_COMPLETIONS, "{\"prompt\":\"x\"}", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scanned s;
        scan(&s, cases[i].api, cases[i].body);
        if (s.request.messages != cases[i].messages || s.request.turn != cases[i].turn)
            fail_msg("%s: %u messages, turn %u", cases[i].body, s.request.messages, s.request.turn);
        scanned_close(&s);
    }
}

/* --- broken bodies, and worst ones --------------------------------------------------------- */

static void test_broken_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int code;
        const char *error;
    } cases[] = {
        {"", KVR_E_TRUNCATED, "byte 0: the text ends too early"},
        {"[]", KVR_E_INVALID, "byte 0: the body is no JSON object"},
        {"\"x\"", KVR_E_INVALID, "byte 0: the body is no JSON object"},
        {"hello", KVR_E_INVALID, "byte 0: a value was expected"},
        {"{\"model\":\"m\"", KVR_E_TRUNCATED, "byte 12: the text ends too early"},
        {"{\"model\":\"m\"}}", KVR_E_INVALID, "byte 13: more text after the value"},
        {"{\"model\":\"m\"}{\"model\":\"n\"}", KVR_E_INVALID, "byte 13: more text after the value"},
        {"{\"model\":\"\\q\"}", KVR_E_INVALID, "byte 10: a bad escape inside a string"},
        {"{\"messages\":[{\"role\":\"user\",}]}", KVR_E_INVALID, "byte 28: a key was expected"},
        {"{\"messages\":[{\"role\":\"user\"]}", KVR_E_INVALID,
         "byte 27: a comma or a closing bracket was expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scanned s;
        scan_body(&s, KVR_API_CHAT, kvr_slice_of(cases[i].body), NULL, 16);
        assert_int_equal(s.code, cases[i].code);
        assert_int_equal(s.error.code, cases[i].code);
        assert_string_equal(s.error.text, cases[i].error);
        assert_int_equal(s.prompt.chain_len, 0);
        scanned_close(&s);
        scan_body(&s, KVR_API_OPAQUE, kvr_slice_of(cases[i].body), NULL, 16);
        assert_int_equal(s.code, KVR_OK); /* nobody looks inside */
        scanned_close(&s);
    }
}

/* A body that is made of `unit` over and over: what writes most for what it reads. */
static void scan_repeated(enum kvr_api api, const char *start, const char *unit, const char *end)
{
    struct kvr_buffer body = {0};
    struct scanned s;
    kvr_buffer_append_text(&body, start);
    for (int i = 0; i < 3000; i++)
        kvr_buffer_printf(&body, "%s%s", i ? "," : "", unit);
    kvr_buffer_append_text(&body, end);
    scan_body(&s, api, kvr_buffer_slice(&body), NULL, 16);
    assert_int_equal(s.code, KVR_OK);
    assert_true(s.text.len <= 2 * body.len);
    scanned_close(&s);
    kvr_buffer_deinit(&body);
}

static void test_scratch_is_always_large_enough(void **state)
{
    (void)state;
    scan_repeated(KVR_API_COMPLETIONS, "{\"prompt\":[", "1", "]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[", "{}", "]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{\"content\":[", "{\"file\":\"x\"}", "]}]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{\"content\":[{", "\"file\":\"\\/\"", "}]}]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{\"content\":[{", "\"id\":\"\",\"name\":\"\"",
                  "}]}]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{", "\"name\":\"a\"", "}]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{\"content\":\"", "\\ud800", "\"}]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{}],\"tools\":[", "{\"a\":[]}", "]}");
    scan_repeated(KVR_API_CHAT, "{\"messages\":[{}],\"tools\":[{", "\"\":0", "}]}");
    scan_repeated(KVR_API_CHAT, "{", "\"model\":\"\\n\"", "}");
    scan_repeated(KVR_API_CHAT, "{", "\"lora\":[0]", "}");
    scan_repeated(KVR_API_CHAT, "{", "\"messages\":[{}]", "}");
    scan_repeated(KVR_API_RESPONSES, "{", "\"input\":\"a\"", "}");
    scan_repeated(KVR_API_RESPONSES, "{", "\"instructions\":\"a\"", "}");
}

/* One prompt struct serves all requests: nothing of one must show in the next. */
static void test_scans_do_not_see_each_other(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"model\":\"\\u0061\",\"tools\":[1],\"messages\":[{\"content\":\"x\"}]}",
        "{\"prompt\":\"only text here, and a little more\"}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"cut",
        "{}",
    };
    static const enum kvr_api apis[] = {KVR_API_CHAT, KVR_API_COMPLETIONS};
    struct kvr_prompt prompt;
    struct kvr_rng rng;
    kvr_prompt_init(&prompt, &(struct kvr_prompt_options){.block_bytes = 16});
    kvr_rng_init(&rng, 4);
    for (int round = 0; round < 2000; round++) {
        const char *body = bodies[kvr_rng_below(&rng, 4)];
        enum kvr_api api = apis[kvr_rng_below(&rng, 2)];
        struct kvr_api_request request;
        struct scanned fresh;
        scan_body(&fresh, api, kvr_slice_of(body), NULL, 16);
        assert_int_equal(
            kvr_api_request_scan(&request, api, kvr_slice_of(body), NULL, &prompt, NULL),
            fresh.code);
        assert_int_equal(prompt.chain_len, fresh.prompt.chain_len);
        if (prompt.chain_len)
            assert_memory_equal(prompt.chain, fresh.prompt.chain,
                                prompt.chain_len * sizeof *prompt.chain);
        assert_int_equal(request.prompt_bytes, fresh.request.prompt_bytes);
        assert_true(kvr_slice_equal(request.model, fresh.request.model));
        scanned_close(&fresh);
    }
    kvr_prompt_deinit(&prompt);
}

static void test_large_scratch_is_given_back(void **state)
{
    (void)state;
    struct kvr_prompt prompt;
    struct kvr_api_request request;
    struct kvr_buffer body = {0};
    kvr_prompt_init(&prompt, NULL);
    kvr_buffer_append_text(&body, "{\"messages\":[{\"content\":\"");
    char *fill = kvr_buffer_reserve(&body, 8u << 20);
    memset(fill, 'a', 8u << 20);
    body.len += 8u << 20;
    kvr_buffer_append_text(&body, "\",\"role\":\"user\"}]}");
    assert_int_equal(
        kvr_api_request_scan(&request, KVR_API_CHAT, kvr_buffer_slice(&body), NULL, &prompt, NULL),
        KVR_OK);
    assert_int_equal(prompt.chain_len, ((8u << 20) + 7) / 64);
    assert_true(prompt.text.capacity > KVR_PROMPT_KEEP_BYTES);
    assert_int_equal(
        kvr_api_request_scan(&request, KVR_API_CHAT, kvr_slice_of("{}"), NULL, &prompt, NULL),
        KVR_OK);
    assert_true(prompt.text.capacity <= KVR_PROMPT_KEEP_BYTES);
    assert_true(prompt.spare.capacity <= KVR_PROMPT_KEEP_BYTES);
    kvr_prompt_deinit(&prompt);
    kvr_buffer_deinit(&body);
}

/* Random damage to a body that has everything: no crash, and a result only from what is JSON. */
static void test_damaged_bodies(void **state)
{
    (void)state;
    static const char seed_body[] =
        "{\"model\":\"m\",\"tools\":[{\"a\":1,\"cache_control\":{}}],\"messages\":[{\"content\":[{"
        "\"text\":\"a\\u00e9\"},{\"image_url\":{\"url\":\"x\\/y\"}},{\"id\":\"t\",\"name\":\"f\","
        "\"input\":{}},{\"content\":[{\"text\":\"z\"}]}],\"role\":\"user\",\"tool_calls\":[{}]}],"
        "\"prompt\":[[1,2],\"x\"],\"input\":[{\"role\":\"user\"}],\"system\":\"s\",\"metadata\":{"
        "\"user_id\":\"{\\\"session_id\\\":\\\"q\\\"}\"},\"n\":2,\"max_tokens\":1e2,\"lora\":[1],"
        "\"chat_template_kwargs\":{\"a\":1},\"conversation\":{\"id\":\"c\"},\"text\":[\"a\",[1]]}";
    static const char alphabet[] = "{}[]\",:\\u0123e.- ntf\x01\xff";
    struct kvr_api_options options = {.session_field = kvr_slice_of("metadata.user_id"),
                                      .tenant_field = kvr_slice_of("n")};
    struct kvr_rng rng;
    int good = 0;
    kvr_rng_init(&rng, 12);
    for (int round = 0; round < 60000; round++) {
        char body[sizeof seed_body];
        struct scanned s;
        memcpy(body, seed_body, sizeof body);
        size_t len = sizeof body - 1;
        for (uint64_t hits = kvr_rng_below(&rng, 4); hits; hits--)
            body[kvr_rng_below(&rng, len)] = alphabet[kvr_rng_below(&rng, sizeof alphabet - 1)];
        if (kvr_rng_below(&rng, 8) == 0)
            len = kvr_rng_below(&rng, len);
        enum kvr_api api = (enum kvr_api)(1 + kvr_rng_below(&rng, 6));
        scan_body(&s, api, kvr_slice_make(body, len), &options, 16);
        struct kvr_json_reader *json = &(struct kvr_json_reader){.code = 0};
        kvr_json_reader_init(json, kvr_slice_make(body, len));
        bool object = kvr_json_peek(json) == KVR_JSON_OBJECT;
        kvr_json_skip(json, NULL);
        assert_int_equal(s.code == KVR_OK, kvr_json_finish(json) && object);
        good += s.code == KVR_OK;
        scanned_close(&s);
    }
    assert_true(good > 10000);
}

static void test_field_names(void **state)
{
    (void)state;
    assert_int_equal(kvr_api_field_of(kvr_slice_of("model"), KVR_API_CHAT), KVR_FIELD_MODEL);
    assert_int_equal(kvr_api_field_of(kvr_slice_of("max_completion_tokens"), KVR_API_CHAT),
                     KVR_FIELD_MAX_TOKENS_NEW);
    assert_int_equal(kvr_api_field_of(kvr_slice_of("n"), KVR_API_EMBEDDINGS), KVR_FIELD_N);
    assert_int_equal(kvr_api_field_of(kvr_slice_of("input"), KVR_API_CHAT), KVR_FIELD_IGNORED);
    assert_int_equal(kvr_api_field_of(kvr_slice_of("input"), KVR_API_RESPONSES),
                     KVR_FIELD_MESSAGES);
    assert_int_equal(kvr_api_field_of(kvr_slice_of("input"), KVR_API_EMBEDDINGS), KVR_FIELD_PROMPT);
    assert_int_equal(kvr_api_field_of(kvr_slice_of("Model"), KVR_API_CHAT), KVR_FIELD_IGNORED);
    assert_int_equal(kvr_api_field_of((struct kvr_slice){0}, KVR_API_CHAT), KVR_FIELD_IGNORED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_unexpected_types_are_passed_over),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_the_last_of_two_keys_counts),
        cmocka_unit_test(test_canonical_text),
        cmocka_unit_test(test_apis_agree),
        cmocka_unit_test(test_key_order_in_a_message_does_not_matter),
        cmocka_unit_test(test_media),
        cmocka_unit_test(test_what_changes_the_rendering_changes_the_chain),
        cmocka_unit_test(test_model_lora_and_salt_change_every_block),
        cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_broken_bodies),
        cmocka_unit_test(test_scratch_is_always_large_enough),
        cmocka_unit_test(test_scans_do_not_see_each_other),
        cmocka_unit_test(test_large_scratch_is_given_back),
        cmocka_unit_test(test_damaged_bodies),
        cmocka_unit_test(test_field_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
