#include "load_workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "buffer.h"
#include "file.h"
#include "load_settings.h"
#include "memory.h"
#include "trace.h"

#define READ_BYTES      65536
#define TIMES_MAX       100000000u
#define TRACE_BYTES_MAX ((uint64_t)4 << 30)

/* ---- files ---- */

static int read_trace(const char *path, struct kvr_workload *workload, struct kvr_error *error)
{
    FILE *file;
    int code = kvr_file_open_given(path, &file, error);
    if (code)
        return code;
    struct kvr_trace *trace = kvr_trace_create(workload);
    char *bytes = kvr_alloc(READ_BYTES);
    uint64_t all = 0;
    size_t len;
    while (code == 0 && (len = fread(bytes, 1, READ_BYTES, file)) > 0) {
        all += len;
        code = all > TRACE_BYTES_MAX ? kvr_error_set(error, KVR_E_LIMIT, "%s: is over 4 GiB", path)
                                     : kvr_trace_feed(trace, bytes, len, error);
    }
    if (code == 0 && ferror(file))
        code = kvr_error_set(error, KVR_E_IO, "%s: cannot be read", path);
    if (code == 0)
        code = kvr_trace_end(trace, error);
    if (code == 0 && kvr_trace_count(trace) == 0)
        code = kvr_error_set(error, KVR_E_INVALID, "%s: holds no request", path);
    kvr_free(bytes);
    kvr_trace_destroy(trace);
    fclose(file);
    if (code == 0)
        kvr_workload_rewind(workload); /* its list is complete */
    return code;
}

/* Appends the numbers of the file. */
static int read_numbers(FILE *file, const char *path, struct kvr_buffer *times,
                        struct kvr_error *error)
{
    char line[64];
    uint64_t count = 0;
    while (fgets(line, sizeof line, file)) {
        char *end;
        double ms = strtod(line, &end);
        count++;
        if (end == line || (*end != '\n' && *end) || !(ms >= 0) || count > TIMES_MAX)
            return kvr_error_set(error, KVR_E_INVALID, "%s:%llu: is no time in milliseconds", path,
                                 (unsigned long long)count);
        kvr_buffer_append(times, &ms, sizeof ms);
    }
    if (ferror(file) || count == 0)
        return kvr_error_set(error, KVR_E_IO, "%s: %s", path,
                             count ? "cannot be read" : "holds no time");
    return 0;
}

static int read_times(const char *path, struct kvr_buffer *times, struct kvr_error *error)
{
    FILE *file;
    int code = kvr_file_open_given(path, &file, error);
    if (code)
        return code;
    code = read_numbers(file, path, times, error);
    fclose(file);
    return code;
}

/* ---- words ---- */

static int apply_arrivals(const struct kvr_load_words *words, struct kvr_workload_options *options,
                          struct kvr_error *error)
{
    if (words->rate > 0) {
        options->arrivals = KVR_ARRIVALS_RATE;
        options->rate = words->rate;
    }
    if (words->times && options->arrivals != KVR_ARRIVALS_BOOTSTRAP)
        options->arrivals = KVR_ARRIVALS_TIMES;
    if (options->rate > 0 && options->arrivals == KVR_ARRIVALS_CLOSED)
        return kvr_error_set(error, KVR_E_INVALID,
                             "a closed loop has no rate: --rate makes it open, or arrivals=rate");
    bool rate = options->arrivals == KVR_ARRIVALS_RATE;
    if (!rate && (words->burstiness > 0 || words->rate_end > 0))
        return kvr_error_set(error, KVR_E_INVALID, "--burstiness and --ramp-to need a --rate");
    if (words->burstiness > 0)
        options->gap_cv = sqrt(1 / words->burstiness);
    if (words->rate_end > 0) {
        options->rate_end = words->rate_end;
        options->ramp_ms = words->ramp_s * 1e3;
    }
    return 0;
}

/* What would be passed over in silence is refused. */
static int check(const struct kvr_load_words *words, struct kvr_error *error)
{
    int loops = (words->users > 0) + (words->rate > 0) + (words->times != NULL) + words->closed;
    if (loops > 1)
        return kvr_error_set(error, KVR_E_INVALID,
                             "one of --users, --rate, --times and --closed, not several");
    if (words->closed && !words->trace)
        return kvr_error_set(error, KVR_E_INVALID, "--closed is for a --trace");
    if (words->trace && (words->users || words->think_ms >= 0))
        return kvr_error_set(error, KVR_E_INVALID,
                             "the sessions of a --trace are its users, and think as it says");
    if (words->think_ms >= 0 && (words->rate > 0 || words->times))
        return kvr_error_set(error, KVR_E_INVALID, "--think is for the closed loop of --users");
    return 0;
}

static int apply(const struct kvr_load_words *words, struct kvr_workload_options *options,
                 struct kvr_error *error)
{
    int wrong = check(words, error);
    if (wrong)
        return wrong;
    kvr_workload_defaults(options);
    if (words->trace) {
        options->kind = KVR_WORKLOAD_LIST;
        options->arrivals = words->closed ? KVR_ARRIVALS_CLOSED : KVR_ARRIVALS_TIMES;
    }
    for (uint32_t i = 0; i < words->settings.len; i++) {
        int code = kvr_load_set(options, words->settings.items[i], error);
        if (code)
            return code;
    }
    if (words->seeded)
        options->seed = words->seed;
    if (words->users)
        options->users = (uint32_t)words->users;
    if (words->think_ms >= 0)
        options->think_ms = words->think_ms;
    return apply_arrivals(words, options, error);
}

struct kvr_workload *kvr_load_workload(const struct kvr_load_words *words, struct kvr_error *error)
{
    struct kvr_workload_options options;
    struct kvr_workload *workload = NULL;
    struct kvr_buffer times = {0};
    int code = apply(words, &options, error);
    if (code == 0 && words->times)
        code = read_times(words->times, &times, error);
    if (code == 0) {
        options.times_ms = (const double *)(const void *)times.data;
        options.times_len = times.len / sizeof(double);
        workload = kvr_workload_create(&options, error);
    }
    kvr_buffer_deinit(&times);
    if (workload && words->trace && read_trace(words->trace, workload, error)) {
        kvr_workload_destroy(workload);
        return NULL;
    }
    return workload;
}
