/* The JSON reader, its strings and its numbers. Input: one JSON text.
 *
 * Skipping, walking member by member and writing canonically must agree with each other and with
 * the slow reader of naive_json.h; strings must decode as a byte-by-byte decoder says; numbers must
 * be what strtod says, within a few units in the last place. */
#include "fuzz.h"

#include <math.h>

#include "json_number.h"
#include "json_reader.h"
#include "naive_json.h"

/* ---- strings ---- */

static void put_utf8(struct kvr_buffer *out, unsigned c)
{
    unsigned char bytes[4];
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = len; i-- > 1; c >>= 6)
        bytes[i] = (unsigned char)(0x80 | (c & 0x3f));
    bytes[0] = (unsigned char)(leads[len] | c);
    kvr_buffer_append(out, bytes, len);
}

/* The unit of \uXXXX at `i` of raw, or -1. */
static long unit_at(struct kvr_slice raw, size_t i)
{
    char hex[5] = "";
    if (i + 6 > raw.len || raw.data[i] != '\\' || raw.data[i + 1] != 'u')
        return -1;
    memcpy(hex, raw.data + i + 2, 4);
    return strtol(hex, NULL, 16);
}

static void naive_decode(struct kvr_slice raw, struct kvr_buffer *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    for (size_t i = 0; i < raw.len;) {
        if (raw.data[i] != '\\') {
            kvr_buffer_append(out, &raw.data[i++], 1);
            continue;
        }
        long unit = unit_at(raw, i);
        if (unit < 0) {
            const char *name = strchr(names, raw.data[i + 1]);
            FUZZ_CHECK(name && *name);
            kvr_buffer_append(out, &values[name - names], 1);
            i += 2;
            continue;
        }
        i += 6;
        if (unit >= 0xd800 && unit < 0xdc00) {
            long low = unit_at(raw, i);
            if (low >= 0xdc00 && low < 0xe000) {
                put_utf8(out, 0x10000 + (((unsigned)unit & 0x3ff) << 10 | ((unsigned)low & 0x3ff)));
                i += 6;
                continue;
            }
        }
        put_utf8(out, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : (unsigned)unit);
    }
}

static void check_string(const struct kvr_json_span *span)
{
    struct kvr_buffer expected = {0};
    naive_decode(span->raw, &expected);
    char *out = malloc(span->raw.len + KVR_JSON_SLACK);
    size_t len = kvr_json_string_unescape(span->raw, out);
    FUZZ_CHECK(kvr_slice_equal(kvr_slice_make(out, len), kvr_buffer_slice(&expected)));
    bool backslash = span->raw.len && memchr(span->raw.data, '\\', span->raw.len);
    FUZZ_CHECK(span->escaped == backslash);
    free(out);
    kvr_buffer_deinit(&expected);
}

/* ---- numbers ---- */

static void check_number(struct kvr_slice raw)
{
    char text[64];
    double value = kvr_json_number_value(raw);
    FUZZ_CHECK(!isnan(value));
    if (raw.len >= sizeof text)
        return;
    memcpy(text, raw.data, raw.len);
    text[raw.len] = '\0';
    double expected = strtod(text, NULL);
    if (isinf(expected) || fabs(expected) > 1e307) {
        FUZZ_CHECK(fabs(value) > 1e306);
    } else if (fabs(expected) < 1e-290) {
        FUZZ_CHECK(fabs(value) < 1e-289); /* too small to be told apart */
    } else {
        FUZZ_CHECK(fabs(value - expected) <= fabs(expected) * 1e-13);
    }
}

/* ---- the reader ---- */

static void walk(struct kvr_json_reader *json);

static void walk_object(struct kvr_json_reader *json)
{
    struct kvr_json_span key;
    while (kvr_json_next_key(json, &key)) {
        check_string(&key);
        walk(json);
    }
}

static void walk(struct kvr_json_reader *json)
{
    struct kvr_json_span text;
    struct kvr_slice raw;
    switch (kvr_json_peek(json)) {
    case KVR_JSON_OBJECT:
        FUZZ_CHECK(!kvr_json_enter_array(json) && !kvr_json_read_string(json, &text));
        if (kvr_json_enter_object(json))
            walk_object(json);
        break;
    case KVR_JSON_ARRAY:
        FUZZ_CHECK(!kvr_json_enter_object(json) && !kvr_json_read_number(json, &raw));
        if (kvr_json_enter_array(json))
            while (kvr_json_next_item(json))
                walk(json);
        break;
    case KVR_JSON_STRING:
        if (kvr_json_read_string(json, &text))
            check_string(&text);
        break;
    case KVR_JSON_NUMBER:
        if (kvr_json_read_number(json, &raw))
            check_number(raw);
        break;
    default:
        kvr_json_skip(json, &raw);
    }
}

/* Verdict, reason and place of a finished reader. */
static void note(struct kvr_buffer *log, struct kvr_json_reader *json)
{
    bool good = kvr_json_finish(json);
    FUZZ_CHECK(good == (json->code == 0) && good == !json->reason);
    kvr_buffer_printf(log, "%d %s at %zu\n", json->code, good ? "" : json->reason,
                      kvr_json_offset(json));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *bytes = fuzz_rest(&input);
    struct kvr_slice text = {bytes, size}, raw = {NULL, 0};
    struct kvr_json_reader json;
    struct kvr_buffer skipped = {0}, walked = {0}, written = {0};

    kvr_json_reader_init(&json, text);
    bool good = kvr_json_skip(&json, &raw);
    FUZZ_CHECK(!good || (raw.data >= bytes && raw.data + raw.len <= bytes + size));
    note(&skipped, &json);
    good = json.code == 0;
    enum naive_verdict verdict = naive_json(text, false);
    FUZZ_CHECK(good == (verdict == NAIVE_GOOD));
    FUZZ_CHECK((json.code == KVR_E_LIMIT) == (verdict == NAIVE_DEEP));

    kvr_json_reader_init(&json, text);
    walk(&json);
    note(&walked, &json);
    fuzz_same(&skipped, &walked);

    kvr_json_reader_init(&json, text);
    char *canonical = malloc(size + KVR_JSON_SLACK), *out = canonical;
    kvr_json_compact(&json, &out);
    FUZZ_CHECK((size_t)(out - canonical) <= size || json.code);
    note(&written, &json);
    fuzz_same(&skipped, &written);

    free(canonical);
    free(bytes);
    kvr_buffer_deinit(&skipped);
    kvr_buffer_deinit(&walked);
    kvr_buffer_deinit(&written);
    return 0;
}
