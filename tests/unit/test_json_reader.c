/* core/base/json_*: what is JSON and what is not, what escapes stand for, and that no byte outside
 * the text is ever read. Texts lie at the end of exact allocations, so that the sanitizers see. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buffer.h"
#include "json_number.h"
#include "json_reader.h"
#include "memory.h"
#include "rng.h"

/* Skips the whole text; returns the code. */
static int skip_all(struct kvr_slice text, size_t *offset)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, text);
    kvr_json_skip(&json, NULL);
    kvr_json_finish(&json);
    *offset = kvr_json_offset(&json);
    return json.code;
}

/* Reads any value by pulling: the other way through the same grammar. */
static void pull_value(struct kvr_json_reader *json)
{
    struct kvr_json_span span;
    struct kvr_slice raw;
    switch (kvr_json_peek(json)) {
    case KVR_JSON_OBJECT:
        if (kvr_json_enter_object(json))
            while (kvr_json_next_key(json, &span))
                pull_value(json);
        break;
    case KVR_JSON_ARRAY:
        if (kvr_json_enter_array(json))
            while (kvr_json_next_item(json))
                pull_value(json);
        break;
    case KVR_JSON_STRING:
        kvr_json_read_string(json, &span);
        break;
    case KVR_JSON_NUMBER:
        kvr_json_read_number(json, &raw);
        break;
    default:
        kvr_json_skip(json, &raw);
    }
}

static int pull_all(struct kvr_slice text, size_t *offset)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, text);
    pull_value(&json);
    kvr_json_finish(&json);
    *offset = kvr_json_offset(&json);
    return json.code;
}

/* Both ways agree, on the text in memory that ends where the text ends. */
static int read_code(struct kvr_slice text)
{
    char *exact = kvr_alloc(text.len);
    if (text.len)
        memcpy(exact, text.data, text.len);
    size_t skipped, pulled;
    int code = skip_all(kvr_slice_make(exact, text.len), &skipped);
    assert_int_equal(pull_all(kvr_slice_make(exact, text.len), &pulled), code);
    assert_int_equal(skipped, pulled);
    assert_true(skipped <= text.len);
    kvr_free(exact);
    return code;
}

static void test_accepts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.5",
        "1e2",
        "1E+2",
        "-1.25e-10",
        "\"\"",
        " \t\r\n{ \"a\" : [ 1 , 2 , { } , [ ] ] , \"b\" : \"c\" } \n",
        "\xef\xbb\xbf {\"a\":1}\r\n",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\uD83D\\ude00\\ud83d\"",
        "\"\x7f\xc3\xa9\xff\"",
        "{\"a\":1,\"a\":2}",
        "[[[[[[[[[[]]]]]]]]]]",
        "9223372036854775808123",
        "1e400",
        "{\"\":{\"\":[\"\"]}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (read_code(kvr_slice_of(texts[i])) != KVR_OK)
            fail_msg("refused: %s", texts[i]);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", KVR_E_TRUNCATED},
        {"   ", KVR_E_TRUNCATED},
        {"\xef\xbb\xbf", KVR_E_TRUNCATED},
        {"{", KVR_E_TRUNCATED},
        {"[1,", KVR_E_TRUNCATED},
        {"{\"a\"", KVR_E_TRUNCATED},
        {"{\"a\":", KVR_E_TRUNCATED},
        {"{\"a\":1", KVR_E_TRUNCATED},
        {"\"abc", KVR_E_TRUNCATED},
        {"\"abc\\", KVR_E_TRUNCATED},
        {"\"abc\\u12", KVR_E_TRUNCATED},
        {"tru", KVR_E_TRUNCATED},
        {"-", KVR_E_TRUNCATED},
        {"1.", KVR_E_TRUNCATED},
        {"1e", KVR_E_TRUNCATED},
        {"1e+", KVR_E_TRUNCATED},
        {"{]", KVR_E_INVALID},
        {"[}", KVR_E_INVALID},
        {"[1,]", KVR_E_INVALID},
        {"[,1]", KVR_E_INVALID},
        {"[1 2]", KVR_E_INVALID},
        {"{,}", KVR_E_INVALID},
        {"{\"a\":1,}", KVR_E_INVALID},
        {"{\"a\" 1}", KVR_E_INVALID},
        {"{a:1}", KVR_E_INVALID},
        {"{'a':1}", KVR_E_INVALID},
        {"{1:2}", KVR_E_INVALID},
        {"{\"a\":}", KVR_E_INVALID},
        {"01", KVR_E_INVALID},
        {"-a", KVR_E_INVALID},
        {"+1", KVR_E_INVALID},
        {".5", KVR_E_INVALID},
        {"[1.e5]", KVR_E_INVALID},
        {"[1e]", KVR_E_INVALID},
        {"NaN", KVR_E_INVALID},
        {"[nul]", KVR_E_INVALID},
        {"{} {}", KVR_E_INVALID},
        {"{}x", KVR_E_INVALID},
        {"\"a\nb\"", KVR_E_INVALID},
        {"\"a\x01\"", KVR_E_INVALID},
        {"\"\\x41\"", KVR_E_INVALID},
        {"\"\\u12g4\"", KVR_E_INVALID},
        {"\"\\U0041\"", KVR_E_INVALID},
        {"// c\n{}", KVR_E_INVALID},
        {"\xfe\xff{}", KVR_E_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (read_code(kvr_slice_of(cases[i].text)) != cases[i].code)
            fail_msg("\"%s\": %s", cases[i].text,
                     kvr_error_name(read_code(kvr_slice_of(cases[i].text))));
    assert_int_equal(read_code(kvr_slice_make("[1]\0", 4)), KVR_E_INVALID);
    assert_int_equal(read_code(kvr_slice_make("\"a\0b\"", 5)), KVR_E_INVALID);
}

