#include "session.h"

#include <string.h>

static const char *const source_names[KVR_SESSION_SOURCES] = {
    [KVR_SESSION_NONE] = "none",
    [KVR_SESSION_CONFIGURED] = "configured",
    [KVR_SESSION_X_SESSION_ID] = "x-session-id",
    [KVR_SESSION_X_SESSION_AFFINITY] = "x-session-affinity",
    [KVR_SESSION_X_CLAUDE_CODE] = "x-claude-code-session-id",
    [KVR_SESSION_SESSION_ID] = "session-id",
    [KVR_SESSION_X_CONVERSATION_ID] = "x-conversation-id",
    [KVR_SESSION_X_FLOW_CONVERSATION_ID] = "x-flow-conversation-id",
    [KVR_SESSION_CONVERSATION_ID] = "conversation-id",
    [KVR_SESSION_X_LITELLM] = "x-litellm-session-id",
    [KVR_SESSION_HELICONE] = "helicone-session-id",
    [KVR_SESSION_X_ANY] = "x-*-session-id",
    [KVR_SESSION_BODY_CONVERSATION] = "body.conversation",
    [KVR_SESSION_BODY_CONVERSATION_ID] = "body.conversation_id",
    [KVR_SESSION_BODY_SESSION_ID] = "body.session_id",
    [KVR_SESSION_BODY_METADATA_SESSION_ID] = "body.metadata.session_id",
    [KVR_SESSION_BODY_METADATA_USER_ID] = "body.metadata.user_id",
    [KVR_SESSION_PROMPT_CACHE_KEY] = "prompt_cache_key",
    [KVR_SESSION_PREVIOUS_RESPONSE_ID] = "previous_response_id",
    [KVR_SESSION_FINGERPRINT] = "fingerprint",
};

const char *kvr_session_source_name(enum kvr_session_source source)
{
    KVR_CHECK(source < KVR_SESSION_SOURCES);
    return source_names[source];
}

static bool ends_with(struct kvr_slice text, const char *end)
{
    size_t len = strlen(end);
    return text.len >= len &&
           kvr_slice_is_nocase(kvr_slice_make(text.data + text.len - len, len), end);
}

/* What a header of that name is to us; KVR_SESSION_NONE for most. All names we look for start with
 * one of four letters and end in "id" or "affinity": the two ends tell the others at a glance. */
static enum kvr_session_source source_of(struct kvr_slice name)
{
    if (name.len < sizeof "session-id" - 1)
        return KVR_SESSION_NONE;
    int first = name.data[0] | 0x20, last = name.data[name.len - 1] | 0x20;
    if ((last != 'd' && last != 'y') ||
        (first != 'x' && first != 's' && first != 'c' && first != 'h'))
        return KVR_SESSION_NONE;
    for (enum kvr_session_source source = KVR_SESSION_X_SESSION_ID; source < KVR_SESSION_X_ANY;
         source++)
        if (kvr_slice_is_nocase(name, source_names[source]))
            return source;
    if (kvr_slice_is_nocase(name, "session_id"))
        return KVR_SESSION_SESSION_ID;
    if (first == 'x' && name.data[1] == '-' && ends_with(name, "-session-id"))
        return KVR_SESSION_X_ANY;
    return KVR_SESSION_NONE;
}

/* Hash of the last non-empty header of that name. */
static uint64_t header_identity(const struct kvr_header *headers, size_t count,
                                struct kvr_slice name)
{
    uint64_t identity = 0;
    for (size_t i = 0; i < count; i++) {
        const struct kvr_header *header = &headers[i];
        if (header->name.len != name.len ||
            strncasecmp(header->name.data, name.data, name.len) != 0)
            continue;
        uint64_t hash = kvr_identity_hash(header->value);
        identity = hash ? hash : identity;
    }
    return identity;
}

uint64_t kvr_session_configured(struct kvr_slice name, const struct kvr_header *headers,
                                size_t count, uint64_t in_body)
{
    uint64_t identity = name.len ? header_identity(headers, count, name) : 0;
    return identity ? identity : in_body;
}

/* Within the request's model, LoRA and salt. */
static uint64_t scoped(uint64_t identity, const struct kvr_api_request *request)
{
    uint64_t key =
        kvr_prompt_hash(kvr_slice_make((const char *)&identity, sizeof identity), request->scope);
    return key ? key : 1;
}

/* The sources of a body, the first that is there wins. */
static const struct {
    enum kvr_session_source source;
    enum kvr_identity identity;
} in_body[] = {
    {KVR_SESSION_BODY_CONVERSATION, KVR_IDENTITY_CONVERSATION},
    {KVR_SESSION_BODY_CONVERSATION_ID, KVR_IDENTITY_CONVERSATION_ID},
    {KVR_SESSION_BODY_SESSION_ID, KVR_IDENTITY_SESSION_ID},
    {KVR_SESSION_BODY_METADATA_SESSION_ID, KVR_IDENTITY_METADATA_SESSION_ID},
    {KVR_SESSION_BODY_METADATA_USER_ID, KVR_IDENTITY_METADATA_USER_ID},
    {KVR_SESSION_PROMPT_CACHE_KEY, KVR_IDENTITY_PROMPT_CACHE_KEY},
    {KVR_SESSION_PREVIOUS_RESPONSE_ID, KVR_IDENTITY_PREVIOUS_RESPONSE_ID},
};

/* The source that ranks first of those that are there, and its identity; 0: none is. */
static uint64_t find_source(const struct kvr_session_options *options,
                            const struct kvr_header *headers, size_t count,
                            const struct kvr_api_request *request, enum kvr_session_source *found)
{
    const uint64_t *body = request->identities;
    *found = KVR_SESSION_CONFIGURED;
    uint64_t identity = kvr_session_configured(options->session_key, headers, count,
                                               body[KVR_IDENTITY_SESSION_FIELD]);
    if (identity)
        return identity;
    *found = KVR_SESSION_SOURCES;
    for (size_t i = 0; i < count; i++) {
        enum kvr_session_source source = source_of(headers[i].name);
        uint64_t hash = source == KVR_SESSION_NONE ? 0 : kvr_identity_hash(headers[i].value);
        if (hash && source <= *found) { /* of one name, the last */
            *found = source;
            identity = hash;
        }
    }
    for (size_t i = 0; identity == 0 && i < sizeof in_body / sizeof *in_body; i++) {
        *found = in_body[i].source;
        identity = body[in_body[i].identity];
    }
    if (identity)
        return identity;
    *found = KVR_SESSION_FINGERPRINT;
    return request->opening;
}

struct kvr_session kvr_session_derive(const struct kvr_session_options *options,
                                      const struct kvr_header *headers, size_t count,
                                      const struct kvr_api_request *request)
{
    static const struct kvr_session_options none;
    struct kvr_session session = {.source = KVR_SESSION_NONE};
    if (!options)
        options = &none;
    session.tenant = kvr_session_configured(options->tenant_key, headers, count,
                                            request->identities[KVR_IDENTITY_TENANT_FIELD]);
    enum kvr_session_source source;
    uint64_t identity = find_source(options, headers, count, request, &source);
    if (identity) {
        session.key = scoped(identity, request);
        session.source = source;
    }
    return session;
}
