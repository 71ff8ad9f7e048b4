#include "trace.h"

#include <math.h>
#include <string.h>

#include "buffer.h"
#include "memory.h"
#include "rng.h"
#include "trace_row.h"

#define LINE_BYTES_MAX ((size_t)64 << 20)

/* Identities of texts: of a block chain, and of what is a request's own. */
#define TEXT_OF_CHAIN 0x7472616365206964u
#define TEXT_OF_ROW   0x747261636520726fu

struct kvr_trace {
    struct kvr_workload *workload; /* the caller's */
    struct kvr_buffer line;        /* the open one */
    uint64_t lines;                /* begun so far */
    uint64_t count;                /* requests added */
    double last_at_ms;
    bool failed; /* nothing more is taken */
    struct kvr_trace_row row;
    struct kvr_piece *pieces;
    uint32_t pieces_capacity;
};

struct kvr_trace *kvr_trace_create(struct kvr_workload *workload)
{
    KVR_CHECK(workload && kvr_workload_options(workload)->kind == KVR_WORKLOAD_LIST);
    struct kvr_trace *trace = kvr_alloc_zero(1, sizeof *trace);
    trace->workload = workload;
    return trace;
}

void kvr_trace_destroy(struct kvr_trace *trace)
{
    if (!trace)
        return;
    kvr_buffer_deinit(&trace->line);
    kvr_trace_row_deinit(&trace->row);
    kvr_free(trace->pieces);
    kvr_free(trace);
}

uint64_t kvr_trace_count(const struct kvr_trace *trace)
{
    return trace->count;
}

static int fail(struct kvr_trace *trace, int code, struct kvr_error *error, const char *what)
{
    trace->failed = true;
    return kvr_error_set(error, code, "line %llu: %s", (unsigned long long)trace->lines, what);
}

/* ---- a row as a request ---- */

static uint64_t text_id(const struct kvr_trace *trace, uint64_t what, uint64_t a, uint64_t b)
{
    uint64_t hash = kvr_mix64(what + kvr_workload_options(trace->workload)->epoch);
    hash = kvr_mix64(hash ^ (a + 0x632be59bd9b4e019u));
    return kvr_mix64(hash + kvr_mix64(b + 0x9e3779b97f4a7c15u));
}

/* One more piece, from byte *bytes to byte `until` of the prompt. */
static void add_piece(struct kvr_trace *trace, uint32_t *len, uint64_t *bytes, uint64_t id,
                      uint64_t until)
{
    trace->pieces[*len] = (struct kvr_piece){
        .id = id,
        .bytes = (uint32_t)(until - *bytes),
        .speaker = KVR_USER,
        .continues = *len > 0,
    };
    *bytes = until;
    (*len)++;
}

/* Where so many leading blocks of the row end; the last one may be partial. */
static uint64_t end_of(const struct kvr_trace *trace, uint64_t blocks)
{
    const struct kvr_trace_row *row = &trace->row;
    double bytes_per_token = kvr_workload_options(trace->workload)->bytes_per_token;
    if (row->input_bytes) {
        uint64_t end = blocks * row->block_bytes;
        return end < row->input_bytes ? end : row->input_bytes;
    }
    uint64_t end = blocks * row->block_tokens;
    return (uint64_t)((double)(end < row->input_tokens ? end : row->input_tokens) *
                      bytes_per_token);
}

static uint64_t bytes_of(const struct kvr_trace *trace)
{
    const struct kvr_trace_row *row = &trace->row;
    double bytes_per_token = kvr_workload_options(trace->workload)->bytes_per_token;
    return row->input_bytes ? row->input_bytes
                            : (uint64_t)((double)row->input_tokens * bytes_per_token);
}

