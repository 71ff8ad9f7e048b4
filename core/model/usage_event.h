/* What one event of a stream, or one whole answer, says about its generation, in any of the shapes
 * that engines use (OpenAI chat, completions and responses, Anthropic messages, SGLang /generate,
 * llama.cpp timings, Groq and DeepSeek extras, NDJSON of Ollama). Pure: a JSON text in, facts out.
 */
#ifndef KVR_USAGE_EVENT_H
#define KVR_USAGE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "json_reader.h"
#include "slice.h"
#include "usage_count.h"

/* What kind of output a piece of content is. */
enum kvr_output {
    KVR_OUTPUT_NONE,
    KVR_OUTPUT_REPLY,     /* text that a client sends back as the assistant's message */
    KVR_OUTPUT_REASONING, /* text that most clients and templates leave out of the next turn */
    KVR_OUTPUT_CALL,      /* part of a tool call, or something else that is no plain text */
};

struct kvr_usage_event {
    struct kvr_token_usage usage;
    enum kvr_output output; /* of the first piece of content; NONE: no content (a role, a finish) */
    struct kvr_json_span key;  /* of that piece: its key ... */
    struct kvr_json_span text; /* ... and its string; raw.data NULL when it is no string */
    uint32_t replies;          /* pieces of kind REPLY */
    bool reasoned;             /* some piece was reasoning */
    bool called;               /* some piece was of kind CALL */
    bool done;                 /* the event ends its stream */
    bool error;                /* the engine reports a failure, whatever the status was */
    bool aborted;              /* finished by abort: the engine gave the request up */
};

/* Reads one JSON text. False when it is malformed: nothing of it should be believed then. */
bool kvr_usage_event_read(struct kvr_usage_event *event, struct kvr_slice text);

#endif
