/* How each API words an answer: the events of a stream and the body of a whole one.
 *
 *   opened     once, with the first token of any choice     role events, envelopes
 *   token      for each token
 *   finished   for each choice, after its last token
 *   closed     once, after the last choice                  usage, [DONE]
 *   whole      the body when nothing is streamed
 *
 * A shape writes one event at a time into the sink's buffer and hands it over; it neither frames
 * nor sends. Events of vLLM are byte for byte in its order of keys. */
#ifndef KVR_EMU_SHAPE_H
#define KVR_EMU_SHAPE_H

#include "emu_answer.h"
#include "json_writer.h"

struct kvr_emu_sink {
    struct kvr_buffer text; /* of the event under way */
    uint32_t tokens;        /* that it carries */
    void *context;
    void (*on_event)(void *context, struct kvr_slice event, uint32_t tokens);
};

struct kvr_emu_shape {
    void (*opened)(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink);
    void (*token)(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                  struct kvr_slice text, struct kvr_emu_sink *sink);
    void (*finished)(struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                     struct kvr_emu_sink *sink);
    void (*closed)(struct kvr_emu_answer *answer, struct kvr_emu_sink *sink);
    void (*whole)(struct kvr_emu_answer *answer, struct kvr_buffer *out);
};

/* NULL for an API that is not generation. */
const struct kvr_emu_shape *kvr_emu_shape_of(enum kvr_api api);
/* What an engine sends when it fails in the middle of a stream. */
void kvr_emu_shape_failed(const struct kvr_emu_answer *answer,
                          const struct kvr_emu_problem *problem, struct kvr_emu_sink *sink);

extern const struct kvr_emu_shape kvr_emu_shape_chat;       /* and completions */
extern const struct kvr_emu_shape kvr_emu_shape_responses;  /* /v1/responses */
extern const struct kvr_emu_shape kvr_emu_shape_messages;   /* /v1/messages */
extern const struct kvr_emu_shape kvr_emu_shape_generate;   /* SGLang's own */
extern const struct kvr_emu_shape kvr_emu_shape_embeddings; /* never streamed */

/* ---- for the shapes ---- */

void kvr_emu_emit(struct kvr_emu_sink *sink);
void kvr_emu_done(struct kvr_emu_sink *sink); /* data: [DONE] */
/* {"prompt_tokens", ...} as OpenAI's APIs have it. `whole`: nulls are written, as vLLM does. */
void kvr_emu_put_usage(struct kvr_json_writer *json, const struct kvr_emu_answer *answer,
                       const char *key, const struct kvr_emu_usage *usage, bool whole);
/* Whether cached tokens are told at all. */
bool kvr_emu_tells_cached(const struct kvr_emu_answer *answer, uint64_t cached_tokens);
/* llama.cpp's timings, in milliseconds of engine time. */
void kvr_emu_put_timings(struct kvr_json_writer *json, const struct kvr_emu_answer *answer);

#endif
