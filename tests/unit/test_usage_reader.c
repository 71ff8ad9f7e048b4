/* core/model/usage_*: what is read from an answer does not depend on how it was cut, and is right
 * for every recorded stream and for the shapes of every API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "data_file.h"
#include "memory.h"
#include "rng.h"
#include "usage_reader.h"

#define MS 1000000u

/* What a stream is expected to say. */
struct expected {
    const char *file;
    uint32_t content_events;
    uint32_t first_event; /* 1-based number of the first event with content; 0 none */
    int64_t prompt, completion, cached;
    bool done;
    bool reasoned;
    const char *reply; /* NULL: spoiled */
};

static const struct expected files[] = {
    {"openai_chat_usage_final.sse", 0, 0, 12, 100, 0, true, false, ""},
    {"openai_completion_usage.sse", 25, 1, 31, 25, -1, true, false, "@"},
    {"deepseek_tool_call_cached320.sse", 44, 2, 339, 83, 320, true, true, NULL},
    {"mistral_hosted_incremental_tool_call.sse", 2, 1, 171, 14, 128, true, false, NULL},
    {"groq_text_xgroq.sse", 44, 2, 45, 662, -1, true, false, "@"},
    {"recreated_vllm_usage_null_details.sse", 6, 2, 1170, 7, -1, true, false,
     "The fee is twelve tokens."},
    {"recreated_vllm_usage_cached1152.sse", 6, 2, 1170, 7, 1152, true, false,
     "The fee is twelve tokens."},
    {"recreated_llamacpp_timings.sse", 3, 2, 1350, 4, 1100, true, false, "Band C."},
    {"recreated_sglang_reasoning.sse", 4, 2, 59, 6, 48, true, true, "C"},
};
#define FILES (sizeof files / sizeof *files)

/* Feeds bytes [from, to) from an exact allocation. */
static void feed(struct kvr_usage_reader *reader, struct kvr_slice text, size_t from, size_t to,
                 uint64_t now_ns)
{
    char *exact = kvr_alloc(to - from);
    memcpy(exact, text.data + from, to - from);
    kvr_usage_reader_feed(reader, exact, to - from, now_ns);
    kvr_free(exact);
}

static void load(const char *name, struct kvr_buffer *out)
{
    char path[128];
    snprintf(path, sizeof path, "sse/%s", name);
    data_file_read(path, out);
}

/* Number of the event, from 1, in which byte `at` of the stream lies. */
static uint32_t event_at(struct kvr_slice text, size_t at)
{
    uint32_t event = 1;
    for (size_t i = 0; i + 1 < at; i++)
        event += text.data[i] == '\n' && text.data[i + 1] == '\n';
    return event;
}

static void check(const struct expected *expected, const struct kvr_usage_reader *reader)
{
    if (reader->content_events != expected->content_events)
        fail_msg("%s: %u events with content", expected->file, reader->content_events);
    assert_int_equal(reader->usage.prompt_tokens, expected->prompt);
    assert_int_equal(reader->usage.completion_tokens, expected->completion);
    assert_int_equal(reader->usage.cached_tokens, expected->cached);
    assert_int_equal(reader->done_seen, expected->done);
    assert_int_equal(reader->reasoned, expected->reasoned);
    assert_false(reader->error_seen);
    assert_false(reader->aborted);
    assert_int_equal(reader->malformed, 0);
    assert_int_equal(reader->kept.capacity, 0); /* nothing is held between events */
}

static void test_whole_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        struct kvr_buffer text = {0}, reply = {0};
        struct kvr_usage_reader reader;
        load(files[i].file, &text);
        kvr_usage_reader_init(&reader, KVR_USAGE_STREAM);
        reader.reply = &reply;
        reader.reply_max = 100000;
        feed(&reader, kvr_buffer_slice(&text), 0, text.len, 5 * MS);
        kvr_usage_reader_finish(&reader, 6 * MS);
        check(&files[i], &reader);
        assert_int_equal(reader.first_content_ns, files[i].first_event ? 5 * MS : 0);
        assert_int_equal(reader.reply_spoiled, files[i].reply == NULL);
        if (files[i].reply && files[i].reply[0] != '@')
            assert_true(kvr_slice_is(kvr_buffer_slice(&reply), files[i].reply));
        else if (files[i].reply)
            assert_true(reply.len > 20);
        kvr_usage_reader_deinit(&reader);
        kvr_buffer_deinit(&text);
        kvr_buffer_deinit(&reply);
    }
}

