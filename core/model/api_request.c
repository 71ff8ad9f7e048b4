/* The pass over the top level of a body: small fields are read here, the prompt by its own files.
 */
#include "api_request.h"

#include <math.h>
#include <string.h>

#include "api_field.h"
#include "api_scan.h"
#include "json_number.h"

static const struct {
    struct kvr_slice path;
    const char *name;
} apis[] = {
#define API(path, name)                                                                            \
    {                                                                                              \
        {path, sizeof path - 1}, name                                                              \
    }
    [KVR_API_OPAQUE] = API("", "opaque"),
    [KVR_API_CHAT] = API("/v1/chat/completions", "chat"),
    [KVR_API_COMPLETIONS] = API("/v1/completions", "completions"),
    [KVR_API_RESPONSES] = API("/v1/responses", "responses"),
    [KVR_API_MESSAGES] = API("/v1/messages", "messages"),
    [KVR_API_EMBEDDINGS] = API("/v1/embeddings", "embeddings"),
    [KVR_API_GENERATE] = API("/generate", "generate"),
#undef API
};

enum kvr_api kvr_api_of(struct kvr_slice path)
{
    const char *query = path.len ? memchr(path.data, '?', path.len) : NULL;
    if (query)
        path.len = (size_t)(query - path.data);
    for (enum kvr_api api = KVR_API_CHAT; api <= KVR_API_GENERATE; api++)
        if (kvr_slice_equal(path, apis[api].path))
            return api;
    return KVR_API_OPAQUE;
}

const char *kvr_api_name(enum kvr_api api)
{
    KVR_CHECK(api <= KVR_API_GENERATE);
    return apis[api].name;
}

/* A string that must outlive the scan of its value: in the body, or decoded in the scratch. */
static struct kvr_slice take_slice(struct kvr_api_scan *scan)
{
    struct kvr_json_span span;
    if (!kvr_json_read_string(&scan->json, &span)) {
        kvr_json_skip(&scan->json, NULL);
        return (struct kvr_slice){0};
    }
    if (!span.escaped)
        return span.raw;
    kvr_api_room(scan);
    struct kvr_slice text =
        kvr_slice_make(scan->out, kvr_json_string_unescape(span.raw, scan->out));
    scan->out += text.len;
    return text;
}

/* A name given as a string, or as anything else in canonical JSON. */
static struct kvr_slice take_name(struct kvr_api_scan *scan)
{
    enum kvr_json_kind kind = kvr_json_peek(&scan->json);
    if (kind == KVR_JSON_STRING || kind == KVR_JSON_NULL)
        return take_slice(scan);
    char *start = scan->out;
    kvr_api_room(scan);
    kvr_json_compact(&scan->json, &scan->out);
    return kvr_slice_make(start, (size_t)(scan->out - start));
}

/* A number's value, or `otherwise`. */
static double take_number(struct kvr_api_scan *scan, double otherwise)
{
    struct kvr_slice number;
    if (kvr_json_read_number(&scan->json, &number))
        return kvr_json_number_value(number);
    kvr_json_skip(&scan->json, NULL);
    return otherwise;
}

/* A limit on tokens; -1 unless it is stated and sensible. */
static int64_t take_limit(struct kvr_api_scan *scan)
{
    int64_t count;
    if (kvr_json_read_count(&scan->json, &count))
        return count;
    double value = take_number(scan, -1);
    return value >= 0 ? (int64_t)fmin(value, 1e15) : -1;
}

/* Hash of a value that changes how the prompt is rendered. */
static uint64_t take_argument(struct kvr_api_scan *scan)
{
    char *start = scan->out;
    kvr_api_room(scan);
    kvr_json_compact(&scan->json, &scan->out);
    struct kvr_slice text = kvr_slice_make(start, (size_t)(scan->out - start));
    scan->out = start; /* to be overwritten */
    if (kvr_slice_is(text, "null") || kvr_slice_is(text, "{}") || kvr_slice_is(text, "[]"))
        return 0;
    return kvr_prompt_hash(text, 0) | 1;
}

static void take_n(struct kvr_api_scan *scan)
{
    scan->request->n = (uint32_t)fmin(fmax(take_number(scan, 1), 1), KVR_API_N_MAX);
}

