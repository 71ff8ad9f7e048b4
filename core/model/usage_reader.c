#include "usage_reader.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

_Static_assert(sizeof(struct kvr_usage_reader) <= 256, "one of these is held by every stream");

void kvr_usage_reader_init(struct kvr_usage_reader *reader, enum kvr_usage_format format)
{
    *reader = (struct kvr_usage_reader){.usage = {-1, -1, -1}, .format = (uint8_t)format};
}

void kvr_usage_reader_deinit(struct kvr_usage_reader *reader)
{
    kvr_buffer_deinit(&reader->kept);
}

static void note_content(struct kvr_usage_reader *reader, uint64_t now_ns)
{
    if (reader->content_events++ == 0) {
        reader->first_content_ns = now_ns;
    } else {
        uint64_t gap = now_ns > reader->last_content_ns ? now_ns - reader->last_content_ns : 0;
        kvr_median_add(&reader->gaps_ns, (float)gap);
        if (gap > reader->max_gap_ns)
            reader->max_gap_ns = gap;
    }
    reader->last_content_ns = now_ns;
}

/* Appends a piece of the reply, decoded; its raw text ends at a quote, or at `end`. */
static void note_reply(struct kvr_usage_reader *reader, const char *text, const char *end)
{
    struct kvr_buffer *reply = reader->reply;
    size_t most = (size_t)(end - text);
    if (!reply || reader->reply_spoiled)
        return;
    char *start = kvr_buffer_reserve(reply, most + KVR_JSON_SLACK), *out = start;
    kvr_json_string_decode(text, end, &out);
    reply->len += (size_t)(out - start);
    if (reply->len > reader->reply_max)
        reader->reply_spoiled = true;
}

/* Whether the key at this quote is `usage`, with an object behind it: often it is null. Returns the
 * object, or NULL. */
static const char *usage_object(const char *at, const char *end)
{
    static const char mark[] = "\"usage\":";
    const size_t len = sizeof mark - 1;
    if ((size_t)(end - at) <= len || memcmp(at, mark, len) != 0)
        return NULL;
    at += len;
    if (*at == ' ' && end - at > 1)
        at++;
    return *at == '{' ? at : NULL;
}

/* What a glance over a JSON text finds. */
struct glance {
    const char *usage; /* the last usage object; NULL none */
    bool odd; /* something that only a real reading understands: an error, an abort, timings */
};

static bool starts_with(const char *at, const char *end, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(end - at) >= len && memcmp(at, text, len) == 0;
}

static void glance_at(struct glance *glance, const char *start, const char *at, const char *end)
{
    if (end - at < 2 || (at > start && at[-1] == '\\'))
        return; /* too short for any, or inside a string */
    const char *usage = NULL;
    switch (at[1]) {
    case 'u':
        usage = usage_object(at, end);
        glance->usage = usage ? usage : glance->usage;
        break;
    case 'e':
        glance->odd |= starts_with(at, end, "\"error\"");
        break;
    case 'a':
        glance->odd |= starts_with(at, end, "\"abort\"");
        break;
    case 't':
        glance->odd |= starts_with(at, end, "\"timings\"");
        break;
    default:
        break;
    }
}

/* Looks at quotes that begin with one of the letters of interest, and at nothing else. */
static struct glance glance_over(const char *start, const char *end)
{
    struct glance glance = {NULL, false};
    const char *at = start;
#ifdef __SSE2__
    const __m128i quotes = _mm_set1_epi8('"'), u = _mm_set1_epi8('u'), e = _mm_set1_epi8('e');
    const __m128i a = _mm_set1_epi8('a'), t = _mm_set1_epi8('t');
    for (; end - at >= 17; at += 16) {
        __m128i first = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(at + 1));
        __m128i letters =
            _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(second, u), _mm_cmpeq_epi8(second, e)),
                         _mm_or_si128(_mm_cmpeq_epi8(second, a), _mm_cmpeq_epi8(second, t)));
        __m128i hits = _mm_and_si128(_mm_cmpeq_epi8(first, quotes), letters);
        for (unsigned mask = (unsigned)_mm_movemask_epi8(hits); mask; mask &= mask - 1)
            glance_at(&glance, start, at + __builtin_ctz(mask), end);
    }
#endif
    for (; at < end && (at = memchr(at, '"', (size_t)(end - at))); at++)
        glance_at(&glance, start, at, end);
    return glance;
}

static bool mentions_usage(const char *at, const char *end)
{
    return glance_over(at, end).usage != NULL;
}