/* Time is the offset of the last byte read, so the first content's time tells its event. */
static void check_cut(size_t i, struct kvr_slice text, size_t step, size_t cut)
{
    struct kvr_usage_reader reader;
    kvr_usage_reader_init(&reader, KVR_USAGE_STREAM);
    if (cut) {
        feed(&reader, text, 0, cut, cut);
        feed(&reader, text, cut, text.len, text.len);
    } else {
        for (size_t at = 0; at < text.len; at += step) {
            size_t to = at + step < text.len ? at + step : text.len;
            feed(&reader, text, at, to, to);
        }
    }
    kvr_usage_reader_finish(&reader, text.len);
    check(&files[i], &reader);
    if (step == 1 && !cut)
        assert_int_equal(reader.first_content_ns ? event_at(text, reader.first_content_ns) : 0,
                         files[i].first_event);
    kvr_usage_reader_deinit(&reader);
}

static void test_files_cut_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        struct kvr_buffer text = {0};
        load(files[i].file, &text);
        for (size_t cut = 1; cut < text.len; cut++)
            check_cut(i, kvr_buffer_slice(&text), 0, cut);
        for (size_t step = 1; step < 40; step++)
            check_cut(i, kvr_buffer_slice(&text), step, 0);
        kvr_buffer_deinit(&text);
    }
}

/* The offsets that the data names as the most awkward ones, all of a file at once. */
static void test_files_at_their_split_points(void **state)
{
    (void)state;
    struct kvr_buffer points = {0};
    struct kvr_json_reader json;
    struct kvr_json_span key;
    size_t seen = 0;
    data_file_read("sse/split_points.json", &points);
    kvr_json_reader_init(&json, kvr_buffer_slice(&points));
    assert_true(kvr_json_enter_object(&json));
    while (kvr_json_next_key(&json, &key)) {
        struct kvr_usage_reader reader;
        struct kvr_buffer text = {0};
        struct kvr_slice number;
        size_t i = 0, at = 0;
        while (i < FILES && !kvr_slice_is(key.raw, files[i].file))
            i++;
        if (i == FILES)
            fail_msg("no check for %.*s", (int)key.raw.len, key.raw.data);
        seen++;
        load(files[i].file, &text);
        kvr_usage_reader_init(&reader, KVR_USAGE_STREAM);
        assert_true(kvr_json_enter_array(&json));
        while (kvr_json_next_item(&json)) {
            assert_true(kvr_json_read_number(&json, &number));
            size_t to = (size_t)strtoul(number.data, NULL, 10);
            feed(&reader, kvr_buffer_slice(&text), at, to, to);
            at = to;
        }
        feed(&reader, kvr_buffer_slice(&text), at, text.len, text.len);
        kvr_usage_reader_finish(&reader, text.len);
        check(&files[i], &reader);
        kvr_usage_reader_deinit(&reader);
        kvr_buffer_deinit(&text);
    }
    assert_true(kvr_json_finish(&json));
    assert_int_equal(seen, FILES);
    kvr_buffer_deinit(&points);
}