static void test_every_cut_of_a_text_is_truncated(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\": \"m\\u00e9\\ud83d\\ude00\", \"n\": -1.5e+3, \"list\": [true, false, null, {}],"
        " \"a string longer than one step of sixteen bytes \\n\": [[1], {\"x\": \"y\"}]}";
    assert_int_equal(read_code(kvr_slice_of(text)), KVR_OK);
    for (size_t len = 0; len < sizeof text - 1; len++)
        assert_int_equal(read_code(kvr_slice_make(text, len)), KVR_E_TRUNCATED);
}

static void test_offset_points_at_the_fault(void **state)
{
    (void)state;
    size_t offset;
    assert_int_equal(skip_all(kvr_slice_of("{\"a\":1,\"b\":?}"), &offset), KVR_E_INVALID);
    assert_int_equal(offset, 11);
    assert_int_equal(skip_all(kvr_slice_of("[\"abc\x02\"]"), &offset), KVR_E_INVALID);
    assert_int_equal(offset, 5);
}

static void test_nesting_is_bounded(void **state)
{
    (void)state;
    char text[2 * KVR_JSON_DEPTH_MAX + 2];
    for (size_t i = 0; i < KVR_JSON_DEPTH_MAX; i++) {
        text[i] = '[';
        text[2 * KVR_JSON_DEPTH_MAX - 1 - i] = ']';
    }
    assert_int_equal(read_code(kvr_slice_make(text, 2 * KVR_JSON_DEPTH_MAX)), KVR_OK);
    memset(text, '[', sizeof text);
    assert_int_equal(read_code(kvr_slice_make(text, sizeof text)), KVR_E_LIMIT);
}

static void test_failure_sticks(void **state)
{
    (void)state;
    struct kvr_json_reader json;
    struct kvr_json_span span;
    kvr_json_reader_init(&json, kvr_slice_of("{\"a\" 1, \"b\": 2}"));
    assert_true(kvr_json_enter_object(&json));
    assert_false(kvr_json_next_key(&json, &span));
    assert_int_equal(json.code, KVR_E_INVALID);
    const char *reason = json.reason;
    assert_false(kvr_json_next_key(&json, &span));
    assert_false(kvr_json_skip(&json, NULL));
    assert_int_equal(kvr_json_peek(&json), KVR_JSON_NONE);
    kvr_json_fail(&json, KVR_E_LIMIT, "later");
    assert_false(kvr_json_finish(&json));
    assert_ptr_equal(json.reason, reason);
    assert_int_equal(json.code, KVR_E_INVALID);
}

static void test_duplicate_keys_show(void **state)
{
    (void)state;
    struct kvr_json_reader json;
    struct kvr_json_span key;
    struct kvr_slice number, last = {0};
    int count = 0;
    kvr_json_reader_init(&json, kvr_slice_of("{\"a\":1,\"b\":[{}],\"a\":22}"));
    assert_true(kvr_json_enter_object(&json));
    while (kvr_json_next_key(&json, &key)) {
        if (kvr_json_read_number(&json, &number)) {
            count++;
            last = number;
        } else {
            kvr_json_skip(&json, NULL);
        }
    }
    assert_true(kvr_json_finish(&json));
    assert_int_equal(count, 2);
    assert_true(kvr_slice_is(last, "22"));
}

/* --- strings ------------------------------------------------------------------------------- */