/* Whether an event has content where the last one had it: the same key there, and a string behind
 * it that does not end at once. */
static inline bool has_learnt_content(const struct kvr_usage_reader *reader, struct kvr_slice json)
{
    size_t text_at = (size_t)reader->key_at + reader->key_len;
    return reader->key_len && text_at < json.len && json.data[text_at] != '"' &&
           memcmp(json.data + reader->key_at, reader->key, reader->key_len) == 0;
}

/* Remembers where content stood in this event. */
static void learn(struct kvr_usage_reader *reader, struct kvr_slice json,
                  const struct kvr_usage_event *event)
{
    bool counts = event->usage.prompt_tokens >= 0 || event->usage.cached_tokens >= 0 ||
                  event->usage.completion_tokens >= 0;
    reader->key_len = 0;
    if (!event->text.raw.data || counts) /* where each event has counts, each must be read */
        return;
    const char *key = event->key.raw.data - 1; /* its quote */
    size_t len = (size_t)(event->text.raw.data - key);
    if (len > KVR_USAGE_KEY_MAX)
        return;
    memcpy(reader->key, key, len);
    reader->key_at = (uint32_t)(key - json.data);
    reader->key_len = (uint8_t)len;
    reader->key_output = (uint8_t)event->output;
}

/* The slow way: reads the event as JSON. `counted`: its content has been noted already. */
static void take_event(struct kvr_usage_reader *reader, struct kvr_slice json, bool counted,
                       uint64_t now_ns)
{
    struct kvr_usage_event event;
    if (!kvr_usage_event_read(&event, json)) {
        reader->malformed++;
        return;
    }
    kvr_usage_merge(&reader->usage, &event.usage);
    reader->done_seen |= event.done;
    reader->error_seen |= event.error;
    reader->aborted |= event.aborted;
    reader->reasoned |= event.reasoned;
    reader->reply_spoiled |= event.called || event.replies > 1;
    if (event.output == KVR_OUTPUT_NONE || counted)
        return;
    if (reader->format == KVR_USAGE_STREAM) {
        note_content(reader, now_ns);
        learn(reader, json, &event);
    }
    if (event.output == KVR_OUTPUT_REPLY && event.text.raw.data)
        note_reply(reader, event.text.raw.data, event.text.raw.data + event.text.raw.len);
    else if (event.replies)
        reader->reply_spoiled = true; /* behind reasoning in one event: not taken apart */
}

/* One line of a stream, without its line end. */
static inline void take_line(struct kvr_usage_reader *reader, const char *line, size_t len,
                             uint64_t now_ns)
{
    struct kvr_slice json = {line, len};
    if (len && line[len - 1] == '\r')
        json.len--;
    if (json.len > 5 && memcmp(line, "data:", 5) == 0) {
        size_t skip = 5;
        while (skip < json.len && line[skip] == ' ')
            skip++;
        json = kvr_slice_make(line + skip, json.len - skip);
    }
    if (json.len == 0 || (json.data[0] != '{' && json.data[0] != '['))
        return; /* a comment, another field, or the blank line that ends an event */
    if (json.data[0] == '[') {
        reader->done_seen |= kvr_slice_is(json, "[DONE]");
        return;
    }
    bool counted = has_learnt_content(reader, json);
    if (counted) {
        const char *text = json.data + reader->key_at + reader->key_len;
        note_content(reader, now_ns);
        if (reader->reply && reader->key_output == KVR_OUTPUT_REPLY)
            note_reply(reader, text, json.data + json.len);
        if (!mentions_usage(text, json.data + json.len))
            return;
    }
    take_event(reader, json, counted, now_ns);
}

/* A line whose start is gone: its counts stand at its end. */
static void take_cut_line(struct kvr_usage_reader *reader, uint64_t now_ns)
{
    if (reader->cut_content)
        note_content(reader, now_ns);
    reader->reply_spoiled = true;
    kvr_usage_read_tail(&reader->usage, kvr_buffer_slice(&reader->kept));
}

/* Keeps bytes until their line is complete; of too many, the end. */
static void keep(struct kvr_usage_reader *reader, const char *data, size_t len)
{
    struct kvr_buffer *kept = &reader->kept;
    if (kept->len + len > KVR_USAGE_KEPT_MAX) {
        if (!reader->cut && reader->format == KVR_USAGE_STREAM && kept->len > 6) {
            size_t skip = kept->data[0] != 'd' ? 0 : kept->data[5] == ' ' ? 6 : 5;
            struct kvr_slice json = {kept->data + skip, kept->len - skip};
            reader->cut_content = has_learnt_content(reader, json);
        }
        reader->cut = true;
        if (len >= KVR_USAGE_TAIL) {
            data += len - KVR_USAGE_TAIL;
            len = KVR_USAGE_TAIL;
            kept->len = 0;
        } else if (kept->len + len > KVR_USAGE_TAIL) {
            kvr_buffer_consume(kept, kept->len + len - KVR_USAGE_TAIL);
        }
    }
    kvr_buffer_append(kept, data, len);
}