/* The same streams with CRLF line ends, no blank after `data:`, and comments between. */
static void test_files_in_other_framings(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        struct kvr_buffer text = {0}, framed = {0};
        load(files[i].file, &text);
        for (size_t at = 0; at < text.len; at++) {
            if (at + 6 < text.len && memcmp(text.data + at, "data: ", 6) == 0) {
                kvr_buffer_append_text(&framed, ": ping\r\nevent: x\r\nid: 1\r\ndata:");
                at += 5;
            } else if (text.data[at] == '\n') {
                kvr_buffer_append_text(&framed, "\r\n");
            } else {
                kvr_buffer_append(&framed, text.data + at, 1);
            }
        }
        check_cut(i, kvr_buffer_slice(&framed), 100000, 0);
        for (size_t step = 2; step < 30; step += 3)
            check_cut(i, kvr_buffer_slice(&framed), step, 0);
        kvr_buffer_deinit(&text);
        kvr_buffer_deinit(&framed);
    }
}

/* --- shapes -------------------------------------------------------------------------------- */

static struct kvr_usage_reader read_all(enum kvr_usage_format format, const char *text)
{
    struct kvr_usage_reader reader;
    kvr_usage_reader_init(&reader, format);
    for (size_t at = 0; text[at]; at++) /* one byte a read: nothing hangs on luck */
        feed(&reader, kvr_slice_of(text), at, at + 1, 1 + at);
    kvr_usage_reader_finish(&reader, 1 + strlen(text));
    return reader;
}

/* The end of it as what is known to be the last, without a read before it if `from` is 0. */
static struct kvr_usage_reader read_last(enum kvr_usage_format format, const char *text,
                                         size_t from)
{
    struct kvr_usage_reader reader;
    kvr_usage_reader_init(&reader, format);
    feed(&reader, kvr_slice_of(text), 0, from, 1);
    kvr_usage_reader_feed_last(&reader, text + from, strlen(text) - from, 1);
    kvr_usage_reader_finish(&reader, 1 + strlen(text));
    return reader;
}

static void assert_seen(struct kvr_usage_reader reader, const char *text, uint32_t events,
                        int64_t prompt, int64_t completion, int64_t cached, const char *flags)
{
    char seen[5] = "", *flag = seen;
    if (reader.done_seen)
        *flag++ = 'd';
    if (reader.error_seen)
        *flag++ = 'e';
    if (reader.aborted)
        *flag++ = 'a';
    if (reader.malformed)
        *flag++ = 'm';
    if (reader.content_events != events || reader.usage.prompt_tokens != prompt ||
        reader.usage.completion_tokens != completion || reader.usage.cached_tokens != cached ||
        strcmp(seen, flags) != 0)
        fail_msg("%s\n%u events, %lld %lld %lld, flags \"%s\"", text, reader.content_events,
                 (long long)reader.usage.prompt_tokens, (long long)reader.usage.completion_tokens,
                 (long long)reader.usage.cached_tokens, seen);
    kvr_usage_reader_deinit(&reader);
}

static void assert_read(enum kvr_usage_format format, const char *text, uint32_t events,
                        int64_t prompt, int64_t completion, int64_t cached, const char *flags)
{
    struct kvr_usage_reader readers[] = {
        read_all(format, text),
        read_last(format, text, 0),
        read_last(format, text, strlen(text) / 2),
    };
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        assert_seen(readers[i], text, events, prompt, completion, cached, flags);
}

static void test_responses_stream(void **state)
{
    (void)state;
    assert_read(
        KVR_USAGE_STREAM,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":"
        "\"r\",\"error\":null,\"usage\":null}}\n\n"
        "event: response.reasoning_text.delta\ndata: {\"type\":"
        "\"response.reasoning_text.delta\",\"delta\":\"hm\"}\n\n"
        "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":9,\"delta\":\"a\"}"
        "\n\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":10,\"delta\":"
        "\"b\"}\n\ndata: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}"
        "\n\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"\"}\n\n"
        "data: {\"type\":\"response.output_text.done\",\"text\":\"ab\"}\n\n"
        "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{"
        "\"text\":\"ab\"}]}],\"usage\":{\"input_tokens\":50,\"input_tokens_details\":{"
        "\"cached_tokens\":32},\"output_tokens\":4,\"total_tokens\":54}}}\n\n",
        4, 50, 4, 32, "d");
    assert_read(
        KVR_USAGE_STREAM,
        "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"x\"}}}\n\n", 0, -1,
        -1, -1, "de");
    assert_read(KVR_USAGE_STREAM, "data: {\"type\":\"response.incomplete\",\"response\":{}}\n\n", 0,
                -1, -1, -1, "d");
}

