#include "json_reader.h"

#include <string.h>

#include "json_number.h"

#define COUNT_DIGITS_MAX 15

void kvr_json_reader_init(struct kvr_json_reader *json, struct kvr_slice text)
{
    *json = (struct kvr_json_reader){.begin = text.data, .at = text.data};
    json->end = text.len ? text.data + text.len : text.data;
    if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
        json->at += 3;
}

void kvr_json_fail(struct kvr_json_reader *json, int code, const char *reason)
{
    if (json->code == KVR_OK) {
        json->code = code;
        json->reason = reason;
    }
}

size_t kvr_json_offset(const struct kvr_json_reader *json)
{
    return json->begin ? (size_t)(json->at - json->begin) : 0;
}

/* The same behind blanks, or at the end of the text. */
static __attribute__((noinline)) int next_byte_further(struct kvr_json_reader *json)
{
    const char *at = json->at;
    while (at < json->end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    json->at = at;
    if (at < json->end)
        return (unsigned char)*at;
    kvr_json_fail(json, KVR_E_TRUNCATED, "the text ends too early");
    return -1;
}

/* The next byte that is no blank, or -1: at the end of the text, or after a failure. */
static inline int next_byte(struct kvr_json_reader *json)
{
    if (json->code != KVR_OK)
        return -1;
    if (json->at < json->end && (unsigned char)*json->at > ' ')
        return (unsigned char)*json->at;
    return next_byte_further(json);
}

/* By the byte it starts with. */
static const uint8_t kinds[256] = {
    ['{'] = KVR_JSON_OBJECT, ['['] = KVR_JSON_ARRAY,          ['"'] = KVR_JSON_STRING,
    ['t'] = KVR_JSON_TRUE,   ['f'] = KVR_JSON_FALSE,          ['n'] = KVR_JSON_NULL,
    ['-'] = KVR_JSON_NUMBER, ['0' ... '9'] = KVR_JSON_NUMBER,
};

static inline enum kvr_json_kind peek(struct kvr_json_reader *json)
{
    int byte = next_byte(json);
    enum kvr_json_kind kind = byte < 0 ? KVR_JSON_NONE : kinds[byte];
    if (kind == KVR_JSON_NONE)
        kvr_json_fail(json, KVR_E_INVALID, "a value was expected");
    return kind;
}

enum kvr_json_kind kvr_json_peek(struct kvr_json_reader *json)
{
    return peek(json);
}

static bool enter(struct kvr_json_reader *json)
{
    if (json->depth == KVR_JSON_DEPTH_MAX) {
        kvr_json_fail(json, KVR_E_LIMIT, "nested too deeply");
        return false;
    }
    json->depth++;
    json->at++;
    json->fresh = true;
    return true;
}

bool kvr_json_enter_object(struct kvr_json_reader *json)
{
    return peek(json) == KVR_JSON_OBJECT && enter(json);
}

bool kvr_json_enter_array(struct kvr_json_reader *json)
{
    return peek(json) == KVR_JSON_ARRAY && enter(json);
}

/* Takes the comma that is due, or leaves the container at its closing bracket. True when a member
 * or element follows. */
static inline bool next_member(struct kvr_json_reader *json, int closing)
{
    int byte = next_byte(json);
    if (byte < 0)
        return false;
    if (byte == closing) {
        KVR_CHECK(json->depth > 0);
        json->depth--;
        json->at++;
        json->fresh = false;
        return false;
    }
    if (json->fresh) {
        json->fresh = false;
        return true;
    }
    if (byte != ',') {
        kvr_json_fail(json, KVR_E_INVALID, "a comma or a closing bracket was expected");
        return false;
    }
    json->at++;
    return true;
}

/* A string whose opening quote is at json->at, decoded to *out unless out is NULL. */
static inline bool take_string(struct kvr_json_reader *json, struct kvr_json_span *span, char **out)
{
    const char *inside = json->at + 1;
    const char *quote = out ? NULL : kvr_json_string_short_end(inside, json->end);
    if (quote) {
        if (span)
            *span = (struct kvr_json_span){kvr_slice_make(inside, (size_t)(quote - inside)), false};
        json->at = quote + 1;
        return true;
    }
    struct kvr_json_string_end string = out ? kvr_json_string_decode(inside, json->end, out)
                                            : kvr_json_string_scan(inside, json->end);
    json->at = string.at;
    if (string.fault != KVR_JSON_FAULT_NONE) {
        if (string.fault == KVR_JSON_FAULT_END)
            kvr_json_fail(json, KVR_E_TRUNCATED, "the text ends inside a string");
        else if (string.fault == KVR_JSON_FAULT_CONTROL)
            kvr_json_fail(json, KVR_E_INVALID, "a control character inside a string");
        else
            kvr_json_fail(json, KVR_E_INVALID, "a bad escape inside a string");
        return false;
    }
    if (span) {
        span->raw = kvr_slice_make(inside, (size_t)(string.at - inside));
        span->escaped = string.escaped;
    }
    json->at++;
    return true;
}

/* The key of a member and the colon behind it. */
static inline bool take_key(struct kvr_json_reader *json, struct kvr_json_span *key, char **out)
{
    int byte = next_byte(json);
    if (byte < 0)
        return false;
    if (byte != '"') {
        kvr_json_fail(json, KVR_E_INVALID, "a key was expected");
        return false;
    }
    if (!take_string(json, key, out))
        return false;
    byte = next_byte(json);
    if (byte != ':') {
        kvr_json_fail(json, KVR_E_INVALID, "a colon was expected");
        return false;
    }
    json->at++;
    return true;
}

bool kvr_json_next_key(struct kvr_json_reader *json, struct kvr_json_span *key)
{
    return next_member(json, '}') && take_key(json, key, NULL);
}

bool kvr_json_next_item(struct kvr_json_reader *json)
{
    return next_member(json, ']');
}

bool kvr_json_read_string(struct kvr_json_reader *json, struct kvr_json_span *span)
{
    return peek(json) == KVR_JSON_STRING && take_string(json, span, NULL);
}

bool kvr_json_read_decoded(struct kvr_json_reader *json, char **out)
{
    return peek(json) == KVR_JSON_STRING && take_string(json, NULL, out);
}

/* A number that starts at json->at. */
static bool take_number(struct kvr_json_reader *json)
{
    bool good = kvr_json_number_scan(&json->at, json->end);
    if (!good && json->at == json->end)
        kvr_json_fail(json, KVR_E_TRUNCATED, "the text ends inside a number");
    else if (!good)
        kvr_json_fail(json, KVR_E_INVALID, "a malformed number");
    return good;
}

bool kvr_json_read_number(struct kvr_json_reader *json, struct kvr_slice *raw)
{
    if (peek(json) != KVR_JSON_NUMBER)
        return false;
    const char *start = json->at;
    if (!take_number(json))
        return false;
    *raw = kvr_slice_make(start, (size_t)(json->at - start));
    return true;
}

bool kvr_json_read_count(struct kvr_json_reader *json, int64_t *count)
{
    if (peek(json) != KVR_JSON_NUMBER)
        return false;
    const char *at = json->at, *end = json->end;
    int64_t value = 0;
    if (*at == '0') /* nothing may follow it */
        return false;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (at - json->at == COUNT_DIGITS_MAX)
            return false;
        value = value * 10 + (*at - '0');
    }
    if (at == json->at || at == end || *at == '.' || *at == 'e' || *at == 'E')
        return false;
    json->at = at;
    *count = value;
    return true;
}

