/* Files of tests/data, and the envelopes of tests/data/requests read with our own JSON reader. */
#ifndef DATA_FILE_H
#define DATA_FILE_H

#include <stdio.h>
#include <string.h>

#include "buffer.h"
#include "json_reader.h"

/* Whole content of tests/data/NAME, appended to `out`. */
static inline void data_file_read(const char *name, struct kvr_buffer *out)
{
    char path[512], chunk[4096];
    snprintf(path, sizeof path, "%s/tests/data/%s", KVR_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    KVR_CHECK(file);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        kvr_buffer_append(out, chunk, n);
    fclose(file);
}

/* One envelope. The slices point into `file`; the body is made anew. */
struct envelope {
    struct kvr_buffer file;
    struct kvr_buffer body; /* as it goes over the wire */
    struct kvr_slice path;
    struct kvr_slice session; /* header x-session-id */
    struct kvr_slice forward, affinity, pair_with, pair_relation;
};

/* Removes blanks outside strings, which leaves escapes and numbers as they are. */
static inline void data_file_strip(struct kvr_slice json, struct kvr_buffer *out)
{
    bool inside = false;
    for (size_t i = 0; i < json.len; i++) {
        char c = json.data[i];
        if (!inside && (c == ' ' || c == '\n' || c == '\r' || c == '\t'))
            continue;
        if (c == '"')
            inside = !inside;
        kvr_buffer_append(out, &c, 1);
        if (inside && c == '\\' && i + 1 < json.len)
            kvr_buffer_append(out, &json.data[++i], 1);
    }
}

static inline void data_file_decode64(struct kvr_slice text, struct kvr_buffer *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, have = 0;
    for (size_t i = 0; i < text.len && text.data[i] != '='; i++) {
        const char *digit = strchr(digits, text.data[i]);
        KVR_CHECK(digit && *digit);
        bits = bits << 6 | (unsigned)(digit - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            kvr_buffer_append(out, (char[]){(char)(bits >> have)}, 1);
        }
    }
}

static inline struct kvr_slice data_file_string(struct kvr_json_reader *json)
{
    struct kvr_json_span span;
    KVR_CHECK(kvr_json_read_string(json, &span) && !span.escaped);
    return span.raw;
}

static inline void data_file_expect(struct kvr_json_reader *json, struct envelope *envelope)
{
    struct kvr_json_span key;
    KVR_CHECK(kvr_json_enter_object(json));
    while (kvr_json_next_key(json, &key)) {
        if (kvr_slice_is(key.raw, "forward"))
            envelope->forward = data_file_string(json);
        else if (kvr_slice_is(key.raw, "affinity"))
            envelope->affinity = data_file_string(json);
        else if (kvr_slice_is(key.raw, "pair"))
            data_file_expect(json, envelope);
        else if (kvr_slice_is(key.raw, "with"))
            envelope->pair_with = data_file_string(json);
        else if (kvr_slice_is(key.raw, "relation"))
            envelope->pair_relation = data_file_string(json);
        else
            kvr_json_skip(json, NULL);
    }
}

static inline void data_file_headers(struct kvr_json_reader *json, struct envelope *envelope)
{
    struct kvr_json_span key;
    KVR_CHECK(kvr_json_enter_object(json));
    while (kvr_json_next_key(json, &key)) {
        if (kvr_slice_is(key.raw, "x-session-id"))
            envelope->session = data_file_string(json);
        else
            kvr_json_skip(json, NULL);
    }
}

static inline void envelope_open(struct envelope *envelope, const char *name)
{
    struct kvr_json_reader json;
    struct kvr_json_span key, text;
    struct kvr_slice raw;
    char path[256];
    *envelope = (struct envelope){.path = {0}};
    snprintf(path, sizeof path, "requests/%s", name);
    data_file_read(path, &envelope->file);
    kvr_json_reader_init(&json, kvr_buffer_slice(&envelope->file));
    KVR_CHECK(kvr_json_enter_object(&json));
    while (kvr_json_next_key(&json, &key)) {
        if (kvr_slice_is(key.raw, "path")) {
            envelope->path = data_file_string(&json);
        } else if (kvr_slice_is(key.raw, "headers")) {
            data_file_headers(&json, envelope);
        } else if (kvr_slice_is(key.raw, "expect")) {
            data_file_expect(&json, envelope);
        } else if (kvr_slice_is(key.raw, "body")) {
            kvr_json_skip(&json, &raw);
            data_file_strip(raw, &envelope->body);
        } else if (kvr_slice_is(key.raw, "body_text") && kvr_json_read_string(&json, &text)) {
            kvr_buffer_reserve(&envelope->body, text.raw.len + KVR_JSON_SLACK);
            envelope->body.len = kvr_json_string_unescape(text.raw, envelope->body.data);
        } else if (kvr_slice_is(key.raw, "body_b64")) {
            data_file_decode64(data_file_string(&json), &envelope->body);
        } else {
            kvr_json_skip(&json, NULL);
        }
    }
    KVR_CHECK(kvr_json_finish(&json));
}

static inline void envelope_close(struct envelope *envelope)
{
    kvr_buffer_deinit(&envelope->file);
    kvr_buffer_deinit(&envelope->body);
}

#endif
