#include "pick.h"

#include <math.h>
#include <string.h>

#include "json_number.h"
#include "json_string.h"

static struct kvr_slice none(void)
{
    return kvr_slice_make("", 0);
}

/* The value of a member of that object; its keys are ours and need no decoding. */
static struct kvr_slice member(struct kvr_slice object, struct kvr_slice name)
{
    struct kvr_json_reader json;
    struct kvr_json_span key;
    struct kvr_slice value;
    kvr_json_reader_init(&json, object);
    if (!kvr_json_enter_object(&json))
        return none();
    while (kvr_json_next_key(&json, &key)) {
        if (!kvr_json_skip(&json, &value))
            return none();
        if (kvr_slice_equal(key.raw, name))
            return value;
    }
    return none();
}

struct kvr_slice kvr_pick(struct kvr_slice json, const char *path)
{
    while (*path && json.len) {
        size_t len = strcspn(path, ".");
        json = member(json, kvr_slice_make(path, len));
        path += len + (path[len] == '.');
    }
    return json;
}

struct kvr_picked kvr_pick_text(struct kvr_slice json, const char *path)
{
    struct kvr_picked picked;
    struct kvr_slice value = kvr_pick(json, path);
    bool quoted = value.len >= 2 && value.data[0] == '"';
    if (quoted)
        value = kvr_slice_make(value.data + 1, value.len - 2);
    else if (kvr_slice_is(value, "null"))
        value.len = 0;
    size_t room = sizeof picked.text - KVR_JSON_SLACK - 1;
    size_t len = value.len < room ? value.len : room;
    if (quoted)
        len = kvr_json_string_unescape(kvr_slice_make(value.data, len), picked.text);
    else if (len)
        memcpy(picked.text, value.data, len);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)picked.text[i] < ' ' || picked.text[i] == 0x7f)
            picked.text[i] = '?';
    picked.text[len] = '\0';
    return picked;
}

double kvr_pick_number(struct kvr_slice json, const char *path)
{
    struct kvr_slice value = kvr_pick(json, path);
    const char *at = value.data;
    if (value.len == 0 || !kvr_json_number_scan(&at, value.data + value.len))
        return (double)NAN;
    return kvr_json_number_value(value);
}

bool kvr_pick_true(struct kvr_slice json, const char *path)
{
    return kvr_slice_is(kvr_pick(json, path), "true");
}

void kvr_walk_start(struct kvr_walk *walk, struct kvr_slice json, const char *path)
{
    *walk = (struct kvr_walk){0};
    kvr_json_reader_init(&walk->json, kvr_pick(json, path));
    walk->object = kvr_json_enter_object(&walk->json);
    if (!walk->object && !kvr_json_enter_array(&walk->json) && !walk->json.code)
        kvr_json_fail(&walk->json, KVR_E_INVALID, "neither a list nor an object");
}

bool kvr_walk_next(struct kvr_walk *walk)
{
    struct kvr_json_span key;
    if (walk->object) {
        if (!kvr_json_next_key(&walk->json, &key))
            return false;
        walk->key = key.raw;
    } else if (!kvr_json_next_item(&walk->json)) {
        return false;
    }
    return kvr_json_skip(&walk->json, &walk->item);
}