static uint32_t make_pieces(struct kvr_trace *trace)
{
    const struct kvr_trace_row *row = &trace->row;
    if (trace->pieces_capacity < row->runs_len + 1) {
        trace->pieces_capacity = row->runs_len + 64;
        trace->pieces = kvr_realloc(trace->pieces, trace->pieces_capacity * sizeof *trace->pieces);
    }
    uint32_t len = 0;
    uint64_t bytes = 0, blocks = 0;
    uint32_t block = row->input_bytes ? row->block_bytes : row->block_tokens;
    for (uint32_t i = 0; i < row->runs_len; i++) {
        blocks += row->runs[i].count;
        add_piece(trace, &len, &bytes, text_id(trace, TEXT_OF_CHAIN, row->runs[i].first, block),
                  end_of(trace, blocks));
    }
    if (bytes < bytes_of(trace))
        add_piece(trace, &len, &bytes, text_id(trace, TEXT_OF_ROW, trace->count, 0),
                  bytes_of(trace));
    return len;
}

/* A row that has a think time is due when the last stated arrival was, which is the start of its
 * session or later: requests of one session are taken in order of time. */
static int take_row(struct kvr_trace *trace, struct kvr_error *error)
{
    const struct kvr_trace_row *row = &trace->row;
    if (row->at_ms < trace->last_at_ms)
        return fail(trace, KVR_E_INVALID, error, "at_ms: is before the line above");
    if (!isnan(row->at_ms))
        trace->last_at_ms = row->at_ms;
    uint32_t pieces_len = make_pieces(trace);
    uint32_t output_tokens = row->output_tokens ? row->output_tokens : 1;
    struct kvr_list_request request = {
        .session = row->session,
        .key = row->tenant,
        .tenant = row->tenant,
        .due_ms = trace->last_at_ms,
        .think_ms = isnan(row->think_ms) ? 0 : row->think_ms,
        .pieces_len = pieces_len,
        .pieces = trace->pieces,
        .session_turn = row->turn,
        .max_tokens = output_tokens,
        .output_tokens = output_tokens,
    };
    if (kvr_workload_add(trace->workload, &request) != KVR_OK)
        return fail(trace, KVR_E_STATE, error, "the workload takes no more requests");
    trace->count++;
    return KVR_OK;
}

/* ---- bytes as lines ---- */

static int take_line(struct kvr_trace *trace, struct kvr_slice line, struct kvr_error *error)
{
    trace->lines++;
    if (line.len && line.data[line.len - 1] == '\r')
        line.len--;
    if (kvr_slice_trim(line).len == 0)
        return KVR_OK;
    struct kvr_error why = {0};
    int code = kvr_trace_row_read(&trace->row, line, &why);
    return code == KVR_OK ? take_row(trace, error) : fail(trace, code, error, why.text);
}

/* `rest` ends the open line. Lines that come whole are not copied. */
static int end_line(struct kvr_trace *trace, struct kvr_slice rest, struct kvr_error *error)
{
    if (trace->line.len == 0)
        return take_line(trace, rest, error);
    kvr_buffer_append_slice(&trace->line, rest);
    int code = take_line(trace, kvr_buffer_slice(&trace->line), error);
    trace->line.len = 0;
    return code;
}

int kvr_trace_feed(struct kvr_trace *trace, const char *data, size_t len, struct kvr_error *error)
{
    if (trace->failed)
        return kvr_error_set(error, KVR_E_STATE, "a line before was wrong");
    const char *end = data + len;
    const char *feed;
    while (data < end && (feed = memchr(data, '\n', (size_t)(end - data)))) {
        int code = end_line(trace, kvr_slice_make(data, (size_t)(feed - data)), error);
        if (code != KVR_OK)
            return code;
        data = feed + 1;
    }
    if (data == end)
        return KVR_OK;
    if (trace->line.len + (size_t)(end - data) > LINE_BYTES_MAX) {
        trace->lines++;
        return fail(trace, KVR_E_LIMIT, error, "is longer than 64 MiB");
    }
    kvr_buffer_append(&trace->line, data, (size_t)(end - data));
    return KVR_OK;
}

int kvr_trace_end(struct kvr_trace *trace, struct kvr_error *error)
{
    if (trace->failed)
        return kvr_error_set(error, KVR_E_STATE, "a line before was wrong");
    return trace->line.len ? end_line(trace, (struct kvr_slice){NULL, 0}, error) : KVR_OK;
}
