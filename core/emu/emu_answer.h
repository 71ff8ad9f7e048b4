/* What an emulated replica has to say to one request, as plain data: who asked for what, and how
 * far each of its outputs has come. No sockets and no engine: the text of an answer is a function
 * of this (emu_shape.h). */
#ifndef KVR_EMU_ANSWER_H
#define KVR_EMU_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "api_request.h"
#include "buffer.h"
#include "emu_ask.h"
#include "emu_error.h"
#include "emu_text.h"
#include "engine.h"

#define KVR_EMU_ID_MAX 320 /* bytes of an answer's id, with its end */

/* When prompt_tokens_details are part of usage. Off is vLLM's default; on leaves them out when
 * nothing was cached, so that "absent" has two meanings; zero always tells. */
enum kvr_emu_details { KVR_EMU_DETAILS_OFF, KVR_EMU_DETAILS_ON, KVR_EMU_DETAILS_ZERO };

struct kvr_emu_choice {
    uint32_t index;
    uint64_t seed;          /* of its text */
    uint32_t prompt_tokens; /* of its prompt */
    uint32_t cached_tokens;
    uint32_t output_tokens;        /* how many it will have */
    uint32_t max_tokens;           /* how many it may have */
    uint32_t siblings;             /* outputs of its prompt: n */
    uint32_t tokens;               /* so far */
    size_t bytes;                  /* of text so far */
    enum kvr_finish_reason reason; /* once finished */
    bool started;
    bool finished;
    uint64_t arrived_ns; /* engine time; what follows is 0 before it has happened */
    uint64_t admitted_ns;
    uint64_t first_token_ns;
    uint64_t last_token_ns;
};

/* What each token needs comes first, up to created_s. */
struct kvr_emu_answer {
    enum kvr_api api;
    enum kvr_emu_flavour flavour;
    enum kvr_emu_details details;
    enum kvr_emu_alphabet alphabet;
    bool stream;
    bool include_usage;
    bool continuous_usage;
    bool base64; /* embeddings */
    bool opened; /* the first events are written */
    uint32_t choices_len;
    struct kvr_emu_choice *choices; /* owned; prompt by prompt, n each */
    struct kvr_buffer head;         /* owned; of every chunk, before its choices */
    struct kvr_buffer tail;         /* owned; after them */
    struct kvr_buffer token;        /* owned; the event of a token without its text */
    size_t token_text_at;           /* where in it the text goes */
    uint64_t created_s;             /* wall clock */
    uint32_t choices_done;
    uint32_t prompts;                  /* choices of one prompt are neighbours */
    uint32_t embedding_size;           /* numbers in a vector */
    uint64_t events;                   /* of a /v1/responses stream, so far */
    char request_id[KVR_EMU_NAME_MAX]; /* the client's, or one made here */
    char id[KVR_EMU_ID_MAX];           /* the same with a prefix, such as chatcmpl- */
    char model[KVR_EMU_NAME_MAX];      /* as the request named it */
    char previous[KVR_EMU_NAME_MAX];
};

/* Sums over its outputs; a prompt with several counts once. */
struct kvr_emu_usage {
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t completion_tokens;
};

struct kvr_emu_usage kvr_emu_answer_usage(const struct kvr_emu_answer *answer);
/* All of a choice's text so far. */
void kvr_emu_choice_text(const struct kvr_emu_answer *answer, const struct kvr_emu_choice *choice,
                         struct kvr_buffer *out);
/* "stop", "length", ...; as OpenAI's APIs say it. */
const char *kvr_emu_finish_name(enum kvr_finish_reason reason);
void kvr_emu_answer_deinit(struct kvr_emu_answer *answer);

#endif
