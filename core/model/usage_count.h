/* Token counts in the shapes in which engines report them. */
#ifndef KVR_USAGE_COUNT_H
#define KVR_USAGE_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "json_reader.h"
#include "slice.h"

/* As an engine reported them; -1: not said, which is not 0. */
struct kvr_token_usage {
    int64_t prompt_tokens;
    int64_t completion_tokens;
    int64_t cached_tokens; /* of the prompt */
};

/* Takes over what `from` knows. */
void kvr_usage_merge(struct kvr_token_usage *usage, const struct kvr_token_usage *from);

/* These take the value that comes next. */

/* A usage object, or SGLang's meta_info, which holds the same counts. Anthropic counts a prompt in
 * three disjoint parts: read from the cache, written to it, and the rest. */
void kvr_usage_take(struct kvr_json_reader *json, struct kvr_token_usage *into, bool *aborted);
/* llama.cpp's timings. */
void kvr_usage_take_timings(struct kvr_json_reader *json, struct kvr_token_usage *into);
/* A finish reason, as a word or as SGLang's object: whether the engine gave the request up. */
bool kvr_usage_take_abort(struct kvr_json_reader *json);

/* Finds counts in the end of an answer whose start is gone. */
void kvr_usage_read_tail(struct kvr_token_usage *usage, struct kvr_slice tail);

#endif