static void check_decoded(const char *raw, const char *text, size_t len)
{
    char out[256 + KVR_JSON_SLACK];
    struct kvr_slice slice = kvr_slice_of(raw);
    size_t got = kvr_json_string_unescape(slice, out);
    if (got != len || memcmp(out, text, len) != 0)
        fail_msg("%s decoded to %zu bytes", raw, got);
}

static void test_escapes(void **state)
{
    (void)state;
    check_decoded("", "", 0);
    check_decoded("plain", "plain", 5);
    check_decoded("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t", 8);
    check_decoded("\\u0041\\u00e9\\u20AC\\ud83d\\ude00", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                  10);
    check_decoded("\\u0000x", "\0x", 2);
    check_decoded("\\uffff\\ud7ff\\ue000", "\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80", 9);
    check_decoded("\\ud83d", "\xef\xbf\xbd", 3);                    /* half a pair at the end */
    check_decoded("\\ud83dx", "\xef\xbf\xbdx", 4);                  /* before text */
    check_decoded("\\ud83d\\n", "\xef\xbf\xbd\n", 4);               /* before another escape */
    check_decoded("\\ude00\\ud83d", "\xef\xbf\xbd\xef\xbf\xbd", 6); /* the wrong way round */
    check_decoded("\\ud83d\\u0041",
                  "\xef\xbf\xbd"
                  "A",
                  4);
    check_decoded("\\ud83d\\ud83d\\ude00", "\xef\xbf\xbd\xf0\x9f\x98\x80", 7);
    check_decoded("\\udbff\\udfff", "\xf4\x8f\xbf\xbf", 4);
}

/* One byte at a time, as simply as can be. Returns false for what is no valid inside. */
static bool naive_decode(const unsigned char *raw, size_t len, struct kvr_buffer *out)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    uint32_t high = 0; /* half a pair that waits */
    for (size_t i = 0; i < len; i++) {
        uint32_t c = raw[i];
        bool unit = false;
        if (c < 0x20 || c == '"')
            return false;
        if (c == '\\') {
            if (++i == len)
                return false;
            const char *letter = raw[i] ? strchr(letters, raw[i]) : NULL;
            if (letter) {
                c = (unsigned char)values[letter - letters];
            } else {
                char digits[5] = {0}, *end;
                if (raw[i] != 'u' || len - i < 5)
                    return false;
                memcpy(digits, raw + i + 1, 4);
                if (strspn(digits, "0123456789abcdefABCDEF") != 4)
                    return false;
                c = (uint32_t)strtoul(digits, &end, 16);
                i += 4;
                unit = true;
            }
        }
        if (high && unit && c >= 0xdc00 && c <= 0xdfff) {
            c = 0x10000 + ((high - 0xd800) << 10) + (c - 0xdc00);
            high = 0;
            unsigned char utf8[4] = {
                (unsigned char)(0xf0 | c >> 18), (unsigned char)(0x80 | (c >> 12 & 63)),
                (unsigned char)(0x80 | (c >> 6 & 63)), (unsigned char)(0x80 | (c & 63))};
            kvr_buffer_append(out, utf8, 4);
            continue;
        }
        if (high)
            kvr_buffer_append(out, "\xef\xbf\xbd", 3);
        high = 0;
        if (unit && c >= 0xd800 && c <= 0xdbff)
            high = c;
        else if (unit && c >= 0xdc00 && c <= 0xdfff)
            kvr_buffer_append(out, "\xef\xbf\xbd", 3);
        else if (unit && c >= 0x800)
            kvr_buffer_append(out,
                              (char[]){(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)),
                                       (char)(0x80 | (c & 63))},
                              3);
        else if (unit && c >= 0x80)
            kvr_buffer_append(out, (char[]){(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))}, 2);
        else
            kvr_buffer_append(out, (char[]){(char)c}, 1);
    }
    if (high)
        kvr_buffer_append(out, "\xef\xbf\xbd", 3);
    return true;
}

/* Random insides of strings, dense in what is special. */
static size_t random_inside(struct kvr_rng *rng, unsigned char *raw, size_t max)
{
    static const char *const bits[] = {
        "\\n", "\\\"", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u4e2d\\u6587",
        "\\",  "\"",   "\\x",     "\\u12",          "\x1f",    "\x01",    "\\ud83d\\udeg0"};
    size_t len = 0;
    uint64_t dense = kvr_rng_below(rng, 3);
    size_t want = kvr_rng_below(rng, max - 12);
    while (len < want) {
        uint64_t kind = kvr_rng_below(rng, 100);
        if (kind < 10 + dense * 25) {
            /* the last few break the string: rare, so that most strings are whole */
            size_t which = kvr_rng_below(rng, kvr_rng_below(rng, 40) ? 7 : 14);
            size_t n = strlen(bits[which]);
            memcpy(raw + len, bits[which], n);
            len += n;
        } else {
            raw[len++] =
                (unsigned char)(kind < 60 ? 'a' + kind % 26 : 0x80 + kvr_rng_below(rng, 0x80));
        }
    }
    return len;
}