static bool take_literal(struct kvr_json_reader *json, const char *word, size_t len)
{
    size_t left = (size_t)(json->end - json->at);
    size_t n = left < len ? left : len;
    if (memcmp(json->at, word, n) != 0)
        kvr_json_fail(json, KVR_E_INVALID, "an unknown word");
    else if (n < len)
        kvr_json_fail(json, KVR_E_TRUNCATED, "the text ends inside a word");
    else
        json->at += len;
    return json->code == KVR_OK;
}

/* A string, number or literal of that kind at json->at, copied to *out unless out is NULL. */
static bool take_scalar(struct kvr_json_reader *json, enum kvr_json_kind kind, char **out)
{
    const char *start = json->at;
    bool good = false;
    switch (kind) {
    case KVR_JSON_STRING:
        if (!out)
            return take_string(json, NULL, NULL);
        *(*out)++ = '"';
        if (!take_string(json, NULL, out))
            return false;
        *(*out)++ = '"';
        return true;
    case KVR_JSON_NUMBER:
        good = take_number(json);
        break;
    case KVR_JSON_TRUE:
        good = take_literal(json, "true", 4);
        break;
    case KVR_JSON_FALSE:
        good = take_literal(json, "false", 5);
        break;
    case KVR_JSON_NULL:
        good = take_literal(json, "null", 4);
        break;
    default:
        break;
    }
    if (good && out) {
        memcpy(*out, start, (size_t)(json->at - start));
        *out += json->at - start;
    }
    return good;
}

