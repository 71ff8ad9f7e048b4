/* Rows of traces. Input: a plan of cuts, then the text.
 *
 * What becomes of it does not depend on the cuts; a trace that is taken consists of JSON objects
 * and blank lines; its requests are ones that a workload may have, in an order of time that never
 * turns back. */
#include "fuzz.h"

#include "naive_json.h"
#include "trace.h"

static struct kvr_workload *new_workload(void)
{
    struct kvr_workload_options options;
    struct kvr_error error = {0};
    kvr_workload_defaults(&options);
    options.kind = KVR_WORKLOAD_LIST;
    options.arrivals = KVR_ARRIVALS_TIMES;
    struct kvr_workload *workload = kvr_workload_create(&options, &error);
    FUZZ_CHECK(workload);
    return workload;
}

static void note_request(struct kvr_buffer *log, const struct kvr_workload_request *request)
{
    uint64_t bytes = 0;
    FUZZ_CHECK(request->pieces_len > 0 && request->output_tokens > 0);
    FUZZ_CHECK(request->output_tokens == request->max_tokens);
    for (uint32_t i = 0; i < request->pieces_len; i++) {
        const struct kvr_piece *piece = &request->pieces[i];
        FUZZ_CHECK(piece->bytes > 0 && piece->continues == (i > 0) && piece->speaker == KVR_USER);
        bytes += piece->bytes;
        kvr_buffer_printf(log, " %llx:%u", (unsigned long long)piece->id, piece->bytes);
    }
    FUZZ_CHECK(bytes == request->prompt_bytes);
    kvr_buffer_printf(log, " user %llu turn %u tenant %llu tokens %u\n",
                      (unsigned long long)request->user, request->session_turn,
                      (unsigned long long)request->tenant, request->output_tokens);
}

static void note_requests(struct kvr_buffer *log, struct kvr_workload *workload, uint64_t count)
{
    struct kvr_arrival arrival;
    uint64_t last_ns = 0, seen = 0;
    kvr_workload_rewind(workload);
    while (kvr_workload_next(workload, &arrival)) {
        struct kvr_workload_request request = {0};
        FUZZ_CHECK(arrival.due_ns >= last_ns);
        FUZZ_CHECK(kvr_workload_turn(workload, arrival.user, arrival.turn, &request));
        last_ns = arrival.due_ns;
        seen++;
        kvr_buffer_printf(log, "%llu", (unsigned long long)arrival.due_ns);
        note_request(log, &request);
    }
    FUZZ_CHECK(seen == count);
}

static struct kvr_buffer read_trace(const char *text, size_t len, struct fuzz_cuts cuts, int *code)
{
    struct kvr_workload *workload = new_workload();
    struct kvr_trace *trace = kvr_trace_create(workload);
    struct kvr_error error = {0};
    struct kvr_buffer log = {0};
    *code = KVR_OK;
    for (size_t at = 0; at < len && *code == KVR_OK;) {
        size_t piece = fuzz_piece(&cuts, len - at);
        *code = kvr_trace_feed(trace, text + at, piece, &error);
        at += piece;
    }
    if (*code == KVR_OK)
        *code = kvr_trace_end(trace, &error);
    if (*code != KVR_OK)
        FUZZ_CHECK(kvr_trace_end(trace, NULL) == KVR_E_STATE);
    kvr_buffer_printf(&log, "%d %s\n", *code, error.text);
    note_requests(&log, workload, kvr_trace_count(trace));
    kvr_trace_destroy(trace);
    kvr_workload_destroy(workload);
    return log;
}

static void check_lines(const char *text, size_t len)
{
    while (len) {
        const char *feed = memchr(text, '\n', len);
        size_t line = feed ? (size_t)(feed - text) : len;
        size_t used = feed ? line + 1 : line;
        struct kvr_slice slice = kvr_slice_make(text, line);
        if (line && text[line - 1] == '\r')
            slice.len--;
        if (kvr_slice_trim(slice).len)
            FUZZ_CHECK(naive_json(slice, true) == NAIVE_GOOD);
        text += used;
        len -= used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    char *text = fuzz_rest(&input);
    int code, again;
    struct kvr_buffer whole = read_trace(text, input.left, fuzz_whole, &code);
    struct kvr_buffer cut = read_trace(text, input.left, cuts, &again);
    fuzz_same(&whole, &cut);
    kvr_buffer_deinit(&cut);
    cut = read_trace(text, input.left, fuzz_bytewise, &again);
    fuzz_same(&whole, &cut);
    if (code == KVR_OK)
        check_lines(text, input.left);
    kvr_buffer_deinit(&cut);
    kvr_buffer_deinit(&whole);
    free(text);
    return 0;
}