static void test_strings_against_the_naive_decoder(void **state)
{
    (void)state;
    struct kvr_rng rng;
    struct kvr_buffer expected = {0};
    unsigned char raw[256];
    int whole = 0;
    kvr_rng_init(&rng, 7);
    for (int round = 0; round < 60000; round++) {
        size_t len = random_inside(&rng, raw, 200);
        size_t lead = kvr_rng_below(&rng, 17); /* every alignment */
        char *text = kvr_alloc(lead + len + 1);
        memcpy(text + lead, raw, len);
        text[lead + len] = '"';
        expected.len = 0;
        bool good = naive_decode(raw, len, &expected);
        const char *end = text + lead + len + 1;
        struct kvr_json_string_end scanned = kvr_json_string_scan(text + lead, end);
        char *out = kvr_alloc(len + KVR_JSON_SLACK + 1), *to = out;
        struct kvr_json_string_end decoded = kvr_json_string_decode(text + lead, end, &to);
        assert_ptr_equal(scanned.at, decoded.at);
        assert_int_equal(scanned.fault, decoded.fault);
        assert_int_equal(scanned.escaped, decoded.escaped);
        if (good) {
            whole++;
            assert_int_equal(scanned.fault, KVR_JSON_FAULT_NONE);
            assert_ptr_equal(scanned.at, end - 1);
            assert_int_equal(scanned.escaped, memchr(raw, '\\', len) != NULL);
            assert_int_equal(to - out, expected.len);
            if (expected.len)
                assert_memory_equal(out, expected.data, expected.len);
            /* without its closing quote the same string is cut short */
            assert_int_equal(kvr_json_string_scan(text + lead, end - 1).fault, KVR_JSON_FAULT_END);
        } else {
            assert_true(scanned.fault != KVR_JSON_FAULT_NONE || scanned.at < end - 1);
        }
        kvr_free(out);
        kvr_free(text);
    }
    assert_true(whole > 20000 && whole < 59000); /* both kinds were tried */
    kvr_buffer_deinit(&expected);
}

/* Long texts are taken in wide steps: one byte that is not plain, at every place of one. */
static void test_one_odd_byte_in_a_long_string(void **state)
{
    (void)state;
    static const char odd[] = {'"', '\\', '\0', '\n', 0x1f};
    enum { LEN = 300 };
    unsigned char text[LEN], out[LEN + KVR_JSON_SLACK];
    for (size_t i = 0; i < LEN; i++) { /* plain ones, none of which makes an escape */
        text[i] = (unsigned char)(i * 37);
        if (text[i] < ' ' || strchr("\"\\/bfnrtu", text[i]))
            text[i] = 0xff;
    }
    for (size_t kind = 0; kind < sizeof odd; kind++)
        for (size_t at = 0; at < LEN; at++) {
            unsigned char plain = text[at];
            text[at] = (unsigned char)odd[kind];
            const char *start = (const char *)text;
            char *to = (char *)out;
            struct kvr_json_string_end scanned = kvr_json_string_scan(start, start + LEN);
            struct kvr_json_string_end decoded = kvr_json_string_decode(start, start + LEN, &to);
            assert_ptr_equal(scanned.at, decoded.at);
            assert_ptr_equal(scanned.at, start + at);
            assert_ptr_equal(to, (char *)out + at);
            assert_memory_equal(out, text, at);
            text[at] = plain;
        }
}

static void test_counts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t count; /* -1: none, and nothing is taken */
    } cases[] = {
        {"[64]", 64},    {"[ 7 ]", 7},   {"[123456789012345]", 123456789012345},
        {"[0]", -1},     {"[-3]", -1},   {"[1234567890123456]", -1},
        {"[1.5]", -1},   {"[2e3]", -1},  {"[2E3]", -1},
        {"[\"4\"]", -1}, {"[null]", -1}, {"[12", -1},
        {"[5,6]", 5},    {"[08]", -1},   {"[{}]", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_json_reader json;
        int64_t count = -1;
        kvr_json_reader_init(&json, kvr_slice_of(cases[i].text));
        assert_true(kvr_json_enter_array(&json) && kvr_json_next_item(&json));
        kvr_json_peek(&json);
        const char *at = json.at;
        assert_true(kvr_json_read_count(&json, &count) == (cases[i].count >= 0));
        assert_int_equal(count, cases[i].count);
        assert_true(cases[i].count >= 0 || json.at == at);
        assert_int_equal(json.code, KVR_OK);
    }
}