/* The object in which /generate keeps its limits. */
static void take_sampling(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    struct kvr_json_span key;
    char room[KVR_API_KEY_ROOM];
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        enum kvr_api_field field = kvr_api_field_of(kvr_api_key(key, room), scan->request->api);
        if (field == KVR_FIELD_MAX_TOKENS)
            scan->max_tokens[0] = take_limit(scan);
        else if (field == KVR_FIELD_N)
            take_n(scan);
        else
            kvr_json_skip(json, NULL);
    }
}

/* Takes the value of a top-level field. */
/* A field a case: longer than functions are here, and read as the table that it is. */
static void take_field(struct kvr_api_scan *scan, enum kvr_api_field field)
{
    struct kvr_api_request *request = scan->request;
    uint64_t *identities = request->identities;
    switch (field) {
    case KVR_FIELD_IGNORED:
        kvr_json_skip(&scan->json, NULL);
        break;
    case KVR_FIELD_MODEL:
        request->model = take_slice(scan);
        break;
    case KVR_FIELD_LORA:
        request->lora = take_name(scan);
        break;
    case KVR_FIELD_CACHE_SALT:
        request->cache_salt = take_slice(scan);
        break;
    case KVR_FIELD_USER:
        request->user = take_slice(scan);
        break;
    case KVR_FIELD_STREAM:
        request->stream = kvr_json_peek(&scan->json) == KVR_JSON_TRUE;
        kvr_json_skip(&scan->json, NULL);
        break;
    case KVR_FIELD_N:
        take_n(scan);
        break;
    case KVR_FIELD_PRIORITY:
        request->priority = take_number(scan, 0);
        break;
    case KVR_FIELD_MAX_TOKENS:
        scan->max_tokens[0] = take_limit(scan);
        break;
    case KVR_FIELD_MAX_TOKENS_NEW:
        scan->max_tokens[1] = take_limit(scan);
        break;
    case KVR_FIELD_SAMPLING:
        take_sampling(scan);
        break;
    case KVR_FIELD_METADATA:
        kvr_api_take_metadata(scan);
        break;
    case KVR_FIELD_CONVERSATION:
        identities[KVR_IDENTITY_CONVERSATION] = kvr_api_take_conversation(scan);
        break;
    case KVR_FIELD_CONVERSATION_ID:
        identities[KVR_IDENTITY_CONVERSATION_ID] = kvr_api_take_identity(scan);
        break;
    case KVR_FIELD_SESSION_ID:
        identities[KVR_IDENTITY_SESSION_ID] = kvr_api_take_identity(scan);
        break;
    case KVR_FIELD_PROMPT_CACHE_KEY:
        identities[KVR_IDENTITY_PROMPT_CACHE_KEY] = kvr_api_take_identity(scan);
        break;
    case KVR_FIELD_PREVIOUS_RESPONSE_ID:
        identities[KVR_IDENTITY_PREVIOUS_RESPONSE_ID] = kvr_api_take_identity(scan);
        break;
    case KVR_FIELD_TOOLS:
        kvr_api_take_tools(scan);
        break;
    case KVR_FIELD_SYSTEM:
        kvr_api_take_system(scan);
        break;
    case KVR_FIELD_MESSAGES:
        kvr_api_take_messages(scan);
        break;
    case KVR_FIELD_PROMPT:
        if (request->api == KVR_API_EMBEDDINGS)
            kvr_api_take_load(scan);
        else
            kvr_api_take_prompt(scan);
        break;
    case KVR_FIELD_TEMPLATE:
    case KVR_FIELD_TEMPLATE_KWARGS:
    case KVR_FIELD_REASONING_EFFORT:
    case KVR_FIELD_DOCUMENTS:
        scan->arguments[field - KVR_FIELD_TEMPLATE] = take_argument(scan);
        break;
    }
}

