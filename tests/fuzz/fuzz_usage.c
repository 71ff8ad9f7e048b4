/* Reading usage out of answers: event streams, JSON lines, plain bodies. Input: one byte of
 * choices, a plan of cuts, the payload; a byte 0xfe stands for 6,000 bytes, so that lines can be
 * too long.
 *
 * What is read does not depend on the cuts, as long as no line is longer than what is kept; counts
 * are never invented; and an event alone is read as JSON says. */
#include "fuzz.h"

#include "naive_json.h"
#include "usage_reader.h"

enum choices { BODY = 1, REPLY = 2, SHORT_REPLY = 4 };

#define FILLER_BYTES 6000

static struct kvr_buffer expand(const struct fuzz_input *input)
{
    struct kvr_buffer out = {0};
    for (size_t i = 0; i < input->left && out.len < 100000; i++) {
        if (input->at[i] != 0xfe) {
            kvr_buffer_append(&out, &input->at[i], 1);
            continue;
        }
        memset(kvr_buffer_reserve(&out, FILLER_BYTES), 'x', FILLER_BYTES);
        out.len += FILLER_BYTES;
    }
    return out;
}

/* Whether every line (or the body) is kept whole, wherever it is cut. */
static bool is_kept(const struct kvr_buffer *payload, bool body)
{
    size_t line = 0;
    for (size_t i = 0; i < payload->len; i++) {
        line = payload->data[i] == '\n' && !body ? 0 : line + 1;
        if (line > KVR_USAGE_TAIL)
            return false;
    }
    return true;
}

static void note_usage(struct kvr_buffer *log, const struct kvr_token_usage *usage)
{
    FUZZ_CHECK(usage->prompt_tokens >= -1 && usage->completion_tokens >= -1);
    FUZZ_CHECK(usage->cached_tokens >= -1);
    kvr_buffer_printf(log, "prompt %lld completion %lld cached %lld\n",
                      (long long)usage->prompt_tokens, (long long)usage->completion_tokens,
                      (long long)usage->cached_tokens);
}

static struct kvr_buffer understand(struct kvr_slice payload, struct fuzz_cuts cuts,
                                    unsigned choices)
{
    struct kvr_usage_reader reader;
    struct kvr_buffer log = {0}, reply = {0};
    kvr_usage_reader_init(&reader, choices & BODY ? KVR_USAGE_BODY : KVR_USAGE_STREAM);
    if (choices & REPLY) {
        reader.reply = &reply;
        reader.reply_max = choices & SHORT_REPLY ? 4 : 1000;
    }
    uint64_t now_ns = 1000;
    for (size_t at = 0; at < payload.len;) {
        size_t piece = fuzz_piece(&cuts, payload.len - at);
        struct fuzz_input exact = {(const uint8_t *)payload.data + at, piece};
        char *copy = fuzz_rest(&exact);
        kvr_usage_reader_feed(&reader, copy, piece, now_ns);
        free(copy);
        FUZZ_CHECK(reader.kept.len <= KVR_USAGE_KEPT_MAX);
        at += piece;
    }
    kvr_usage_reader_finish(&reader, now_ns);
    struct kvr_usage_gaps gaps = kvr_usage_reader_gaps(&reader);
    FUZZ_CHECK(gaps.mean_ns == 0 && gaps.max_ns == 0);
    FUZZ_CHECK((reader.content_events > 0) == (reader.first_content_ns == now_ns));
    FUZZ_CHECK(reader.kept.data == NULL);
    note_usage(&log, &reader.usage);
    kvr_buffer_printf(&log, "events %u malformed %u done %d error %d aborted %d reasoned %d\n",
                      reader.content_events, reader.malformed, reader.done_seen, reader.error_seen,
                      reader.aborted, reader.reasoned);
    /* A spoiled reply is worth nothing, and may end anywhere. */
    if ((choices & REPLY) && !reader.reply_spoiled)
        fuzz_note_slice(&log, "reply", kvr_buffer_slice(&reply));
    FUZZ_CHECK(reader.reply_spoiled || reply.len <= reader.reply_max);
    kvr_usage_reader_deinit(&reader);
    kvr_buffer_deinit(&reply);
    return log;
}

/* The payload as one event. */
static void read_event(struct kvr_slice text)
{
    struct kvr_usage_event event;
    struct kvr_token_usage tail = {-1, -1, -1};
    struct fuzz_input exact = {(const uint8_t *)text.data, text.len};
    char *copy = fuzz_rest(&exact);
    text.data = copy;
    bool good = kvr_usage_event_read(&event, text);
    FUZZ_CHECK(good == (naive_json(text, true) == NAIVE_GOOD));
    if (good) {
        struct kvr_buffer log = {0};
        note_usage(&log, &event.usage);
        kvr_buffer_deinit(&log);
        FUZZ_CHECK((event.output == KVR_OUTPUT_NONE) == (event.key.raw.data == NULL));
        FUZZ_CHECK(!event.text.raw.data ||
                   (event.text.raw.data >= copy &&
                    event.text.raw.data + event.text.raw.len <= copy + text.len));
    }
    kvr_usage_read_tail(&tail, text);
    FUZZ_CHECK(tail.prompt_tokens >= -1 && tail.completion_tokens >= -1);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    unsigned choices = fuzz_byte(&input);
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    struct kvr_buffer payload = expand(&input);
    struct kvr_slice bytes = kvr_buffer_slice(&payload);
    read_event(bytes);
    struct kvr_buffer whole = understand(bytes, fuzz_whole, choices);
    struct kvr_buffer cut = understand(bytes, cuts, choices);
    bool kept = is_kept(&payload, choices & BODY);
    if (kept)
        fuzz_same(&whole, &cut);
    if (payload.len <= 2 * FILLER_BYTES) {
        struct kvr_buffer bytewise = understand(bytes, fuzz_bytewise, choices);
        if (kept)
            fuzz_same(&whole, &bytewise);
        kvr_buffer_deinit(&bytewise);
    }
    kvr_buffer_deinit(&whole);
    kvr_buffer_deinit(&cut);
    kvr_buffer_deinit(&payload);
    return 0;
}
