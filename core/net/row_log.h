/* Appends rows (JSON lines) to a file without ever holding up the loop.
 *
 * Happy path: kvr_row_log_append copies whole lines into a bounded buffer; when flush_bytes are
 * there, or flush_ns after the first of them, one job in the thread pool writes them (row_file.h)
 * while new rows collect in a second buffer.
 *
 * Failure modes: a disk that is full or refuses: the rows of that job are dropped, whole lines
 * only, and counted; a disk that is slow: rows collect up to buffer_bytes and then new ones are
 * dropped and counted; the file was renamed or deleted: the next job writes to a new one; a new one
 * cannot be made: the old handle is kept and the failure counted. The first failure and the
 * recovery are logged, not each row.
 *
 * Memory: two buffers, together at most 2 * buffer_bytes; a buffer that a burst has widened goes
 * back to the system. */
#ifndef KVR_ROW_LOG_H
#define KVR_ROW_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "error.h"
#include "loop.h"
#include "row_file.h"

struct kvr_row_log_options {
    const char *path;      /* copied */
    uint64_t rotate_bytes; /* default 256 MiB: a file over it becomes file.1 */
    uint32_t keep;         /* rotated files kept; default 8 */
    uint64_t flush_ns;     /* default 200 ms: a row is on its way to the file by then */
    size_t flush_bytes;    /* default 256 KiB */
    size_t buffer_bytes;   /* rows waiting; default 8 MiB */
};

struct kvr_row_log_counters {
    uint64_t rows;            /* written */
    uint64_t bytes;           /* written */
    uint64_t dropped_full;    /* rows: the buffer was full */
    uint64_t dropped_failed;  /* rows: the write failed */
    uint64_t rotations;       /* by size */
    uint64_t reopens;         /* after the file was renamed, deleted, or on request */
    uint64_t reopen_failures; /* also of rotations */
};

struct kvr_row_log {
    struct kvr_loop *loop;
    struct kvr_row_log_options options; /* defaults filled in; path is the file's */
    struct kvr_row_log_counters counters;
    struct kvr_row_file file; /* the job's while one runs */
    struct kvr_row_batch batch;
    struct kvr_buffer waiting; /* whole lines */
    struct kvr_buffer writing; /* the job's while one runs */
    uv_work_t work;
    uv_timer_t timer;
    bool working;
    bool reopen_wanted;
    bool failing; /* the last job could not write or reopen */
    bool closing;
    void *closed_context;
    void (*on_closed)(void *context);
};

/* Opens or creates the file. A failure here is the caller's to end the start with. */
int kvr_row_log_open(struct kvr_row_log *log, struct kvr_loop *loop,
                     const struct kvr_row_log_options *options, struct kvr_error *error);
/* Takes whole lines, each with its line feed. */
void kvr_row_log_append(struct kvr_row_log *log, struct kvr_slice lines);
/* Looks at once whether the file is still the one at its path (SIGHUP, after an outside rotation).
 */
void kvr_row_log_reopen(struct kvr_row_log *log);
/* Writes what is there, closes the file and calls back from the loop, after which the memory may
 * go. Nothing may be appended any more. */
void kvr_row_log_close(struct kvr_row_log *log, void *context, void (*on_closed)(void *context));

#endif