static void test_messages_stream(void **state)
{
    (void)state;
    assert_read(
        KVR_USAGE_STREAM,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"role\":"
        "\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":10,"
        "\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":32,\"output_tokens\":1"
        "}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\","
        "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: ping\ndata: {\"type\":"
        "\"ping\"}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":"
        "\"thinking_delta\",\"thinking\":\"t\"}}\n\ndata: {\"type\":\"content_block_delta\","
        "\"delta\":{\"type\":\"signature_delta\",\"signature\":\"zz\"}}\n\n"
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":"
        "\"a\"}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":"
        "\"input_json_delta\",\"partial_json\":\"{\"}}\n\ndata: {\"type\":\"message_delta\","
        "\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n"
        "data: {\"type\":\"message_stop\"}\n\n",
        3, 45, 15, 32, "d");
    assert_read(KVR_USAGE_STREAM,
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"
                "\n\n",
                0, -1, -1, -1, "e");
}

static void test_chat_streams(void **state)
{
    (void)state;
#define ROLE "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
#define TEXT "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
    /* an engine's failure after 200 */
    assert_read(KVR_USAGE_STREAM,
                ROLE TEXT TEXT "data: {\"error\":{\"message\":\"dead\",\"code\":500}}\n\n"
                               "data: [DONE]\n\n",
                2, -1, -1, -1, "de");
    assert_read(KVR_USAGE_STREAM, "data: {\"error\":\"model is busy\"}\n\n", 0, -1, -1, -1, "e");
    assert_read(KVR_USAGE_STREAM, "data: {\"error\":null,\"choices\":[]}\n\n", 0, -1, -1, -1, "");
    /* given up by the engine */
    assert_read(KVR_USAGE_STREAM,
                TEXT "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\n", 1, -1,
                -1, -1, "a");
    assert_read(KVR_USAGE_STREAM,
                TEXT "data: {\"choices\":[{\"delta\":{},\"finish_reason\":{\"type\":\"abort\","
                     "\"message\":\"full\"}}]}\n\n",
                1, -1, -1, -1, "a");
    /* usage in every event, the last one counts; content and usage in one event */
    assert_read(
        KVR_USAGE_STREAM,
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":9,"
        "\"completion_tokens\":1}}\n\n"
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":9,"
        "\"completion_tokens\":2}}\n\n",
        2, 9, 2, -1, "");
    assert_read(KVR_USAGE_STREAM,
                TEXT TEXT "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\": {"
                          "\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n",
                3, 9, 3, -1, "");
    /* words inside a text are no keys */
    assert_read(KVR_USAGE_STREAM,
                TEXT
                "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\"
                "\":5}}\"}}]}\n\n",
                2, -1, -1, -1, "");
    assert_read(KVR_USAGE_STREAM,
                TEXT "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\":{}\"}}]}\n\n", 2,
                -1, -1, -1, "");
    /* tool calls: a name, then arguments; an empty list is nothing */
    assert_read(KVR_USAGE_STREAM,
                ROLE "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
                     "\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n"
                     "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
                     "\"arguments\":\"{\"}}]}}]}\n\n"
                     "data: {\"choices\":[{\"delta\":{\"tool_calls\":[]}}]}\n\n",
                2, -1, -1, -1, "");
    /* blanks as Python writes them, an escape first, content as a list of parts */
    assert_read(KVR_USAGE_STREAM,
                "data: {\"choices\": [{\"delta\": {\"content\": \"\\n\"}}]}\n\n"
                "data: {\"choices\": [{\"delta\": {\"content\": \"\\\"\"}}]}\n\n"
                "data: {\"choices\": [{\"delta\": {\"content\": \"\"}}]}\n\n"
                "data: {\"choices\": [{\"delta\": {\"content\": [{\"type\": \"thinking\"}]}}]}\n\n",
                3, -1, -1, -1, "");
    /* not JSON, cut short, and a line that is neither */
    assert_read(KVR_USAGE_STREAM,
                "data: {\"choices\":[{\"delta\":\n\ndata: oops\n\nnonsense\n" TEXT, 1, -1, -1, -1,
                "m");
    /* a whole answer as one event (beam search) */
    assert_read(KVR_USAGE_STREAM,
                "data: {\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"x\"}}],"
                "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
                1, 1, 2, -1, "d");
    /* no newline after the last line */
    assert_read(KVR_USAGE_STREAM, TEXT "data: [DONE]", 1, -1, -1, -1, "d");
    assert_read(KVR_USAGE_STREAM, TEXT "data: {\"choices\":[{\"del", 1, -1, -1, -1, "");
    assert_read(KVR_USAGE_STREAM, "data:   {\"choices\":[{\"text\":\"x\"}]}\n", 1, -1, -1, -1, "");
    assert_read(KVR_USAGE_STREAM, "", 0, -1, -1, -1, "");
    assert_read(KVR_USAGE_STREAM, "\n\n:\n\n\r\n:", 0, -1, -1, -1, "");
}