/* One bit a level: whether it is an object. */
struct levels {
    uint64_t objects[KVR_JSON_DEPTH_MAX / 64];
};

static inline void put(char **out, char c)
{
    if (out)
        *(*out)++ = c;
}

/* The key of a member of the object being walked, with its quotes and colon. */
static bool walk_key(struct kvr_json_reader *json, char **out)
{
    put(out, '"');
    if (!take_key(json, NULL, out))
        return false;
    put(out, '"');
    put(out, ':');
    return true;
}

/* After a value: leaves what closes here and takes the comma, until a value is due again (true) or
 * the walk is back at the depth it started from (false). */
static bool walk_on(struct kvr_json_reader *json, const struct levels *levels, uint32_t floor,
                    char **out)
{
    while (json->depth > floor) {
        uint32_t level = json->depth - 1;
        bool object = levels->objects[level / 64] >> (level % 64) & 1;
        bool first = json->fresh;
        if (next_member(json, object ? '}' : ']')) {
            if (!first)
                put(out, ',');
            return !object || walk_key(json, out);
        }
        if (json->code != KVR_OK)
            return false;
        put(out, object ? '}' : ']');
    }
    return false;
}

/* Any value, without recursion; written to *out in canonical form unless out is NULL. */
static bool walk(struct kvr_json_reader *json, char **out)
{
    struct levels levels = {{0}};
    uint32_t floor = json->depth;
    do {
        enum kvr_json_kind kind = peek(json);
        if (kind == KVR_JSON_OBJECT || kind == KVR_JSON_ARRAY) {
            uint32_t level = json->depth;
            put(out, kind == KVR_JSON_OBJECT ? '{' : '[');
            if (!enter(json))
                return false;
            uint64_t bit = (uint64_t)1 << (level % 64);
            if (kind == KVR_JSON_OBJECT)
                levels.objects[level / 64] |= bit;
            else
                levels.objects[level / 64] &= ~bit;
        } else if (!take_scalar(json, kind, out)) {
            return false;
        }
    } while (walk_on(json, &levels, floor, out));
    return json->code == KVR_OK;
}

bool kvr_json_skip(struct kvr_json_reader *json, struct kvr_slice *raw)
{
    if (peek(json) == KVR_JSON_NONE)
        return false;
    const char *start = json->at;
    if (!walk(json, NULL))
        return false;
    if (raw)
        *raw = kvr_slice_make(start, (size_t)(json->at - start));
    return true;
}

bool kvr_json_compact(struct kvr_json_reader *json, char **out)
{
    return walk(json, out);
}

bool kvr_json_finish(struct kvr_json_reader *json)
{
    KVR_CHECK(json->code != KVR_OK || json->depth == 0);
    const char *at = json->at;
    while (at < json->end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    if (json->code == KVR_OK) {
        json->at = at;
        if (at < json->end)
            kvr_json_fail(json, KVR_E_INVALID, "more text after the value");
    }
    return json->code == KVR_OK;
}
