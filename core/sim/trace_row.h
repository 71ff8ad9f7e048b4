/* One line of a trace: a JSON object whose fields experiments/data/README.md explains. Fields that
 * are not named below are passed over.
 *
 * A row is used for line after line and keeps its memory. */
#ifndef KVR_TRACE_ROW_H
#define KVR_TRACE_ROW_H

#include <stdint.h>

#include "error.h"
#include "slice.h"

#define KVR_TRACE_TOKENS_MAX 16777216 /* of a prompt, and of an answer */

struct kvr_trace_run {
    uint64_t first; /* block id */
    uint64_t count; /* blocks, with ids that follow each other */
};

struct kvr_trace_row {
    uint64_t session; /* hash of its name; 0: none */
    uint32_t tenant;  /* the same */
    uint32_t turn;    /* within the session, from 1; 0: not stated */
    double at_ms;     /* arrival; NaN: not stated */
    double think_ms;  /* after the session's answer before; NaN: not stated */
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint32_t input_bytes;  /* of the prompt, in place of its tokens; 0: not stated */
    uint32_t block_bytes;  /* with input_bytes, in place of block_tokens */
    uint32_t block_tokens; /* 0: no blocks */
    uint32_t runs_len;
    uint32_t runs_capacity;
    struct kvr_trace_run *runs; /* owned; never two that could be one */
};

/* Reads a line into a row that is zeroed or was read before. KVR_E_INVALID with the field and what
 * is wrong with it in words. */
int kvr_trace_row_read(struct kvr_trace_row *row, struct kvr_slice line,
                       struct kvr_error *error) KVR_MUST_USE;
void kvr_trace_row_deinit(struct kvr_trace_row *row);

#endif
