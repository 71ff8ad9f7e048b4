/* Messages and tools as canonical text. */
#include <string.h>

#include "api_scan.h"

/* Fields of a message, in canonical order. */
enum field { ROLE, NAME, CONTENT, REASONING, CALLS, CALL_ID, FIELDS, NO_FIELD };

static const char tags[FIELDS] = {
    [ROLE] = KVR_TAG_ROLE,           [NAME] = KVR_TAG_NAME,   [CONTENT] = KVR_TAG_CONTENT,
    [REASONING] = KVR_TAG_REASONING, [CALLS] = KVR_TAG_CALLS, [CALL_ID] = KVR_TAG_CALL_ID,
};

struct message {
    char *start;                     /* in the canonical text */
    struct kvr_slice fields[FIELDS]; /* each with its tag; empty: absent */
    enum field last;                 /* written last */
    bool ordered;                    /* the fields stand in canonical order, without gaps */
};

static enum field field_of(struct kvr_slice key)
{
    if (kvr_slice_is(key, "role"))
        return ROLE;
    if (kvr_slice_is(key, "content") || kvr_slice_is(key, "output"))
        return CONTENT;
    if (kvr_slice_is(key, "name"))
        return NAME;
    if (kvr_slice_is(key, "tool_calls") || kvr_slice_is(key, "function_call") ||
        kvr_slice_is(key, "arguments"))
        return CALLS;
    if (kvr_slice_is(key, "tool_call_id") || kvr_slice_is(key, "call_id"))
        return CALL_ID;
    if (kvr_slice_is(key, "reasoning_content") || kvr_slice_is(key, "reasoning") ||
        kvr_slice_is(key, "summary"))
        return REASONING;
    return NO_FIELD;
}

/* Takes the value of a message's field. */
static void put_field(struct kvr_api_scan *scan, struct message *message, enum field field)
{
    char *start = scan->out;
    kvr_api_put(scan, tags[field]);
    if (field == CONTENT) {
        kvr_api_put_content(scan);
    } else if (field == REASONING) {
        bool spoke = scan->spoke;
        kvr_api_put_content(scan);
        scan->spoke = spoke;
    } else if (field == CALLS) {
        kvr_api_put_any(scan);
    } else {
        kvr_api_put_string(scan);
    }
    if (scan->out == start + 1 && field != ROLE) {
        scan->out = start; /* null, empty and absent are alike */
        if (message->fields[field].len)
            message->ordered = false; /* an earlier one of that name is void */
        message->fields[field] = (struct kvr_slice){0};
        return;
    }
    message->ordered = message->ordered && (message->last == NO_FIELD || field > message->last);
    message->last = field;
    message->fields[field] = kvr_slice_make(start, (size_t)(scan->out - start));
}

/* Brings the fields of a message into canonical order. The longest moves once, the others by way of
 * the spare buffer. */
static void reorder(struct kvr_api_scan *scan, const struct message *message)
{
    struct kvr_buffer *spare = &scan->prompt->spare;
    enum field longest = ROLE;
    size_t before = 0; /* bytes that come in front of the longest */
    for (enum field field = NAME; field < FIELDS; field++)
        if (message->fields[field].len > message->fields[longest].len)
            longest = field;
    spare->len = 0;
    for (enum field field = ROLE; field < FIELDS; field++) {
        if (field == longest)
            before = spare->len;
        else
            kvr_buffer_append_slice(spare, message->fields[field]);
    }
    struct kvr_slice moved = message->fields[longest];
    char *at = message->start;
    memmove(at + before, moved.data, moved.len);
    if (before)
        memcpy(at, spare->data, before);
    if (spare->len > before)
        memcpy(at + before + moved.len, spare->data + before, spare->len - before);
    scan->out = at + spare->len + moved.len;
}