static void test_other_streams(void **state)
{
    (void)state;
    /* SGLang /generate: cumulative text, counts in every event */
    assert_read(KVR_USAGE_STREAM,
                "data: {\"text\":\"a\",\"meta_info\":{\"prompt_tokens\":8,\"completion_tokens\":1,"
                "\"cached_tokens\":4,\"finish_reason\":null}}\n\n"
                "data: {\"text\":\"ab\",\"meta_info\":{\"prompt_tokens\":8,\"completion_tokens\":2,"
                "\"cached_tokens\":4,\"finish_reason\":{\"type\":\"length\",\"length\":2}}}\n\n"
                "data: [DONE]\n\n",
                2, 8, 2, 4, "d");
    assert_read(KVR_USAGE_STREAM,
                "data: {\"text\":\"\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"}}}\n\n",
                0, -1, -1, -1, "a");
    /* TGI: no blank, a token object */
    assert_read(
        KVR_USAGE_STREAM,
        "data:{\"index\":1,\"token\":{\"id\":5,\"text\":\" a\"},\"generated_text\":null}\n\n"
        "data:{\"index\":2,\"token\":{\"id\":6,\"text\":\" b\"},\"generated_text\":\"a b\"}\n\n",
        2, -1, -1, -1, "");
    /* llama.cpp native */
    assert_read(
        KVR_USAGE_STREAM,
        "data: {\"content\":\"a\",\"stop\":false}\n\ndata: {\"content\":\"\",\"stop\":true,"
        "\"tokens_cached\":99,\"timings\":{\"cache_n\":4,\"prompt_n\":6,\"predicted_n\":1}}\n\n",
        1, 10, 1, 4, "");
    /* JSON lines */
    assert_read(KVR_USAGE_STREAM,
                "{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}\n"
                "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true}\n",
                1, -1, -1, -1, "d");
}

static void test_bodies(void **state)
{
    (void)state;
    assert_read(
        KVR_USAGE_BODY,
        "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":"
        "{\"prompt_tokens\":5,\"completion_tokens\":6,\"prompt_tokens_details\":{"
        "\"cached_tokens\":2}}}",
        0, 5, 6, 2, "");
    assert_read(KVR_USAGE_BODY,
                "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6,\"prompt_tokens_details\":"
                "null}}\n",
                0, 5, 6, -1, "");
    assert_read(KVR_USAGE_BODY,
                "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"usage\":{"
                "\"input_tokens\":7,\"output_tokens\":1}}",
                0, 7, 1, -1, "");
    assert_read(KVR_USAGE_BODY, "{\"error\":{\"message\":\"no\"}}", 0, -1, -1, -1, "e");
    assert_read(KVR_USAGE_BODY,
                "[{\"text\":\"x\",\"meta_info\":{\"prompt_tokens\":3,\"cached_tokens\":1}}]", 0, 3,
                -1, 1, "");
    assert_read(KVR_USAGE_BODY, "{\"usage\":{\"prompt_tokens\":5", 0, -1, -1, -1, "m");
    assert_read(KVR_USAGE_BODY, "<html>", 0, -1, -1, -1, "m");
    assert_read(KVR_USAGE_BODY, "", 0, -1, -1, -1, "");
    assert_read(
        KVR_USAGE_BODY,
        "{\"usage\":{\"prompt_tokens\":-5,\"completion_tokens\":1.5,\"prompt_tokens_details\":"
        "[],\"cached_tokens\":\"x\"}}",
        0, -1, -1, -1, "");
}

