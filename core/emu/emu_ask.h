/* What an emulated replica is asked for: the fields of a request body that matter to it, each
 * checked as engines do, and the parts that make the prompt, as they stand in the body. It is read
 * here and not by the router's scan, so that the two check each other.
 *
 *   kvr_emu_ask_read      body -> fields, or the reason of a refusal
 *   kvr_emu_prompt_count  how many prompts it holds
 *   kvr_emu_prompt_write  one of them as tokens and block hashes (emu_prompt.c)
 *
 * Unknown fields are passed over. Of a key that occurs twice the last one counts. */
#ifndef KVR_EMU_ASK_H
#define KVR_EMU_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "api_request.h"
#include "buffer.h"
#include "emu_error.h"
#include "profile.h"
#include "tokens.h"

#define KVR_EMU_NAME_MAX    256 /* bytes of a model's name, with its end */
#define KVR_EMU_CHOICES_MAX 256 /* prompts x n of one request */

enum kvr_emu_field {
    KVR_EMU_MODEL,
    KVR_EMU_STREAM,
    KVR_EMU_STREAM_OPTIONS,
    KVR_EMU_N,
    KVR_EMU_MAX_TOKENS,
    KVR_EMU_MAX_COMPLETION_TOKENS,
    KVR_EMU_MAX_OUTPUT_TOKENS,
    KVR_EMU_MIN_TOKENS,
    KVR_EMU_IGNORE_EOS,
    KVR_EMU_SEED,
    KVR_EMU_CACHE_SALT,
    KVR_EMU_SUFFIX,
    KVR_EMU_SAMPLING_PARAMS,
    KVR_EMU_ENCODING_FORMAT,
    KVR_EMU_PREVIOUS_RESPONSE_ID,
    KVR_EMU_ADD_GENERATION_PROMPT,
    /* the prompt */
    KVR_EMU_MESSAGES,
    KVR_EMU_PROMPT,
    KVR_EMU_INPUT,
    KVR_EMU_SYSTEM,
    KVR_EMU_INSTRUCTIONS,
    KVR_EMU_TOOLS,
    KVR_EMU_TEXT,
    KVR_EMU_INPUT_IDS,
    KVR_EMU_CONTENT,
    KVR_EMU_FIELDS,
};

struct kvr_emu_ask {
    enum kvr_api api; /* KVR_API_OPAQUE: tokenize, of messages or of a prompt */
    bool stream;
    bool include_usage;
    bool continuous_usage;
    bool ignore_eos;
    bool base64;                          /* embeddings */
    bool answer_opens;                    /* the prompt ends with what opens an answer */
    uint32_t n;                           /* outputs a prompt */
    uint32_t min_tokens;                  /* of an output */
    int64_t max_tokens;                   /* -1: not stated */
    uint64_t seed;                        /* 0: not stated */
    char model[KVR_EMU_NAME_MAX];         /* empty: not stated */
    char previous[KVR_EMU_NAME_MAX];      /* previous_response_id; empty: none */
    uint64_t salt;                        /* of cache_salt; 0: none */
    struct kvr_slice raw[KVR_EMU_FIELDS]; /* values as they stand in the body; empty: not given */
};

/* `body` must outlive the ask. False with the reason in `problem`. */
bool kvr_emu_ask_read(struct kvr_emu_ask *ask, enum kvr_api api, struct kvr_slice body,
                      struct kvr_emu_problem *problem);

uint32_t kvr_emu_prompt_count(const struct kvr_emu_ask *ask);
/* Writes prompt `index` into `tokens`, begun afresh with `salt`. `scratch` is any buffer. */
bool kvr_emu_prompt_write(const struct kvr_emu_ask *ask, uint32_t index,
                          const struct kvr_profile *profile, uint64_t salt, bool keep_ids,
                          struct kvr_tokens *tokens, struct kvr_buffer *scratch,
                          struct kvr_emu_problem *problem);

#endif