/* One message, or one item of an input list. */
static void put_message(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    struct message message = {.start = scan->out, .last = NO_FIELD, .ordered = true};
    char room[KVR_API_KEY_ROOM];
    struct kvr_json_span key;
    scan->spoke = false;
    if (!kvr_json_enter_object(json)) {
        kvr_json_skip(json, NULL);
        return;
    }
    while (kvr_json_next_key(json, &key)) {
        enum field field = field_of(kvr_api_key(key, room));
        if (field == NO_FIELD)
            kvr_json_skip(json, NULL);
        else
            put_field(scan, &message, field);
    }
    if (message.fields[ROLE].len == 0) {
        message.fields[ROLE] = kvr_slice_make(&tags[ROLE], 1);
        message.ordered = false;
    }
    bool user = kvr_slice_is(message.fields[ROLE], "\x01user");
    if (!message.ordered)
        reorder(scan, &message);
    kvr_api_put(scan, KVR_TAG_END);
    scan->request->messages++;
    if (user && scan->spoke && scan->request->turn++ == 0)
        scan->opening = scan->out;
}

/* A message of that role whose content comes next. */
static void put_role_message(struct kvr_api_scan *scan, const char *role)
{
    size_t len = strlen(role);
    char *start = scan->out;
    enum kvr_json_kind kind = kvr_json_peek(&scan->json);
    if (kind != KVR_JSON_STRING && kind != KVR_JSON_ARRAY) {
        kvr_json_skip(&scan->json, NULL);
        return;
    }
    kvr_api_put(scan, tags[ROLE]);
    memcpy(scan->out, role, len);
    scan->out += len;
    kvr_api_put(scan, tags[CONTENT]);
    char *content = scan->out;
    kvr_api_put_content(scan);
    if (scan->out == content)
        scan->out = start;
    else
        kvr_api_put(scan, KVR_TAG_END);
}

void kvr_api_take_system(struct kvr_api_scan *scan)
{
    char *start = scan->out;
    put_role_message(scan, "system");
    scan->system = kvr_slice_make(start, (size_t)(scan->out - start));
}

void kvr_api_take_messages(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    struct kvr_api_request *request = scan->request;
    char *start = scan->out;
    scan->opening = NULL;
    scan->media_bytes = 0;
    request->messages = request->turn = request->media = 0;
    request->extra_tokens = 0;
    if (kvr_json_enter_array(json)) {
        while (kvr_json_next_item(json))
            put_message(scan);
    } else {
        put_role_message(scan, "user");
        if (scan->out > start) {
            request->messages = request->turn = 1;
            scan->opening = scan->out;
        }
    }
    request->prompts = request->messages > 0;
    scan->body = kvr_slice_make(start, (size_t)(scan->out - start));
}

/* One tool. Where its author lets a cache end is no part of the prompt, and moves from turn to
 * turn. */
static void put_tool(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    char room[KVR_API_KEY_ROOM];
    struct kvr_json_span key;
    if (!kvr_json_enter_object(json)) {
        kvr_api_put_compact(scan);
        return;
    }
    kvr_api_put(scan, '{');
    while (kvr_json_next_key(json, &key)) {
        if (kvr_slice_is(kvr_api_key(key, room), "cache_control")) {
            kvr_json_skip(json, NULL);
            continue;
        }
        if (scan->out[-1] != '{')
            kvr_api_put(scan, ',');
        kvr_api_put(scan, '"');
        scan->out += kvr_json_string_unescape(key.raw, scan->out);
        kvr_api_put(scan, '"');
        kvr_api_put(scan, ':');
        kvr_api_put_compact(scan);
    }
    kvr_api_put(scan, '}');
}

void kvr_api_take_tools(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    char *start = scan->out;
    if (kvr_json_enter_array(json)) {
        kvr_api_put(scan, '[');
        while (kvr_json_next_item(json)) {
            if (scan->out[-1] != '[')
                kvr_api_put(scan, ',');
            put_tool(scan);
        }
        kvr_api_put(scan, ']');
        if (scan->out == start + 2)
            scan->out = start; /* no tools, as when the key is absent */
    } else {
        kvr_json_skip(json, NULL);
    }
    scan->tools = kvr_slice_make(start, (size_t)(scan->out - start));
}
