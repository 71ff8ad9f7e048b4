/* What in a body names a conversation or its owner. Only hashes are kept. */
#include <string.h>

#include "api_scan.h"

struct kvr_slice kvr_api_key(struct kvr_json_span key, char room[KVR_API_KEY_ROOM])
{
    if (!key.escaped)
        return key.raw;
    if (key.raw.len > KVR_API_KEY_ROOM - KVR_JSON_SLACK)
        return (struct kvr_slice){0};
    return kvr_slice_make(room, kvr_json_string_unescape(key.raw, room));
}

uint64_t kvr_identity_hash(struct kvr_slice value)
{
    value = kvr_slice_trim(value);
    if (value.len == 0)
        return 0;
    if (value.len > KVR_IDENTITY_BYTES_MAX)
        value.len = KVR_IDENTITY_BYTES_MAX;
    uint64_t hash = kvr_prompt_hash(value, 0);
    return hash ? hash : 1;
}

/* Hash of a value that names a conversation; its raw text is kept nowhere. */
static uint64_t identity_of(struct kvr_json_span span)
{
    char room[KVR_API_KEY_ROOM];
    if (!span.escaped)
        return kvr_identity_hash(span.raw);
    if (span.raw.len > sizeof room - KVR_JSON_SLACK)
        span.raw.len = sizeof room - KVR_JSON_SLACK;
    return kvr_identity_hash(kvr_slice_make(room, kvr_json_string_unescape(span.raw, room)));
}

/* The same of a value as it stands in the body: a string or a number. */
static uint64_t identity_of_raw(struct kvr_slice raw)
{
    if (raw.len >= 2 && raw.data[0] == '"') {
        struct kvr_json_span span = {kvr_slice_make(raw.data + 1, raw.len - 2), false};
        span.escaped = span.raw.len && memchr(span.raw.data, '\\', span.raw.len);
        return identity_of(span);
    }
    bool number = raw.len && (raw.data[0] == '-' || (raw.data[0] >= '0' && raw.data[0] <= '9'));
    return number ? kvr_identity_hash(raw) : 0;
}

uint64_t kvr_api_take_identity(struct kvr_api_scan *scan)
{
    struct kvr_slice raw;
    return kvr_json_skip(&scan->json, &raw) ? identity_of_raw(raw) : 0;
}

/* An identity that may be wrapped in an object as its `id`. */
uint64_t kvr_api_take_conversation(struct kvr_api_scan *scan)
{
    struct kvr_json_span key;
    char room[KVR_API_KEY_ROOM];
    uint64_t identity = 0;
    if (!kvr_json_enter_object(&scan->json))
        return kvr_api_take_identity(scan);
    while (kvr_json_next_key(&scan->json, &key)) {
        if (kvr_slice_is(kvr_api_key(key, room), "id"))
            identity = kvr_api_take_identity(scan);
        else
            kvr_json_skip(&scan->json, NULL);
    }
    return identity;
}

/* A user id that holds a session: an object written as a string, with session_id in it, or words
 * joined by underscores that end in session_ID. */
static uint64_t take_user_session(struct kvr_api_scan *scan)
{
    static const char mark[] = "_session_";
    struct kvr_json_span span, key;
    if (!kvr_json_read_string(&scan->json, &span)) {
        kvr_json_skip(&scan->json, NULL);
        return 0;
    }
    struct kvr_slice text = span.raw;
    if (span.escaped) /* in the scratch, to be overwritten */
        text = kvr_slice_make(scan->out, kvr_json_string_unescape(span.raw, scan->out));
    struct kvr_json_reader inner;
    uint64_t identity = 0;
    kvr_json_reader_init(&inner, text);
    if (text.len && text.data[0] == '{' && kvr_json_enter_object(&inner)) {
        while (kvr_json_next_key(&inner, &key)) {
            struct kvr_slice raw = {0};
            kvr_json_skip(&inner, &raw);
            if (kvr_slice_is(key.raw, "session_id"))
                identity = identity_of_raw(raw);
        }
        return kvr_json_finish(&inner) ? identity : 0;
    }
    for (size_t at = text.len; at-- > 0;)
        if (text.len - at > sizeof mark - 1 && memcmp(text.data + at, mark, sizeof mark - 1) == 0)
            return kvr_identity_hash(
                kvr_slice_make(text.data + at + sizeof mark - 1, text.len - at - sizeof mark + 1));
    return 0;
}

/* Notes the value of a configured field; `prefix` is where the key stands ("", "metadata."). */
void kvr_api_note_configured(struct kvr_api_scan *scan, struct kvr_slice prefix,
                             struct kvr_slice key, struct kvr_slice raw)
{
    const struct kvr_api_options *options = scan->options;
    const struct kvr_slice names[] = {options->session_field, options->tenant_field,
                                      options->routing_field};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct kvr_slice name = names[i];
        if (name.len == 0 || name.len != prefix.len + key.len)
            continue;
        if (!kvr_slice_equal(kvr_slice_make(name.data, prefix.len), prefix) ||
            !kvr_slice_equal(kvr_slice_make(name.data + prefix.len, key.len), key))
            continue;
        scan->request->identities[KVR_IDENTITY_SESSION_FIELD + i] = identity_of_raw(raw);
    }
}

void kvr_api_take_metadata(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    uint64_t *identities = scan->request->identities;
    struct kvr_json_span key;
    char room[KVR_API_KEY_ROOM];
    identities[KVR_IDENTITY_METADATA_SESSION_ID] = identities[KVR_IDENTITY_METADATA_USER_ID] = 0;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        struct kvr_slice name = kvr_api_key(key, room);
        kvr_json_peek(json);
        const char *value = json->at;
        if (kvr_slice_is(name, "session_id"))
            identities[KVR_IDENTITY_METADATA_SESSION_ID] = kvr_api_take_identity(scan);
        else if (kvr_slice_is(name, "user_id"))
            identities[KVR_IDENTITY_METADATA_USER_ID] = take_user_session(scan);
        else
            kvr_json_skip(json, NULL);
        kvr_api_note_configured(scan, kvr_slice_of("metadata."), name,
                                kvr_slice_make(value, (size_t)(json->at - value)));
    }
}