/* --- bounds -------------------------------------------------------------------------------- */

/* An answer of 300 KB: what is kept of it stays small, and the counts at its end are found. */
static void test_long_answers_keep_their_end(void **state)
{
    (void)state;
    static const size_t steps[] = {100, 1000, 8192, 16384, 65536, 400000};
    for (int stream = 0; stream < 2; stream++) {
        struct kvr_buffer text = {0};
        kvr_buffer_append_text(&text, stream
                                          ? "data: {\"type\":\"response.completed\",\"response\":{"
                                          : "{\"choices\":");
        kvr_buffer_append_text(&text, "\"output\":\"");
        for (int i = 0; i < 20000; i++)
            kvr_buffer_append_text(&text, "text \\\"usage\\\":");
        kvr_buffer_append_text(&text, "\",\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":8,"
                                      "\"prompt_tokens_details\":{\"cached_tokens\":7}}}");
        kvr_buffer_append_text(&text, stream ? "}\n\ndata: [DONE]\n\n" : "");
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            struct kvr_usage_reader reader;
            kvr_usage_reader_init(&reader, stream ? KVR_USAGE_STREAM : KVR_USAGE_BODY);
            for (size_t at = 0; at < text.len; at += steps[s]) {
                size_t to = at + steps[s] < text.len ? at + steps[s] : text.len;
                feed(&reader, kvr_buffer_slice(&text), at, to, 1);
                assert_true(reader.kept.len <= KVR_USAGE_KEPT_MAX);
                assert_true(reader.kept.capacity <= 2 * KVR_USAGE_KEPT_MAX);
            }
            kvr_usage_reader_finish(&reader, 2);
            assert_int_equal(reader.usage.prompt_tokens, 9);
            assert_int_equal(reader.usage.completion_tokens, 8);
            assert_int_equal(reader.usage.cached_tokens, 7);
            assert_int_equal(reader.done_seen, stream);
            assert_int_equal(reader.kept.capacity, 0);
            kvr_usage_reader_deinit(&reader);
        }
        kvr_buffer_deinit(&text);
    }
}

/* Content that is too long to be kept whole still counts once its place is known. */
static void test_long_events_count(void **state)
{
    (void)state;
    struct kvr_buffer text = {0};
    struct kvr_usage_reader reader;
    for (int event = 0; event < 3; event++) {
        kvr_buffer_append_text(&text, "data: {\"choices\":[{\"delta\":{\"content\":\"");
        for (int i = 0; i < (event ? 4000 : 1); i++)
            kvr_buffer_append_text(&text, "0123456789");
        kvr_buffer_append_text(&text, "\"}}]}\n\n");
    }
    kvr_usage_reader_init(&reader, KVR_USAGE_STREAM);
    for (size_t at = 0; at < text.len; at += 1000)
        feed(&reader, kvr_buffer_slice(&text), at, at + 1000 < text.len ? at + 1000 : text.len, at);
    kvr_usage_reader_finish(&reader, text.len);
    assert_int_equal(reader.content_events, 3);
    assert_int_equal(reader.malformed, 0);
    kvr_usage_reader_deinit(&reader);
    kvr_buffer_deinit(&text);
}

