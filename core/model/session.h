/* Which conversation a request belongs to, and whose it is. Clients say it in many places; the
 * first that holds something wins, in the order of enum kvr_session_source:
 *
 *   the operator's own key (a header, else a body field), well-known headers, body fields, the
 *   prompt cache key, the previous response, and at last a fingerprint: the hash of model, salt,
 *   tools, system prompt and the whole first user message, which all turns of a conversation share.
 *
 * A value of blanks is missing; of a longer one KVR_IDENTITY_BYTES_MAX bytes count. Raw values are
 * never kept: a session is a 64-bit hash, scoped by model, LoRA and cache salt, so that one id used
 * with two models is two sessions. What names a user, a key or one single request is no session. */
#ifndef KVR_SESSION_H
#define KVR_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "api_request.h"
#include "header.h"

enum kvr_session_source {
    KVR_SESSION_NONE,
    KVR_SESSION_CONFIGURED,
    KVR_SESSION_X_SESSION_ID,
    KVR_SESSION_X_SESSION_AFFINITY,
    KVR_SESSION_X_CLAUDE_CODE,
    KVR_SESSION_SESSION_ID, /* session-id or session_id */
    KVR_SESSION_X_CONVERSATION_ID,
    KVR_SESSION_X_FLOW_CONVERSATION_ID,
    KVR_SESSION_CONVERSATION_ID,
    KVR_SESSION_X_LITELLM,
    KVR_SESSION_HELICONE,
    KVR_SESSION_X_ANY, /* any other x-*-session-id */
    KVR_SESSION_BODY_CONVERSATION,
    KVR_SESSION_BODY_CONVERSATION_ID,
    KVR_SESSION_BODY_SESSION_ID,
    KVR_SESSION_BODY_METADATA_SESSION_ID,
    KVR_SESSION_BODY_METADATA_USER_ID,
    KVR_SESSION_PROMPT_CACHE_KEY,
    KVR_SESSION_PREVIOUS_RESPONSE_ID,
    KVR_SESSION_FINGERPRINT,
    KVR_SESSION_SOURCES,
};

/* Constant name for rows and metrics, such as "x-session-id" or "body.conversation_id". */
const char *kvr_session_source_name(enum kvr_session_source source);

/* Each names a header; the scan of the body looks for a field of the same name (kvr_api_options).
 * Empty: none. */
struct kvr_session_options {
    struct kvr_slice session_key;
    struct kvr_slice tenant_key;
};

/* Hash of a configured key: of the last header of that name that is not blank, else of the body's
 * field, which is `in_body`. 0: neither is there. */
uint64_t kvr_session_configured(struct kvr_slice name, const struct kvr_header *headers,
                                size_t count, uint64_t in_body);

struct kvr_session {
    uint64_t key;    /* 0: none could be derived */
    uint64_t tenant; /* 0: none configured, or not stated */
    enum kvr_session_source source;
};

/* `options` may be NULL. The slices of `request` must still be valid: call it after the scan of the
 * same request and before the next. */
struct kvr_session kvr_session_derive(const struct kvr_session_options *options,
                                      const struct kvr_header *headers, size_t count,
                                      const struct kvr_api_request *request);

#endif
