#include "api_field.h"

#include <string.h>

#define BIT(api) (1u << KVR_API_##api)
#define ANY      (~0u)
#define CHATS    (BIT(CHAT) | BIT(MESSAGES) | BIT(RESPONSES))

/* Ascending by length of the name, so that a look-up compares few of them. */
static const struct {
    const char *name;
    uint8_t len;
    uint8_t field;
    uint16_t apis; /* that have it */
} fields[] = {
#define FIELD(name, field, apis)                                                                   \
    {                                                                                              \
        name, sizeof name - 1, field, (uint16_t)(apis)                                             \
    }
    FIELD("n", KVR_FIELD_N, ANY),
    FIELD("lora", KVR_FIELD_LORA, ANY),
    FIELD("text", KVR_FIELD_PROMPT, BIT(GENERATE)),
    FIELD("user", KVR_FIELD_USER, ANY),
    FIELD("input", KVR_FIELD_MESSAGES, BIT(RESPONSES)),
    FIELD("input", KVR_FIELD_PROMPT, BIT(EMBEDDINGS)),
    FIELD("model", KVR_FIELD_MODEL, ANY),
    FIELD("tools", KVR_FIELD_TOOLS, CHATS),
    FIELD("inputs", KVR_FIELD_PROMPT, BIT(GENERATE)),
    FIELD("prompt", KVR_FIELD_PROMPT, BIT(COMPLETIONS) | BIT(GENERATE)),
    FIELD("stream", KVR_FIELD_STREAM, ANY),
    FIELD("system", KVR_FIELD_SYSTEM, BIT(MESSAGES)),
    FIELD("messages", KVR_FIELD_MESSAGES, BIT(CHAT) | BIT(MESSAGES)),
    FIELD("messages", KVR_FIELD_PROMPT, BIT(EMBEDDINGS)),
    FIELD("metadata", KVR_FIELD_METADATA, ANY),
    FIELD("priority", KVR_FIELD_PRIORITY, ANY),
    FIELD("documents", KVR_FIELD_DOCUMENTS, CHATS),
    FIELD("functions", KVR_FIELD_TOOLS, BIT(CHAT)),
    FIELD("input_ids", KVR_FIELD_PROMPT, BIT(GENERATE)),
    FIELD("lora_name", KVR_FIELD_LORA, ANY),
    FIELD("lora_path", KVR_FIELD_LORA, ANY),
    FIELD("adapter_id", KVR_FIELD_LORA, ANY),
    FIELD("cache_salt", KVR_FIELD_CACHE_SALT, ANY),
    FIELD("max_tokens", KVR_FIELD_MAX_TOKENS, ANY),
    FIELD("parameters", KVR_FIELD_SAMPLING, BIT(GENERATE)),
    FIELD("session_id", KVR_FIELD_SESSION_ID, ANY),
    FIELD("conversation", KVR_FIELD_CONVERSATION, ANY),
    FIELD("instructions", KVR_FIELD_SYSTEM, BIT(RESPONSES)),
    FIELD("chat_template", KVR_FIELD_TEMPLATE, CHATS),
    FIELD("max_new_tokens", KVR_FIELD_MAX_TOKENS, BIT(GENERATE)),
    FIELD("conversation_id", KVR_FIELD_CONVERSATION_ID, ANY),
    FIELD("sampling_params", KVR_FIELD_SAMPLING, BIT(GENERATE)),
    FIELD("prompt_cache_key", KVR_FIELD_PROMPT_CACHE_KEY, ANY),
    FIELD("reasoning_effort", KVR_FIELD_REASONING_EFFORT, CHATS),
    FIELD("max_output_tokens", KVR_FIELD_MAX_TOKENS_NEW, BIT(RESPONSES)),
    FIELD("chat_template_kwargs", KVR_FIELD_TEMPLATE_KWARGS, CHATS),
    FIELD("previous_response_id", KVR_FIELD_PREVIOUS_RESPONSE_ID, ANY),
    FIELD("max_completion_tokens", KVR_FIELD_MAX_TOKENS_NEW, ANY),
#undef FIELD
};

enum kvr_api_field kvr_api_field_of(struct kvr_slice key, enum kvr_api api)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields && fields[i].len <= key.len; i++)
        if (fields[i].len == key.len && memcmp(fields[i].name, key.data, key.len) == 0 &&
            (fields[i].apis >> api & 1))
            return fields[i].field;
    return KVR_FIELD_IGNORED;
}
