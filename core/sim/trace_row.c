#include "trace_row.h"

#include <math.h>
#include <stdbool.h>

#include "json_number.h"
#include "json_reader.h"
#include "memory.h"
#include "prompt.h"

#define BLOCK_TOKENS_MAX 65536
#define BLOCK_BYTES_MAX  65536
#define BYTES_MAX        1073741824
#define ID_MAX           9007199254740991.0 /* 2^53 - 1: what JSON readers agree on */
#define TIME_MS_MAX      1e12               /* 31 years */

void kvr_trace_row_deinit(struct kvr_trace_row *row)
{
    kvr_free(row->runs);
    *row = (struct kvr_trace_row){0};
}

/* A number of [low, high], else the reader fails with `reason` and the result is 0. */
static double read_number(struct kvr_json_reader *json, double low, double high, const char *reason)
{
    struct kvr_slice raw;
    if (kvr_json_read_number(json, &raw)) {
        double value = kvr_json_number_value(raw);
        if (value >= low && value <= high)
            return value;
    }
    kvr_json_fail(json, KVR_E_INVALID, reason);
    return 0;
}

/* The same, without a fraction. */
static uint64_t read_whole(struct kvr_json_reader *json, double low, double high,
                           const char *reason)
{
    double value = read_number(json, low, high, reason);
    if (value != floor(value))
        kvr_json_fail(json, KVR_E_INVALID, reason);
    return (uint64_t)value;
}

/* A name as bits of which the lower 32 are never all 0. */
static uint64_t read_name(struct kvr_json_reader *json, const char *reason)
{
    struct kvr_json_span span;
    if (!kvr_json_read_string(json, &span)) {
        kvr_json_fail(json, KVR_E_INVALID, reason);
        return 0;
    }
    uint64_t hash = kvr_prompt_hash(span.raw, 0);
    return hash & UINT32_MAX ? hash : hash | 1;
}

static void add_run(struct kvr_trace_row *row, uint64_t first, uint64_t count)
{
    struct kvr_trace_run *last = row->runs_len ? &row->runs[row->runs_len - 1] : NULL;
    if (last && last->first + last->count == first) {
        last->count += count;
        return;
    }
    if (row->runs_len == row->runs_capacity) {
        row->runs_capacity = row->runs_capacity ? row->runs_capacity * 2 : 64;
        row->runs = kvr_realloc(row->runs, row->runs_capacity * sizeof *row->runs);
    }
    row->runs[row->runs_len++] = (struct kvr_trace_run){first, count};
}

static void read_blocks(struct kvr_trace_row *row, struct kvr_json_reader *json)
{
    static const char reason[] = "blocks: one list of runs [first id, count] is needed";
    if (row->runs_len || !kvr_json_enter_array(json)) {
        kvr_json_fail(json, KVR_E_INVALID, reason);
        return;
    }
    while (kvr_json_next_item(json)) {
        if (!kvr_json_enter_array(json) || !kvr_json_next_item(json))
            kvr_json_fail(json, KVR_E_INVALID, reason);
        uint64_t first = read_whole(json, 0, ID_MAX, reason);
        if (!kvr_json_next_item(json))
            kvr_json_fail(json, KVR_E_INVALID, reason);
        uint64_t count = read_whole(json, 1, KVR_TRACE_TOKENS_MAX, reason);
        if (kvr_json_next_item(json))
            kvr_json_fail(json, KVR_E_INVALID, reason);
        if (json->code == KVR_OK)
            add_run(row, first, count);
    }
}

static void read_field(struct kvr_trace_row *row, struct kvr_json_reader *json,
                       struct kvr_slice key)
{
    if (kvr_slice_is(key, "session"))
        row->session = read_name(json, "session: a text is needed");
    else if (kvr_slice_is(key, "tenant"))
        row->tenant = (uint32_t)read_name(json, "tenant: a text is needed");
    else if (kvr_slice_is(key, "turn"))
        row->turn = (uint32_t)read_whole(json, 1, UINT32_MAX, "turn: a number from 1 is needed");
    else if (kvr_slice_is(key, "at_ms"))
        row->at_ms = read_number(json, 0, TIME_MS_MAX, "at_ms: a time from 0 is needed");
    else if (kvr_slice_is(key, "think_ms"))
        row->think_ms = read_number(json, 0, TIME_MS_MAX, "think_ms: a time from 0 is needed");
    else if (kvr_slice_is(key, "input_tokens"))
        row->input_tokens = (uint32_t)read_whole(json, 1, KVR_TRACE_TOKENS_MAX,
                                                 "input_tokens: 1 to 16777216 are needed");
    else if (kvr_slice_is(key, "output_tokens"))
        row->output_tokens = (uint32_t)read_whole(json, 0, KVR_TRACE_TOKENS_MAX,
                                                  "output_tokens: 0 to 16777216 are needed");
    else if (kvr_slice_is(key, "input_bytes"))
        row->input_bytes =
            (uint32_t)read_whole(json, 1, BYTES_MAX, "input_bytes: 1 to 1073741824 are needed");
    else if (kvr_slice_is(key, "block_bytes"))
        row->block_bytes =
            (uint32_t)read_whole(json, 1, BLOCK_BYTES_MAX, "block_bytes: 1 to 65536 are needed");
    else if (kvr_slice_is(key, "block_tokens"))
        row->block_tokens =
            (uint32_t)read_whole(json, 1, BLOCK_TOKENS_MAX, "block_tokens: 1 to 65536 are needed");
    else if (kvr_slice_is(key, "blocks"))
        read_blocks(row, json);
    else
        kvr_json_skip(json, NULL);
}

/* What is wrong between the fields of a row, or NULL. */
static const char *find_fault(const struct kvr_trace_row *row)
{
    if (row->input_tokens == 0)
        return "input_tokens: is missing";
    if (row->output_tokens == UINT32_MAX)
        return "output_tokens: is missing";
    if (!isnan(row->at_ms) && !isnan(row->think_ms))
        return "think_ms: a row has this or at_ms";
    if (!isnan(row->think_ms) && !row->session)
        return "think_ms: needs a session";
    bool in_bytes = row->input_bytes > 0;
    uint64_t block = in_bytes ? row->block_bytes : row->block_tokens;
    if (row->runs_len && !block)
        return in_bytes ? "block_bytes: is missing" : "block_tokens: is missing";
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < row->runs_len; i++)
        blocks += row->runs[i].count;
    if (blocks && (blocks - 1) * block >= (in_bytes ? row->input_bytes : row->input_tokens))
        return "blocks: more ids than the prompt has blocks";
    return NULL;
}

int kvr_trace_row_read(struct kvr_trace_row *row, struct kvr_slice line, struct kvr_error *error)
{
    struct kvr_json_reader json;
    struct kvr_json_span key;
    *row = (struct kvr_trace_row){
        .at_ms = NAN,
        .think_ms = NAN,
        .output_tokens = UINT32_MAX,
        .runs = row->runs,
        .runs_capacity = row->runs_capacity,
    };
    kvr_json_reader_init(&json, line);
    if (!kvr_json_enter_object(&json))
        kvr_json_fail(&json, KVR_E_INVALID, "no JSON object");
    while (kvr_json_next_key(&json, &key))
        read_field(row, &json, key.raw);
    if (!kvr_json_finish(&json))
        return kvr_error_set(error, KVR_E_INVALID, "%s", json.reason);
    const char *fault = find_fault(row);
    return fault ? kvr_error_set(error, KVR_E_INVALID, "%s", fault) : KVR_OK;
}
