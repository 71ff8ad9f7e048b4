#include "api_field.h"

#include <string.h>

#define BIT(api) (1u << KVR_API_##api)
#define ANY      (~0u)
#define CHATS    (BIT(CHAT) | BIT(MESSAGES) | BIT(RESPONSES))

struct named {
    const char *name;
    uint8_t field;
    uint16_t apis; /* that have it */
};

/* Grouped by the length of the name, so that a look-up compares few of them. */
static const struct named names1[] = {
    {"n", KVR_FIELD_N, (uint16_t)(ANY)},
};
static const struct named names4[] = {
    {"lora", KVR_FIELD_LORA, (uint16_t)(ANY)},
    {"text", KVR_FIELD_PROMPT, (uint16_t)(BIT(GENERATE))},
    {"user", KVR_FIELD_USER, (uint16_t)(ANY)},
};
static const struct named names5[] = {
    {"input", KVR_FIELD_MESSAGES, (uint16_t)(BIT(RESPONSES))},
    {"input", KVR_FIELD_PROMPT, (uint16_t)(BIT(EMBEDDINGS))},
    {"model", KVR_FIELD_MODEL, (uint16_t)(ANY)},
    {"tools", KVR_FIELD_TOOLS, (uint16_t)(CHATS)},
};
static const struct named names6[] = {
    {"inputs", KVR_FIELD_PROMPT, (uint16_t)(BIT(GENERATE))},
    {"prompt", KVR_FIELD_PROMPT, (uint16_t)(BIT(COMPLETIONS) | BIT(GENERATE))},
    {"stream", KVR_FIELD_STREAM, (uint16_t)(ANY)},
    {"system", KVR_FIELD_SYSTEM, (uint16_t)(BIT(MESSAGES))},
};
static const struct named names8[] = {
    {"messages", KVR_FIELD_MESSAGES, (uint16_t)(BIT(CHAT) | BIT(MESSAGES))},
    {"messages", KVR_FIELD_PROMPT, (uint16_t)(BIT(EMBEDDINGS))},
    {"metadata", KVR_FIELD_METADATA, (uint16_t)(ANY)},
    {"priority", KVR_FIELD_PRIORITY, (uint16_t)(ANY)},
};
static const struct named names9[] = {
    {"documents", KVR_FIELD_DOCUMENTS, (uint16_t)(CHATS)},
    {"functions", KVR_FIELD_TOOLS, (uint16_t)(BIT(CHAT))},
    {"input_ids", KVR_FIELD_PROMPT, (uint16_t)(BIT(GENERATE))},
    {"lora_name", KVR_FIELD_LORA, (uint16_t)(ANY)},
    {"lora_path", KVR_FIELD_LORA, (uint16_t)(ANY)},
};
static const struct named names10[] = {
    {"adapter_id", KVR_FIELD_LORA, (uint16_t)(ANY)},
    {"cache_salt", KVR_FIELD_CACHE_SALT, (uint16_t)(ANY)},
    {"max_tokens", KVR_FIELD_MAX_TOKENS, (uint16_t)(ANY)},
    {"parameters", KVR_FIELD_SAMPLING, (uint16_t)(BIT(GENERATE))},
    {"session_id", KVR_FIELD_SESSION_ID, (uint16_t)(ANY)},
};
static const struct named names12[] = {
    {"conversation", KVR_FIELD_CONVERSATION, (uint16_t)(ANY)},
    {"instructions", KVR_FIELD_SYSTEM, (uint16_t)(BIT(RESPONSES))},
};
static const struct named names13[] = {
    {"chat_template", KVR_FIELD_TEMPLATE, (uint16_t)(CHATS)},
};
static const struct named names14[] = {
    {"max_new_tokens", KVR_FIELD_MAX_TOKENS, (uint16_t)(BIT(GENERATE))},
};
static const struct named names15[] = {
    {"conversation_id", KVR_FIELD_CONVERSATION_ID, (uint16_t)(ANY)},
    {"sampling_params", KVR_FIELD_SAMPLING, (uint16_t)(BIT(GENERATE))},
};
static const struct named names16[] = {
    {"prompt_cache_key", KVR_FIELD_PROMPT_CACHE_KEY, (uint16_t)(ANY)},
    {"reasoning_effort", KVR_FIELD_REASONING_EFFORT, (uint16_t)(CHATS)},
};
static const struct named names17[] = {
    {"max_output_tokens", KVR_FIELD_MAX_TOKENS_NEW, (uint16_t)(BIT(RESPONSES))},
};
static const struct named names20[] = {
    {"chat_template_kwargs", KVR_FIELD_TEMPLATE_KWARGS, (uint16_t)(CHATS)},
    {"previous_response_id", KVR_FIELD_PREVIOUS_RESPONSE_ID, (uint16_t)(ANY)},
};
static const struct named names21[] = {
    {"max_completion_tokens", KVR_FIELD_MAX_TOKENS_NEW, (uint16_t)(ANY)},
};

static const struct {
    const struct named *names;
    size_t count;
} by_length[] = {
#define GROUP(names)                                                                               \
    {                                                                                              \
        names, sizeof names / sizeof *names                                                        \
    }
    [1] = GROUP(names1),   [4] = GROUP(names4),   [5] = GROUP(names5),   [6] = GROUP(names6),
    [8] = GROUP(names8),   [9] = GROUP(names9),   [10] = GROUP(names10), [12] = GROUP(names12),
    [13] = GROUP(names13), [14] = GROUP(names14), [15] = GROUP(names15), [16] = GROUP(names16),
    [17] = GROUP(names17), [20] = GROUP(names20), [21] = GROUP(names21),
#undef GROUP
};

enum kvr_api_field kvr_api_field_of(struct kvr_slice key, enum kvr_api api)
{
    if (key.len >= sizeof by_length / sizeof *by_length)
        return KVR_FIELD_IGNORED;
    const struct named *names = by_length[key.len].names;
    for (size_t i = 0; i < by_length[key.len].count; i++)
        if (names[i].apis >> api & 1 && memcmp(names[i].name, key.data, key.len) == 0)
            return names[i].field;
    return KVR_FIELD_IGNORED;
}