static void take_body(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    const struct kvr_api_options *options = scan->options;
    bool configured =
        options->session_field.len || options->tenant_field.len || options->routing_field.len;
    struct kvr_json_span key;
    char room[KVR_API_KEY_ROOM];
    if (!kvr_json_enter_object(json)) {
        kvr_json_fail(json, KVR_E_INVALID, "the body is no JSON object");
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        struct kvr_slice name = kvr_api_key(key, room);
        kvr_json_peek(json);
        const char *value = json->at;
        take_field(scan, kvr_api_field_of(name, scan->request->api));
        if (configured)
            kvr_api_note_configured(scan, (struct kvr_slice){0}, name,
                                    kvr_slice_make(value, (size_t)(json->at - value)));
    }
    kvr_json_finish(json);
}

/* The scratch: twice the body, and not kept when one large body has blown it up. */
static void prepare(struct kvr_api_scan *scan, size_t body_len)
{
    struct kvr_prompt *prompt = scan->prompt;
    size_t need = 2 * body_len + KVR_API_SLACK;
    if (need <= KVR_PROMPT_KEEP_BYTES)
        kvr_prompt_slim(prompt);
    if (prompt->text.capacity < need)
        kvr_buffer_deinit(&prompt->text);
    prompt->text.len = 0;
    scan->out = kvr_buffer_reserve(&prompt->text, need);
    scan->limit = scan->out + prompt->text.capacity;
}

/* Puts the parts of the canonical prompt in their order and makes the chain. */
static void hash_prompt(struct kvr_api_scan *scan)
{
    struct kvr_api_request *request = scan->request;
    struct kvr_prompt *prompt = scan->prompt;
    bool responses = request->api == KVR_API_RESPONSES;
    request->scope = kvr_prompt_scope(request->model, request->lora, request->cache_salt);
    uint64_t seed = request->scope;
    for (size_t i = 0; i < KVR_API_ARGUMENTS; i++)
        if (scan->arguments[i])
            seed = kvr_prompt_hash(
                kvr_slice_make((const char *)scan->arguments, sizeof scan->arguments),
                request->scope);
    kvr_prompt_begin(prompt, seed);
    if (request->prompts == 0 || request->api == KVR_API_EMBEDDINGS)
        return;
    request->canonical[0] = responses ? scan->system : scan->tools;
    request->canonical[1] = responses ? scan->tools : scan->system;
    request->canonical[2] = scan->body;
    for (size_t i = 0; i < 2; i++)
        kvr_prompt_add(prompt, request->canonical[i].data, request->canonical[i].len);
    size_t opening = scan->opening ? (size_t)(scan->opening - scan->body.data) : 0;
    kvr_prompt_add(prompt, scan->body.data, opening);
    if (opening) {
        request->opening_bytes = (size_t)prompt->bytes;
        request->opening = kvr_prompt_so_far(prompt);
    }
    kvr_prompt_add(prompt, scan->body.data + opening, scan->body.len - opening);
    request->prompt_bytes = prompt->bytes - scan->media_bytes;
    if (request->identities[KVR_IDENTITY_PREVIOUS_RESPONSE_ID])
        request->turn = 0; /* the turns before this one are on a replica, not here */
}

int kvr_api_request_scan(struct kvr_api_request *request, enum kvr_api api, struct kvr_slice body,
                         const struct kvr_api_options *options, struct kvr_prompt *prompt,
                         struct kvr_error *error)
{
    struct kvr_api_options filled = options ? *options : (struct kvr_api_options){0};
    if (filled.media_tokens == 0)
        filled.media_tokens = KVR_MEDIA_TOKENS;
    *request = (struct kvr_api_request){.api = api, .n = 1, .max_tokens = -1, .prompt_tokens = -1};
    kvr_prompt_begin(prompt, 0);
    if (api == KVR_API_OPAQUE)
        return KVR_OK;
    struct kvr_api_scan scan = {
        .options = &filled, .request = request, .prompt = prompt, .max_tokens = {-1, -1}};
    prepare(&scan, body.len);
    kvr_json_reader_init(&scan.json, body);
    take_body(&scan);
    KVR_CHECK(scan.out <= scan.limit);
    prompt->text.len = (size_t)(scan.out - prompt->text.data);
    if (scan.json.code != KVR_OK)
        return kvr_error_set(error, scan.json.code, "byte %zu: %s", kvr_json_offset(&scan.json),
                             scan.json.reason);
    request->max_tokens = scan.max_tokens[scan.max_tokens[1] >= 0];
    hash_prompt(&scan);
    return KVR_OK;
}