/* --- canonical form ------------------------------------------------------------------------ */

static void test_compact(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {" { \"b\" : [ 1 , 2.50 , { } , [ ] ] , \"a\" : \"x\\u0041\\n\" } ",
         "{\"b\":[1,2.50,{},[]],\"a\":\"xA\n\"}"},
        {"[true,false , null]", "[true,false,null]"},
        {"\"\\u00e9\"", "\"\xc3\xa9\""},
        {"{\"\\u006b\":1e2}", "{\"k\":1e2}"},
        {"[[],[[]],[{},{}]]", "[[],[[]],[{},{}]]"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char out[256], *to = out;
        struct kvr_json_reader json;
        kvr_json_reader_init(&json, kvr_slice_of(pairs[i][0]));
        assert_true(kvr_json_compact(&json, &to));
        assert_true(kvr_json_finish(&json));
        *to = '\0';
        assert_string_equal(out, pairs[i][1]);
    }
}

/* Changes a good text at random places: both ways through must agree on every one, and compacting
 * what is good must be good and stay as it is. */
static void test_damaged_texts(void **state)
{
    (void)state;
    static const char seed_text[] = "{\"a\":[1,-2.5e3,{\"b\":null,\"c\":[true,false]}],\"d\":"
                                    "\"x\\n\\u00e9\",\"e\":{\"f\":[[]]}}";
    static const char alphabet[] = "{}[]\",:\\0123eE+-. \ntfnul\x01\xff";
    struct kvr_rng rng;
    int good = 0;
    kvr_rng_init(&rng, 11);
    for (int round = 0; round < 100000; round++) {
        char text[sizeof seed_text];
        memcpy(text, seed_text, sizeof text);
        size_t len = sizeof text - 1;
        for (uint64_t hits = 1 + kvr_rng_below(&rng, 3); hits; hits--)
            text[kvr_rng_below(&rng, len)] = alphabet[kvr_rng_below(&rng, sizeof alphabet - 1)];
        if (read_code(kvr_slice_make(text, len)) != KVR_OK)
            continue;
        good++;
        char once[sizeof text + KVR_JSON_SLACK], *to = once;
        struct kvr_json_reader json;
        kvr_json_reader_init(&json, kvr_slice_make(text, len));
        assert_true(kvr_json_compact(&json, &to));
        assert_true(to - once <= (ptrdiff_t)len);
    }
    assert_true(good > 1000);
}

/* --- numbers ------------------------------------------------------------------------------- */

static void check_number(const char *text)
{
    double value = kvr_json_number_value(kvr_slice_of(text)), wanted = strtod(text, NULL);
    if (!(fabs(value - wanted) <= fabs(wanted) * 1e-14) && !(isinf(value) && value == wanted))
        fail_msg("%s read as %.17g", text, value);
}

static void test_number_values(void **state)
{
    (void)state;
    static const char *const exact[] = {"0",     "-0",    "1",   "1e2",  "1E+2",
                                        "15e-1", "100.0", "0.5", "2048", "123456789012345",
                                        "-7",    "1.50e3"};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        assert_true(kvr_json_number_value(kvr_slice_of(exact[i])) == strtod(exact[i], NULL));
    static const char *const near[] = {"0.30000000000000004",
                                       "9223372036854775807",
                                       "18446744073709551616",
                                       "1e400",
                                       "-1e400",
                                       "1e-400",
                                       "2.2250738585072014e-308",
                                       "1.7976931348623e308",
                                       "0.000000000000000000001",
                                       "123456789012345678901234567890",
                                       "1e-310"};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        check_number(near[i]);
    struct kvr_rng rng;
    kvr_rng_init(&rng, 3);
    for (int round = 0; round < 20000; round++) {
        char text[64];
        snprintf(text, sizeof text, "%.*e", (int)kvr_rng_below(&rng, 18),
                 (kvr_rng_double(&rng) - 0.5) * pow(10, (double)kvr_rng_below(&rng, 600) - 300));
        check_number(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_every_cut_of_a_text_is_truncated),
        cmocka_unit_test(test_offset_points_at_the_fault),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_duplicate_keys_show),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_strings_against_the_naive_decoder),
        cmocka_unit_test(test_one_odd_byte_in_a_long_string),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_compact),
        cmocka_unit_test(test_damaged_texts),
        cmocka_unit_test(test_number_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
