/* The file that rows go to: blocking calls, made by one thread at a time. Knows when it is no
 * longer the file at its path, rotates by size, and never leaves a torn line behind.
 *
 *   rows.jsonl -> rows.jsonl.1 -> ... -> rows.jsonl.<keep>, the oldest goes
 *
 * One process writes a file; lines are appended, so a second one would not be torn either. */
#ifndef KVR_ROW_FILE_H
#define KVR_ROW_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "slice.h"

struct kvr_row_file {
    char *path;
    int fd;                /* -1: closed */
    uint64_t size;         /* bytes in it */
    uint64_t rotate_bytes; /* a line that would pass it goes to a new file */
    uint32_t keep;         /* rotated files kept, >= 1 */
    bool regular;          /* else (a pipe, a device) it is neither rotated nor replaced */
    bool rotates;          /* regular, and its path is no symbolic link */
    bool torn;             /* it ends inside a line that could not be taken back */
};

/* What one call did; added up by the caller. */
struct kvr_row_batch {
    uint64_t rows;
    uint64_t bytes;
    uint64_t dropped; /* rows not written */
    uint64_t rotations;
    uint64_t reopens;
    uint64_t reopen_failures;
    int write_errno; /* 0: all was written */
    int open_errno;  /* 0: the file at the path is ours */
};

/* How many lines there are. */
uint64_t kvr_row_count(struct kvr_slice lines);

/* Creates it if need be; not its directory. A file that ends inside a line (a crash) gets a line
 * feed before the next. Writing over the limit of a file's size must fail, not kill: SIGXFSZ is
 * ignored from now on. */
int kvr_row_file_open(struct kvr_row_file *file, const char *path, uint64_t rotate_bytes,
                      uint32_t keep, struct kvr_error *error);
void kvr_row_file_close(struct kvr_row_file *file);

/* Replaces the handle if the path names another file, or none; then writes the lines. `lines` holds
 * whole lines and may be empty. */
void kvr_row_file_write(struct kvr_row_file *file, struct kvr_slice lines,
                        struct kvr_row_batch *batch);

#endif
