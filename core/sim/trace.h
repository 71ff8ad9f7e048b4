/* Rows of a recorded trace as requests of a workload of kind LIST. A row is one JSON object a line;
 * experiments/data/README.md says what its fields mean. Reading files is the caller's:
 *
 *   trace = kvr_trace_create(workload);
 *   while there are bytes: kvr_trace_feed(trace, bytes, len, &error)      cut anywhere
 *   kvr_trace_end(trace, &error);                                         the last line is whole
 *   kvr_trace_destroy(trace);
 *
 * From block ids to pieces. Ids are chained: equal id, equal whole prefix. So a run of consecutive
 * ids becomes one piece that is named by its first id, and two prompts share exactly their leading
 * common blocks:
 *
 *   blocks [[1,4],[9,2]]    piece 1 of 4 blocks, piece 9 of 2 blocks, then what no id covers: new
 *   blocks [[1,3],[7,5]]    piece 1 of 3 blocks, piece 7 ...          shares 3 blocks with the
 * above
 *
 * A partial last block that has an id ends with the prompt: whether an engine finds it again is the
 * engine's affair. Tokens behind the last id belong to this request alone. A piece that starts at
 * token a of the prompt and ends at b has floor(b * bytes_per_token) - floor(a * bytes_per_token)
 * bytes, so that equal prefixes are equal bytes. A row that states `input_bytes` has its lengths in
 * bytes: a router's rows know no others of blocks.
 *
 * All pieces are one user message; what a chat template adds comes on top of `input_tokens`. An
 * answer of 0 tokens counts as 1, since engines generate one before they can stop; its length is
 * asked for as max_tokens, for nothing else makes a live engine answer so long. A tenant is also
 * the request's key.
 *
 * This header is also read by LuaJIT (workload.h says how). */
#ifndef KVR_TRACE_H
#define KVR_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "error.h"
#include "workload.h"

struct kvr_trace;

/* The workload is the caller's and must outlive the trace. */
KVR_EXPORT struct kvr_trace *kvr_trace_create(struct kvr_workload *workload);
KVR_EXPORT void kvr_trace_destroy(struct kvr_trace *trace);

/* Adds the requests of all lines that are complete. Blank lines are passed over. A bad one is
 * KVR_E_INVALID, or KVR_E_LIMIT where it is too long or too large, with its number and the field in
 * words; the requests before it stay. After a failure nothing more is taken. */
KVR_EXPORT int kvr_trace_feed(struct kvr_trace *trace, const char *data, size_t len,
                              struct kvr_error *error) KVR_MUST_USE;
/* The text is over: takes what stands behind the last line feed. */
KVR_EXPORT int kvr_trace_end(struct kvr_trace *trace, struct kvr_error *error) KVR_MUST_USE;

/* Requests added so far. */
KVR_EXPORT uint64_t kvr_trace_count(const struct kvr_trace *trace);

#endif
