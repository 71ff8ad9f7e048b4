/* Writes JSON into a buffer: commas and escapes are its business, the shape is the caller's.
 *
 *   struct kvr_json_writer json = {.out = &buffer};
 *   kvr_json_object_begin(&json, NULL);
 *   kvr_json_uint(&json, "requests", 3);
 *   kvr_json_object_end(&json);
 *
 * A `key` of NULL is right at the top level and inside arrays. Strings may hold any bytes: what is
 * not valid UTF-8 is written as U+FFFD, so that the output always parses. */
#ifndef KVR_JSON_WRITER_H
#define KVR_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "slice.h"

struct kvr_json_writer {
    struct kvr_buffer *out; /* the caller's */
    bool comma;             /* a value has been written at this level */
};

void kvr_json_object_begin(struct kvr_json_writer *json, const char *key);
void kvr_json_object_end(struct kvr_json_writer *json);
void kvr_json_array_begin(struct kvr_json_writer *json, const char *key);
void kvr_json_array_end(struct kvr_json_writer *json);
void kvr_json_string(struct kvr_json_writer *json, const char *key, struct kvr_slice value);
void kvr_json_text(struct kvr_json_writer *json, const char *key, const char *value);
void kvr_json_uint(struct kvr_json_writer *json, const char *key, uint64_t value);
void kvr_json_int(struct kvr_json_writer *json, const char *key, int64_t value);
/* NaN and infinities are written as null; 17 digits otherwise trimmed to what reads back. */
void kvr_json_double(struct kvr_json_writer *json, const char *key, double value);
void kvr_json_bool(struct kvr_json_writer *json, const char *key, bool value);
void kvr_json_null(struct kvr_json_writer *json, const char *key);
/* 16 hexadecimal digits as a string: 64-bit identities do not survive JSON numbers. */
void kvr_json_hex64(struct kvr_json_writer *json, const char *key, uint64_t value);
/* `value` is JSON already. */
void kvr_json_raw(struct kvr_json_writer *json, const char *key, struct kvr_slice value);

#endif
