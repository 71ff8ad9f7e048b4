#include "json_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"
static void put_uint(struct kvr_buffer *out, uint64_t value)
{
    char *at = kvr_buffer_reserve(out, KVR_DIGITS_MAX);
    out->len = (size_t)(kvr_put_uint(at, value) - out->data);
}

/* Length of the valid UTF-8 sequence at `at`, or 0. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    if (at[0] < 0x80)
        return 1;
    size_t len = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc2 ? 2 : 0;
    if (len == 0 || len > left || at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return len;
}

static void put_string(struct kvr_buffer *out, struct kvr_slice value)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *data = (const unsigned char *)value.data;
    kvr_buffer_append(out, "\"", 1);
    size_t start = 0;
    for (size_t i = 0; i < value.len;) {
        unsigned char c = data[i];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            i++;
            continue;
        }
        size_t valid = c >= 0x80 ? utf8_length(data + i, value.len - i) : 0;
        if (valid) {
            i += valid;
            continue;
        }
        kvr_buffer_append(out, data + start, i - start);
        if (c == '"' || c == '\\')
            kvr_buffer_append(out, (char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            kvr_buffer_append(out, "\\n", 2);
        else if (c < 0x20)
            kvr_buffer_append(out, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        else
            kvr_buffer_append(out, "\xef\xbf\xbd", 3);
        start = ++i;
    }
    kvr_buffer_append(out, data + start, value.len - start);
    kvr_buffer_append(out, "\"", 1);
}

static void begin_value(struct kvr_json_writer *json, const char *key)
{
    if (json->comma)
        kvr_buffer_append(json->out, ",", 1);
    json->comma = true;
    if (key) {
        put_string(json->out, kvr_slice_of(key));
        kvr_buffer_append(json->out, ":", 1);
    }
}

void kvr_json_object_begin(struct kvr_json_writer *json, const char *key)
{
    begin_value(json, key);
    kvr_buffer_append(json->out, "{", 1);
    json->comma = false;
}

void kvr_json_object_end(struct kvr_json_writer *json)
{
    kvr_buffer_append(json->out, "}", 1);
    json->comma = true;
}

void kvr_json_array_begin(struct kvr_json_writer *json, const char *key)
{
    begin_value(json, key);
    kvr_buffer_append(json->out, "[", 1);
    json->comma = false;
}

void kvr_json_array_end(struct kvr_json_writer *json)
{
    kvr_buffer_append(json->out, "]", 1);
    json->comma = true;
}

void kvr_json_string(struct kvr_json_writer *json, const char *key, struct kvr_slice value)
{
    begin_value(json, key);
    put_string(json->out, value);
}

void kvr_json_text(struct kvr_json_writer *json, const char *key, const char *value)
{
    kvr_json_string(json, key, kvr_slice_of(value));
}

void kvr_json_uint(struct kvr_json_writer *json, const char *key, uint64_t value)
{
    begin_value(json, key);
    put_uint(json->out, value);
}

void kvr_json_int(struct kvr_json_writer *json, const char *key, int64_t value)
{
    begin_value(json, key);
    if (value < 0)
        kvr_buffer_append(json->out, "-", 1);
    put_uint(json->out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void kvr_json_double(struct kvr_json_writer *json, const char *key, double value)
{
    begin_value(json, key);
    if (!isfinite(value)) {
        kvr_buffer_append(json->out, "null", 4);
        return;
    }
    if (value >= 0 && value < 1e15 && value == floor(value)) {
        put_uint(json->out, (uint64_t)value);
        return;
    }
    char text[32];
    int precision = 6;
    do
        snprintf(text, sizeof text, "%.*g", precision, value);
    while (strtod(text, NULL) != value && ++precision <= 17);
    kvr_buffer_append_text(json->out, text);
}

void kvr_json_bool(struct kvr_json_writer *json, const char *key, bool value)
{
    begin_value(json, key);
    kvr_buffer_append_text(json->out, value ? "true" : "false");
}

void kvr_json_null(struct kvr_json_writer *json, const char *key)
{
    begin_value(json, key);
    kvr_buffer_append(json->out, "null", 4);
}

void kvr_json_hex64(struct kvr_json_writer *json, const char *key, uint64_t value)
{
    char text[16];
    kvr_put_hex64(text, value);
    kvr_json_string(json, key, kvr_slice_make(text, sizeof text));
}

void kvr_json_raw(struct kvr_json_writer *json, const char *key, struct kvr_slice value)
{
    begin_value(json, key);
    kvr_buffer_append_slice(json->out, value);
}
