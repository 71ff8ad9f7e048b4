/* What a router needs to know of a request body, found in one pass over its JSON: no tree, no copy
 * of the body, no allocation once the scratch of `struct kvr_prompt` has grown.
 *
 * The body itself is never changed. The prompt is brought to canonical bytes, so that bodies that
 * an engine renders to the same tokens get the same chain, and the chain is left in `struct
 * kvr_prompt`:
 *
 *   chat, messages   tools | system | messages        (whatever the order of the keys)
 *   responses        instructions | tools | input
 *   completions      prompt
 *   generate         text, or input_ids
 *   embeddings       nothing: they go by load and leave no belief
 *
 *   message   01 role [05 name] [02 content] [08 reasoning] [06 tool calls] [07 call id] 03
 *   content   text of all parts joined, so that a string and a list of one text part are alike
 *   image     04 and 16 bytes of identity (XXH3-128 of the URL or of the base64 text); its length
 * in the body is not text, and counts as `media_tokens` instead tools     JSON without blanks,
 * escapes decoded, order as sent, without cache_control marks token ids four bytes each, little
 * endian: 16 ids a block of 64 bytes, and an exact length
 *
 * Rules that had to be chosen:
 *   - Of a key that occurs twice the last one counts, for everything, also when one is written with
 *     escapes. Inside content parts and tools everything is taken as sent.
 *   - A byte-order mark and blanks around the object are accepted, and forwarded as they are.
 *   - Half a surrogate pair becomes U+FFFD.
 *   - Of a batch of prompts the chain is that of the first; the others count as load
 *     (`prompts`, `other_bytes`, `other_tokens`), and outputs are n x prompts.
 *   - A value of an unexpected type is passed over: judging it is the engine's business. Text that
 * is no JSON, or no object, is an error, with reason and byte offset.
 *   - `max_completion_tokens` and `max_output_tokens` win over `max_tokens`; null, negative and
 *     absent mean not stated. */
#ifndef KVR_API_REQUEST_H
#define KVR_API_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "prompt.h"
#include "slice.h"

enum kvr_api {
    KVR_API_OPAQUE, /* not routed by its body */
    KVR_API_CHAT,
    KVR_API_COMPLETIONS,
    KVR_API_RESPONSES,
    KVR_API_MESSAGES,
    KVR_API_EMBEDDINGS,
    KVR_API_GENERATE,
};

/* The API behind a request target; its query does not matter. */
enum kvr_api kvr_api_of(struct kvr_slice path);
const char *kvr_api_name(enum kvr_api api);

/* Where in a body something may stand that names a conversation or its owner. */
enum kvr_identity {
    KVR_IDENTITY_SESSION_FIELD, /* the configured field */
    KVR_IDENTITY_TENANT_FIELD,  /* the configured field */
    KVR_IDENTITY_ROUTING_FIELD, /* the configured field */
    KVR_IDENTITY_CONVERSATION,  /* a string, or its .id */
    KVR_IDENTITY_CONVERSATION_ID,
    KVR_IDENTITY_SESSION_ID,
    KVR_IDENTITY_METADATA_SESSION_ID,
    KVR_IDENTITY_METADATA_USER_ID, /* the session inside it, in either of its two known shapes */
    KVR_IDENTITY_PROMPT_CACHE_KEY,
    KVR_IDENTITY_PREVIOUS_RESPONSE_ID,
    KVR_IDENTITY_COUNT,
};

#define KVR_IDENTITY_BYTES_MAX 255  /* of a longer value only so many bytes count */
#define KVR_MEDIA_TOKENS       1000 /* guess for an image, a video or a piece of audio */
#define KVR_API_N_MAX          1024 /* a larger `n` counts as this */

struct kvr_api_options {
    struct kvr_slice session_field; /* a top-level field, or metadata.NAME; empty: none */
    struct kvr_slice tenant_field;  /* the same */
    struct kvr_slice routing_field; /* the same */
    uint32_t media_tokens;          /* 0: KVR_MEDIA_TOKENS */
};

/* Slices point into the body or into the scratch of the prompt: valid until the next scan with it.
 */
struct kvr_api_request {
    enum kvr_api api;
    bool stream;
    uint32_t n;       /* outputs asked for a prompt; 1 when not stated */
    uint32_t prompts; /* prompts in the batch; 0 when there is none */
    struct kvr_slice model, lora, cache_salt, user;
    uint64_t identities[KVR_IDENTITY_COUNT]; /* hashes of values; 0: missing or empty */
    uint64_t scope;                          /* kvr_prompt_scope of the three names above */
    double priority;                         /* 0 when not stated */
    int64_t max_tokens;                      /* -1: not stated */
    uint32_t messages;                       /* messages, or items of an input list */
    uint32_t turn;         /* user messages that are more than tool results; 0: unknown */
    uint32_t media;        /* images, videos, pieces of audio */
    uint64_t extra_tokens; /* guess for them */
    uint64_t prompt_bytes; /* canonical text bytes of the first prompt, without media */
    int64_t prompt_tokens; /* exact when the prompt is token ids; -1: estimate from the bytes */
    uint64_t other_bytes;  /* text of the other prompts of a batch, as it stands in the body */
    uint64_t other_tokens; /* token ids of the other prompts of a batch */
    struct kvr_slice canonical[3]; /* the canonical prompt, in the order it was hashed */
    size_t opening_bytes; /* leading bytes of it, up to the end of the first user message; 0 none */
    uint64_t opening;     /* their hash, by way of the chain; 0 none */
};

/* Reads a body, complete and not compressed, and leaves its chain in `prompt`. Returns 0, or
 * KVR_E_INVALID, KVR_E_TRUNCATED or KVR_E_LIMIT for a body that is no JSON object; `error` (may be
 * NULL) then says why and where. An opaque API reads nothing. `options` may be NULL. */
KVR_MUST_USE int kvr_api_request_scan(struct kvr_api_request *request, enum kvr_api api,
                                      struct kvr_slice body, const struct kvr_api_options *options,
                                      struct kvr_prompt *prompt, struct kvr_error *error);

/* Hash of a value that names a conversation or its owner, without outer blanks and of no more than
 * KVR_IDENTITY_BYTES_MAX bytes; 0 for an empty one, which is as good as missing. */
uint64_t kvr_identity_hash(struct kvr_slice value);

#endif
