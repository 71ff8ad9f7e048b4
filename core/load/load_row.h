/* A request as a JSON line: what was asked, when, how it went. Times in simulated milliseconds,
 * `*_at_ms` since the run began. Names are those of the router's rows where both know a thing. */
#ifndef KVR_LOAD_ROW_H
#define KVR_LOAD_ROW_H

#include "load_request.h"

/* Appends the row, line feed included. The two drivers share no column of time before the start:
 * the open one has due_at_ms, the closed one gap_ms (null for a user's first). */
void kvr_load_row(struct kvr_buffer *out, const struct kvr_load_clock *clock, bool open,
                  const struct kvr_load_request *request, const struct kvr_load_measure *measure,
                  bool good);

#endif