/* Forgets the kept line, and its memory: most streams are cut at line ends nearly always. */
static void release(struct kvr_usage_reader *reader)
{
    kvr_buffer_deinit(&reader->kept);
    reader->cut = reader->cut_content = false;
}

void kvr_usage_reader_feed(struct kvr_usage_reader *reader, const char *data, size_t len,
                           uint64_t now_ns)
{
    const char *at = data, *end = data + len;
    if (len == 0)
        return;
    if (reader->format == KVR_USAGE_BODY) {
        keep(reader, data, len);
        return;
    }
    if (reader->kept.len) {
        const char *line_end = memchr(at, '\n', len);
        keep(reader, at, line_end ? (size_t)(line_end - at) : len);
        if (!line_end)
            return;
        at = line_end + 1;
        if (reader->cut)
            take_cut_line(reader, now_ns);
        else
            take_line(reader, reader->kept.data, reader->kept.len, now_ns);
        release(reader);
    }
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) {
            keep(reader, at, (size_t)(end - at));
            return;
        }
        if (line_end > at)
            take_line(reader, at, (size_t)(line_end - at), now_ns);
        at = line_end + 1;
    }
}

/* A whole answer that is as plain as most are: one with counts and nothing odd. */
static bool take_plain_body(struct kvr_usage_reader *reader, struct kvr_slice body)
{
    const char *end = body.data + body.len;
    struct glance glance = glance_over(body.data, end);
    if (reader->reply || glance.odd || !glance.usage || body.data[0] != '{')
        return false;
    struct kvr_json_reader json;
    struct kvr_token_usage usage = {-1, -1, -1};
    bool aborted = false;
    kvr_json_reader_init(&json, kvr_slice_make(glance.usage, (size_t)(end - glance.usage)));
    kvr_usage_take(&json, &usage, &aborted);
    if (json.code != KVR_OK || usage.completion_tokens <= 0)
        return false; /* without output it may be an embedding, or something else again */
    kvr_usage_merge(&reader->usage, &usage);
    return true;
}

/* A whole answer that is one JSON text. */
static void take_body(struct kvr_usage_reader *reader, struct kvr_slice body, uint64_t now_ns)
{
    if (body.data[0] == '[')
        kvr_usage_read_tail(&reader->usage, body); /* a batch: the last one's counts */
    else if (!take_plain_body(reader, body))
        take_event(reader, body, false, now_ns);
}

void kvr_usage_reader_feed_last(struct kvr_usage_reader *reader, const char *data, size_t len,
                                uint64_t now_ns)
{
    bool whole = len && reader->format == KVR_USAGE_BODY && reader->kept.len == 0;
    if (whole && len <= KVR_USAGE_KEPT_MAX)
        take_body(reader, kvr_slice_make(data, len), now_ns);
    else
        kvr_usage_reader_feed(reader, data, len, now_ns);
}

void kvr_usage_reader_finish(struct kvr_usage_reader *reader, uint64_t now_ns)
{
    struct kvr_slice kept = kvr_buffer_slice(&reader->kept);
    uint32_t malformed = reader->malformed;
    if (kept.len && reader->cut)
        take_cut_line(reader, now_ns);
    else if (kept.len && reader->format == KVR_USAGE_BODY)
        take_body(reader, kept, now_ns);
    else if (kept.len)
        take_line(reader, kept.data, kept.len, now_ns);
    if (reader->format == KVR_USAGE_STREAM)
        reader->malformed = malformed; /* a last line cut short is the connection's fault */
    release(reader);
}

struct kvr_usage_gaps kvr_usage_reader_gaps(const struct kvr_usage_reader *reader)
{
    struct kvr_usage_gaps gaps = {0};
    if (reader->content_events < 2)
        return gaps;
    gaps.mean_ns =
        (reader->last_content_ns - reader->first_content_ns) / (reader->content_events - 1);
    gaps.median_ns = (uint64_t)kvr_median_value(&reader->gaps_ns);
    gaps.max_ns = reader->max_gap_ns;
    return gaps;
}