static void test_reply(void **state)
{
    (void)state;
    static const struct {
        enum kvr_usage_format format;
        const char *text, *reply; /* NULL: spoiled */
        uint32_t max;
    } cases[] = {
        {KVR_USAGE_STREAM, ROLE TEXT TEXT TEXT, "xxx", 100},
        {KVR_USAGE_STREAM, TEXT TEXT TEXT, NULL, 2},
        {KVR_USAGE_STREAM,
         "data: {\"choices\":[{\"delta\":{\"content\":\"\\u00e9\\n\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\\ude00\"}}]}\n\n" TEXT,
         "\xc3\xa9\n\xf0\x9f\x98\x80x", 100},
        {KVR_USAGE_STREAM,
         "data: {\"choices\":[{\"delta\":{\"reasoning\":\"no\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"reasoning\":\"no\"}}]}\n\n" TEXT,
         "x", 100},
        {KVR_USAGE_STREAM, TEXT "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\n", NULL,
         100},
        {KVR_USAGE_STREAM,
         "data: "
         "{\"choices\":[{\"delta\":{\"content\":\"a\"}},{\"delta\":{\"content\":\"b\"}}]}\n\n",
         NULL, 100},
        {KVR_USAGE_STREAM,
         "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n"
         "data: {\"type\":\"response.output_text.delta\",\"delta\":\"b\"}\n\n",
         "ab", 100},
        {KVR_USAGE_STREAM,
         "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"a\"}\n", NULL,
         100},
        {KVR_USAGE_STREAM,
         "data: "
         "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}"
         "\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":"
         "\"b\"}}\n\n",
         "ab", 100},
        {KVR_USAGE_BODY, "{\"choices\":[{\"message\":{\"content\":\"a\\nb\",\"tool_calls\":[]}}]}",
         "a\nb", 100},
        {KVR_USAGE_BODY, "{\"choices\":[{\"message\":{\"content\":\"a\",\"tool_calls\":[{}]}}]}",
         NULL, 100},
        {KVR_USAGE_BODY, "{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}", NULL, 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_usage_reader reader;
        struct kvr_buffer reply = {0};
        kvr_usage_reader_init(&reader, cases[i].format);
        reader.reply = &reply;
        reader.reply_max = cases[i].max;
        feed(&reader, kvr_slice_of(cases[i].text), 0, strlen(cases[i].text), 1);
        kvr_usage_reader_finish(&reader, 1);
        if (reader.reply_spoiled != (cases[i].reply == NULL))
            fail_msg("%s", cases[i].text);
        if (cases[i].reply)
            assert_true(kvr_slice_is(kvr_buffer_slice(&reply), cases[i].reply));
        kvr_usage_reader_deinit(&reader);
        kvr_buffer_deinit(&reply);
    }
}

/* --- times --------------------------------------------------------------------------------- */

static void test_gaps(void **state)
{
    (void)state;
    static const uint64_t times[] = {100, 110, 125, 125, 205, 215};
    struct kvr_usage_reader reader;
    kvr_usage_reader_init(&reader, KVR_USAGE_STREAM);
    feed(&reader, kvr_slice_of(ROLE), 0, strlen(ROLE), 50 * MS);
    assert_int_equal(reader.first_content_ns, 0);
    assert_int_equal(kvr_usage_reader_gaps(&reader).mean_ns, 0);
    for (size_t i = 0; i < 6; i++)
        feed(&reader, kvr_slice_of(TEXT), 0, strlen(TEXT), times[i] * MS);
    feed(&reader, kvr_slice_of("data: [DONE]\n\n"), 0, 14, 900 * MS);
    struct kvr_usage_gaps gaps = kvr_usage_reader_gaps(&reader);
    assert_int_equal(reader.first_content_ns, 100 * MS);
    assert_int_equal(reader.last_content_ns, 215 * MS);
    assert_int_equal(gaps.mean_ns, 23 * MS);
    assert_int_equal(gaps.max_ns, 80 * MS);
    assert_int_equal(gaps.median_ns, 10 * MS);
    kvr_usage_reader_deinit(&reader);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void test_median(void **state)
{
    (void)state;
    struct kvr_rng rng;
    float samples[4000];
    kvr_rng_init(&rng, 2);
    for (int kind = 0; kind < 4; kind++) {
        for (uint32_t count = 1; count < 4000; count = count < 6 ? count + 1 : count * 3) {
            struct kvr_median median = {{0}, {0}, 0};
            for (uint32_t i = 0; i < count; i++) {
                double u = kvr_rng_double(&rng);
                samples[i] = (float)(kind == 0   ? u
                                     : kind == 1 ? -log(1 - u)            /* exponential */
                                     : kind == 2 ? exp(3 * u)             /* skewed */
                                                 : (u < 0.7 ? 10 : 500)); /* two heaps */
                kvr_median_add(&median, samples[i]);
            }
            qsort(samples, count, sizeof *samples, by_value);
            float exact = samples[(count - 1) / 2], got = kvr_median_value(&median);
            if (count <= 5)
                assert_true(got == exact);
            uint32_t off = count < 1000 ? 10 : 3; /* points of rank */
            if (count >= 50 && kind < 3)
                assert_true(got >= samples[count * (50 - off) / 100] &&
                            got <= samples[count * (50 + off) / 100]);
            assert_true(got >= samples[0] && got <= samples[count - 1]);
        }
    }
    struct kvr_median same = {{0}, {0}, 0};
    for (int i = 0; i < 1000; i++)
        kvr_median_add(&same, 7);
    assert_true(kvr_median_value(&same) == 7);
}

/* Damaged streams, cut anywhere: nothing crashes, and what comes out does not depend on the cut. */
static void test_damaged_streams(void **state)
{
    (void)state;
    static const char alphabet[] = "{}[]\",:\\u\nd.-3\r\xff";
    struct kvr_rng rng;
    kvr_rng_init(&rng, 6);
    for (int round = 0; round < 3000; round++) {
        struct kvr_buffer text = {0};
        struct kvr_usage_reader whole, pieces;
        load(files[kvr_rng_below(&rng, FILES)].file, &text);
        text.len = text.len < 3000 ? text.len : 3000;
        for (uint64_t hits = kvr_rng_below(&rng, 20); hits; hits--)
            text.data[kvr_rng_below(&rng, text.len)] =
                alphabet[kvr_rng_below(&rng, sizeof alphabet - 1)];
        kvr_usage_reader_init(&whole, KVR_USAGE_STREAM);
        kvr_usage_reader_init(&pieces, KVR_USAGE_STREAM);
        feed(&whole, kvr_buffer_slice(&text), 0, text.len, 1);
        for (size_t at = 0; at < text.len;) {
            size_t to = at + 1 + kvr_rng_below(&rng, 300);
            to = to < text.len ? to : text.len;
            feed(&pieces, kvr_buffer_slice(&text), at, to, 1);
            at = to;
        }
        kvr_usage_reader_finish(&whole, 1);
        kvr_usage_reader_finish(&pieces, 1);
        assert_int_equal(whole.content_events, pieces.content_events);
        assert_int_equal(whole.malformed, pieces.malformed);
        assert_memory_equal(&whole.usage, &pieces.usage, sizeof whole.usage);
        assert_int_equal(whole.done_seen, pieces.done_seen);
        assert_int_equal(whole.error_seen, pieces.error_seen);
        kvr_usage_reader_deinit(&whole);
        kvr_usage_reader_deinit(&pieces);
        kvr_buffer_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_files),
        cmocka_unit_test(test_files_cut_anywhere),
        cmocka_unit_test(test_files_at_their_split_points),
        cmocka_unit_test(test_files_in_other_framings),
        cmocka_unit_test(test_responses_stream),
        cmocka_unit_test(test_messages_stream),
        cmocka_unit_test(test_chat_streams),
        cmocka_unit_test(test_other_streams),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_long_answers_keep_their_end),
        cmocka_unit_test(test_long_events_count),
        cmocka_unit_test(test_reply),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_damaged_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
