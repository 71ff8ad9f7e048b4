/* What a message says, as canonical text: strings, parts, media, tool calls and results. */
#include <string.h>

#include "api_scan.h"

/* Content nests (a tool result that holds parts), at most so deep: below it is plain JSON. */
#define CONTENT_DEPTH_MAX 6

static void put_content(struct kvr_api_scan *scan, uint32_t depth);

bool kvr_api_put_string(struct kvr_api_scan *scan)
{
    kvr_api_room(scan);
    if (kvr_json_peek(&scan->json) == KVR_JSON_STRING)
        return kvr_json_read_decoded(&scan->json, &scan->out);
    kvr_json_skip(&scan->json, NULL);
    return false;
}

void kvr_api_put_compact(struct kvr_api_scan *scan)
{
    kvr_api_room(scan);
    kvr_json_compact(&scan->json, &scan->out);
}

void kvr_api_put_any(struct kvr_api_scan *scan)
{
    enum kvr_json_kind kind = kvr_json_peek(&scan->json);
    char *start = scan->out;
    if (kind == KVR_JSON_STRING) {
        kvr_api_put_string(scan);
    } else if (kind == KVR_JSON_NULL) {
        kvr_json_skip(&scan->json, NULL);
    } else {
        kvr_api_put_compact(scan);
        if (scan->out == start + 2 && memcmp(start, "[]", 2) == 0)
            scan->out = start;
    }
}

/* The identity of an image, a video or a piece of audio: given as a string or as an object that
 * holds its address or its bytes. */
static void put_media(struct kvr_api_scan *scan)
{
    struct kvr_json_reader *json = &scan->json;
    struct kvr_json_span source = {.escaped = false};
    char room[KVR_API_KEY_ROOM];
    struct kvr_json_span key;
    if (kvr_json_enter_object(json)) {
        while (kvr_json_next_key(json, &key)) {
            struct kvr_slice name = kvr_api_key(key, room);
            bool known = kvr_slice_is(name, "url") || kvr_slice_is(name, "data") ||
                         kvr_slice_is(name, "file_data") || kvr_slice_is(name, "file_id") ||
                         kvr_slice_is(name, "file_url");
            if (!known || !kvr_json_read_string(json, &source))
                kvr_json_skip(json, NULL);
        }
    } else if (!kvr_json_read_string(json, &source)) {
        kvr_json_skip(json, NULL);
    }
    if (json->code != KVR_OK || source.raw.len == 0)
        return;
    struct kvr_slice text = source.raw;
    if (source.escaped) /* decoded in the scratch, to be overwritten */
        text = kvr_slice_make(scan->out, kvr_json_string_unescape(source.raw, scan->out));
    unsigned char identity[16];
    kvr_prompt_identity(text, identity);
    kvr_api_put(scan, KVR_TAG_MEDIA);
    memcpy(scan->out, identity, sizeof identity);
    scan->out += sizeof identity;
    scan->media_bytes += 1 + sizeof identity;
    scan->request->media++;
    scan->request->extra_tokens += scan->options->media_tokens;
    scan->spoke = true;
}

enum part_key { PART_IGNORED, PART_TEXT, PART_MEDIA, PART_NAME, PART_ID, PART_INPUT, PART_CONTENT };

static enum part_key part_key_of(struct kvr_slice key)
{
    switch (key.len) {
    case 2:
        return kvr_slice_is(key, "id") ? PART_ID : PART_IGNORED;
    case 4:
        if (kvr_slice_is(key, "text"))
            return PART_TEXT;
        if (kvr_slice_is(key, "name"))
            return PART_NAME;
        return kvr_slice_is(key, "file") ? PART_MEDIA : PART_IGNORED;
    case 5:
        if (kvr_slice_is(key, "input"))
            return PART_INPUT;
        return kvr_slice_is(key, "image") ? PART_MEDIA : PART_IGNORED;
    case 6:
        return kvr_slice_is(key, "source") ? PART_MEDIA : PART_IGNORED;
    case 7:
        if (kvr_slice_is(key, "content"))
            return PART_CONTENT;
        if (kvr_slice_is(key, "refusal"))
            return PART_TEXT;
        return kvr_slice_is(key, "file_id") ? PART_MEDIA : PART_IGNORED;
    case 8:
        return kvr_slice_is(key, "thinking") ? PART_TEXT : PART_IGNORED;
    case 9:
        if (kvr_slice_is(key, "image_url") || kvr_slice_is(key, "video_url") ||
            kvr_slice_is(key, "audio_url") || kvr_slice_is(key, "file_data"))
            return PART_MEDIA;
        return PART_IGNORED;
    case 11:
        if (kvr_slice_is(key, "tool_use_id"))
            return PART_ID;
        return kvr_slice_is(key, "input_audio") ? PART_MEDIA : PART_IGNORED;
    default:
        return PART_IGNORED;
    }
}

/* One part of a content list, entered. Its keys say what it is, whatever its `type`, and are taken
 * in the order sent. What a tool answered does not make a user's turn. */
static void put_part(struct kvr_api_scan *scan, uint32_t depth)
{
    struct kvr_json_reader *json = &scan->json;
    char room[KVR_API_KEY_ROOM];
    struct kvr_json_span key;
    while (kvr_json_next_key(json, &key)) {
        bool spoke = scan->spoke;
        char *start = scan->out;
        switch (part_key_of(kvr_api_key(key, room))) {
        case PART_TEXT:
            kvr_api_put_string(scan);
            scan->spoke = spoke || scan->out > start;
            break;
        case PART_MEDIA:
            put_media(scan);
            break;
        case PART_NAME:
            kvr_api_put(scan, KVR_TAG_NAME);
            kvr_api_put_string(scan);
            break;
        case PART_ID:
            kvr_api_put(scan, KVR_TAG_CALL_ID);
            kvr_api_put_string(scan);
            break;
        case PART_INPUT:
            kvr_api_put(scan, KVR_TAG_CALLS);
            kvr_api_put_any(scan);
            break;
        case PART_CONTENT:
            put_content(scan, depth + 1);
            scan->spoke = spoke;
            break;
        case PART_IGNORED:
            kvr_json_skip(json, NULL);
            break;
        }
    }
}

/* Content in any of its shapes. */
static void put_content(struct kvr_api_scan *scan, uint32_t depth)
{
    struct kvr_json_reader *json = &scan->json;
    if (depth > CONTENT_DEPTH_MAX) {
        kvr_api_put_any(scan);
        return;
    }
    char *start = scan->out;
    switch (kvr_json_peek(json)) {
    case KVR_JSON_STRING:
        kvr_api_put_string(scan);
        scan->spoke = scan->spoke || scan->out > start;
        break;
    case KVR_JSON_ARRAY:
        kvr_json_enter_array(json);
        while (kvr_json_next_item(json))
            put_content(scan, depth + 1);
        break;
    case KVR_JSON_OBJECT:
        kvr_json_enter_object(json);
        put_part(scan, depth);
        break;
    default:
        kvr_json_skip(json, NULL);
    }
}

void kvr_api_put_content(struct kvr_api_scan *scan)
{
    put_content(scan, 1);
}
