/* The top-level fields of request bodies that the router reads, by name and API. */
#ifndef KVR_API_FIELD_H
#define KVR_API_FIELD_H

#include "api_request.h"

enum kvr_api_field {
    KVR_FIELD_IGNORED,
    KVR_FIELD_MODEL,
    KVR_FIELD_LORA,
    KVR_FIELD_CACHE_SALT,
    KVR_FIELD_USER,
    KVR_FIELD_STREAM,
    KVR_FIELD_N,
    KVR_FIELD_PRIORITY,
    KVR_FIELD_MAX_TOKENS,
    KVR_FIELD_MAX_TOKENS_NEW, /* the names that win over max_tokens */
    KVR_FIELD_SAMPLING,       /* an object that holds max_new_tokens and n */
    KVR_FIELD_METADATA,
    KVR_FIELD_CONVERSATION,
    KVR_FIELD_CONVERSATION_ID,
    KVR_FIELD_SESSION_ID,
    KVR_FIELD_PROMPT_CACHE_KEY,
    KVR_FIELD_PREVIOUS_RESPONSE_ID,
    KVR_FIELD_TOOLS,
    KVR_FIELD_SYSTEM,
    KVR_FIELD_MESSAGES,
    KVR_FIELD_PROMPT,
    KVR_FIELD_TEMPLATE, /* and three more: arguments of the rendering */
    KVR_FIELD_TEMPLATE_KWARGS,
    KVR_FIELD_REASONING_EFFORT,
    KVR_FIELD_DOCUMENTS,
};

/* KVR_FIELD_IGNORED for a key that this API does not have. */
enum kvr_api_field kvr_api_field_of(struct kvr_slice key, enum kvr_api api);

#endif
