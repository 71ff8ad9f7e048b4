#include "admin_body.h"

#include <math.h>
#include <stddef.h>

#include "json_number.h"
#include "json_reader.h"
#include "memory.h"

#define SHOWN_MAX 80 /* bytes of a value that a message repeats */

enum kind { TEXT, SECRET, NUMBER, INTEGER, BOOLEAN, TEXTS, PARAMS, SHADOWS, HEADERS, RAW };

struct field {
    const char *name;
    enum kvr_admin_field bit;
    enum kind kind;
    size_t at;       /* offset of what it is read into */
    double min, max; /* of numbers */
};

#define AT(member) offsetof(struct kvr_admin_body, member)

static const struct field fields[] = {
    {"url", KVR_FIELD_URL, TEXT, AT(url), 0, 0},
    {"key", KVR_FIELD_KEY, SECRET, AT(key), 0, 0},
    {"replica", KVR_FIELD_REPLICA, TEXT, AT(replica), 0, 0},
    {"name", KVR_FIELD_NAME, TEXT, AT(name), 0, 0},
    {"role", KVR_FIELD_ROLE, TEXT, AT(role), 0, 0},
    {"level", KVR_FIELD_LEVEL, TEXT, AT(level), 0, 0},
    {"weight", KVR_FIELD_WEIGHT, NUMBER, AT(weight), 0.001, 1000},
    {"share", KVR_FIELD_SHARE, NUMBER, AT(share), 0, 1},
    {"capacity", KVR_FIELD_CAPACITY, INTEGER, AT(capacity), 0, 1000000},
    {"rank", KVR_FIELD_RANK, INTEGER, AT(rank), -1, 65535},
    {"any_model", KVR_FIELD_ANY_MODEL, BOOLEAN, AT(any_model), 0, 0},
    {"models", KVR_FIELD_MODELS, TEXTS, AT(models), 0, 0},
    {"params", KVR_FIELD_PARAMS, PARAMS, AT(params), 0, 0},
    {"shadows", KVR_FIELD_SHADOWS, SHADOWS, AT(shadows), 0, 0},
    {"path", KVR_FIELD_PATH, TEXT, AT(path), 0, 0},
    {"headers", KVR_FIELD_HEADERS, HEADERS, AT(headers), 0, 0},
    {"body", KVR_FIELD_BODY, RAW, AT(body), 0, 0},
    {"file", KVR_FIELD_FILE, TEXT, AT(file), 0, 0},
    {"why", KVR_FIELD_WHY, TEXT, AT(why), 0, 0},
};

/* A reading under way. */
struct reading {
    struct kvr_admin_body *body;
    struct kvr_json_reader json;
    struct kvr_error *error;
    char *out; /* where the next decoded string goes: body->text has room for all of them */
};

static int refuse_value(struct reading *reading, const struct field *field, const char *what)
{
    struct kvr_slice raw;
    if (!kvr_json_skip(&reading->json, &raw))
        return KVR_E_INVALID; /* no JSON: told at the end */
    int shown = raw.len < SHOWN_MAX ? (int)raw.len : SHOWN_MAX;
    if (field->kind == SECRET)
        return kvr_error_set(reading->error, KVR_E_INVALID, "%s: %s is expected", field->name,
                             what);
    return kvr_error_set(reading->error, KVR_E_INVALID, "%s: %s is expected, not %.*s", field->name,
                         what, shown, raw.data);
}

static bool read_text(struct reading *reading, struct kvr_slice *text)
{
    char *from = reading->out;
    if (!kvr_json_read_decoded(&reading->json, &reading->out))
        return false;
    *text = kvr_slice_make(from, (size_t)(reading->out - from));
    return true;
}

static int read_number(struct reading *reading, const struct field *field, void *to)
{
    static const char *const kinds[] = {[NUMBER] = "a number", [INTEGER] = "a whole number"};
    struct kvr_slice raw;
    if (!kvr_json_read_number(&reading->json, &raw))
        return refuse_value(reading, field, kinds[field->kind]);
    double value = kvr_json_number_value(raw);
    bool whole = field->kind == NUMBER || value == floor(value);
    if (!(value >= field->min && value <= field->max && whole))
        return kvr_error_set(reading->error, KVR_E_INVALID,
                             "%s: %s from %g to %g is expected, not "
                             "%.*s",
                             field->name, kinds[field->kind], field->min, field->max,
                             raw.len < SHOWN_MAX ? (int)raw.len : SHOWN_MAX, raw.data);
    if (field->kind == NUMBER)
        *(double *)to = value;
    else
        *(int32_t *)to = (int32_t)value; /* in range of both signs by its bounds */
    return 0;
}

static int read_boolean(struct reading *reading, const struct field *field, bool *to)
{
    enum kvr_json_kind kind = kvr_json_peek(&reading->json);
    if (kind != KVR_JSON_TRUE && kind != KVR_JSON_FALSE)
        return refuse_value(reading, field, "true or false");
    *to = kind == KVR_JSON_TRUE;
    kvr_json_skip(&reading->json, NULL);
    return 0;
}

static int read_models(struct reading *reading, const struct field *field)
{
    struct kvr_admin_body *body = reading->body;
    if (!kvr_json_enter_array(&reading->json))
        return refuse_value(reading, field, "a list of names");
    while (kvr_json_next_item(&reading->json)) {
        struct kvr_slice name;
        if (!read_text(reading, &name))
            return refuse_value(reading, field, "a list of names");
        if (name.len == 0)
            return kvr_error_set(reading->error, KVR_E_INVALID, "models: a name is empty");
        if (body->models_count == KVR_REPLICA_MODELS_MAX)
            return kvr_error_set(reading->error, KVR_E_LIMIT, "models: at most %d are possible",
                                 KVR_REPLICA_MODELS_MAX);
        body->models[body->models_count++] = name;
    }
    return 0;
}

/* Scripts have params of three kinds and read each from its text. */
static bool read_param_value(struct reading *reading, struct kvr_slice *value)
{
    switch (kvr_json_peek(&reading->json)) {
    case KVR_JSON_STRING:
        return read_text(reading, value);
    case KVR_JSON_NUMBER:
    case KVR_JSON_TRUE:
    case KVR_JSON_FALSE:
        return kvr_json_skip(&reading->json, value);
    default:
        return false;
    }
}

/* Decodes a key to where strings go. */
static struct kvr_slice take_key(struct reading *reading, const struct kvr_json_span *key)
{
    char *from = reading->out;
    reading->out += kvr_json_string_unescape(key->raw, reading->out);
    return kvr_slice_make(from, (size_t)(reading->out - from));
}

static int read_params(struct reading *reading, const struct field *field,
                       struct kvr_script_param *params, uint32_t *count)
{
    if (!kvr_json_enter_object(&reading->json))
        return refuse_value(reading, field, "an object");
    struct kvr_json_span key;
    while (kvr_json_next_key(&reading->json, &key)) {
        struct kvr_script_param param;
        param.key = take_key(reading, &key);
        if (!read_param_value(reading, &param.value))
            return refuse_value(reading, field, "text, a number, true or false for each");
        if (*count == KVR_SCRIPT_PARAMS_LIST)
            return kvr_error_set(reading->error, KVR_E_LIMIT, "%s: at most %d params are possible",
                                 field->name, KVR_SCRIPT_PARAMS_LIST);
        params[(*count)++] = param;
    }
    return 0;
}

/* A name, or {"name", "params"}. */
static int read_wish(struct reading *reading, const struct field *field,
                     struct kvr_script_wish *wish)
{
    static const char expected[] = "a list of names, or of {name, params},";
    struct kvr_json_span key;
    int rc = 0;
    *wish = (struct kvr_script_wish){0};
    if (kvr_json_peek(&reading->json) == KVR_JSON_STRING)
        return read_text(reading, &wish->name) ? 0 : refuse_value(reading, field, expected);
    if (!kvr_json_enter_object(&reading->json))
        return refuse_value(reading, field, expected);
    while (rc == 0 && kvr_json_next_key(&reading->json, &key)) {
        if (kvr_slice_is(key.raw, "params"))
            rc = read_params(reading, field, wish->params, &wish->params_count);
        else if (!kvr_slice_is(key.raw, "name") || !read_text(reading, &wish->name))
            rc = refuse_value(reading, field, expected);
    }
    return rc;
}

static int read_shadows(struct reading *reading, const struct field *field)
{
    struct kvr_admin_body *body = reading->body;
    int rc = 0;
    if (!kvr_json_enter_array(&reading->json))
        return refuse_value(reading, field, "a list of names, or of {name, params},");
    while (rc == 0 && kvr_json_next_item(&reading->json)) {
        if (body->shadows_count == KVR_SHADOWS_MAX)
            return kvr_error_set(reading->error, KVR_E_LIMIT, "shadows: at most %d are possible",
                                 KVR_SHADOWS_MAX);
        rc = read_wish(reading, field, &body->shadows[body->shadows_count++]);
    }
    return rc;
}

static int read_headers(struct reading *reading, const struct field *field)
{
    struct kvr_admin_body *body = reading->body;
    struct kvr_json_span key;
    if (!kvr_json_enter_object(&reading->json))
        return refuse_value(reading, field, "an object of texts");
    while (kvr_json_next_key(&reading->json, &key)) {
        struct kvr_header header;
        header.name = take_key(reading, &key);
        if (!read_text(reading, &header.value))
            return refuse_value(reading, field, "an object of texts");
        if (body->headers_count == KVR_ADMIN_HEADERS_MAX)
            return kvr_error_set(reading->error, KVR_E_LIMIT, "headers: at most %d are possible",
                                 KVR_ADMIN_HEADERS_MAX);
        body->headers[body->headers_count++] = header;
    }
    return 0;
}

static int read_value(struct reading *reading, const struct field *field)
{
    void *to = (char *)reading->body + field->at;
    switch (field->kind) {
    case TEXT:
    case SECRET:
        return read_text(reading, to) ? 0 : refuse_value(reading, field, "text");
    case NUMBER:
    case INTEGER:
        return read_number(reading, field, to);
    case BOOLEAN:
        return read_boolean(reading, field, to);
    case TEXTS:
        return read_models(reading, field);
    case PARAMS:
        return read_params(reading, field, reading->body->params, &reading->body->params_count);
    case SHADOWS:
        return read_shadows(reading, field);
    case HEADERS:
        return read_headers(reading, field);
    case RAW:
        return kvr_json_skip(&reading->json, to) ? 0 : KVR_E_INVALID;
    }
    return KVR_E_INVALID;
}

static const struct field *find_field(struct kvr_slice name, uint32_t allowed)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((allowed & fields[i].bit) && kvr_slice_is(name, fields[i].name))
            return &fields[i];
    return NULL;
}

static int refuse_unknown(struct reading *reading, struct kvr_slice name, uint32_t allowed)
{
    char known[256] = "";
    size_t len = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (allowed & fields[i].bit)
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "",
                                    fields[i].name);
    int shown = name.len < SHOWN_MAX ? (int)name.len : SHOWN_MAX;
    return kvr_error_set(reading->error, KVR_E_INVALID, "\"%.*s\" is not known here: %s%s", shown,
                         name.data, len ? "there are " : "there are no fields", known);
}

static int read_member(struct reading *reading, struct kvr_slice name, uint32_t allowed,
                       const char **field_name)
{
    const struct field *field = find_field(name, allowed);
    if (!field)
        return refuse_unknown(reading, name, allowed);
    if (kvr_json_peek(&reading->json) == KVR_JSON_NULL) {
        kvr_json_skip(&reading->json, NULL);
        return 0;
    }
    *field_name = field->name;
    if (reading->body->given & field->bit)
        return kvr_error_set(reading->error, KVR_E_INVALID, "%s: given twice", field->name);
    reading->body->given |= field->bit;
    int rc = read_value(reading, field);
    if (rc == 0)
        *field_name = NULL;
    return rc;
}

static int require(const struct kvr_admin_body *body, uint32_t required, const char **field,
                   struct kvr_error *error)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!(required & ~body->given & fields[i].bit))
            continue;
        *field = fields[i].name;
        return kvr_error_set(error, KVR_E_INVALID, "%s: is needed", fields[i].name);
    }
    return 0;
}

static int read_object(struct reading *reading, uint32_t allowed, const char **field)
{
    struct kvr_json_span key;
    int rc = 0;
    if (!kvr_json_enter_object(&reading->json) && !reading->json.code)
        return kvr_error_set(reading->error, KVR_E_INVALID, "the body is no JSON object");
    while (rc == 0 && kvr_json_next_key(&reading->json, &key))
        rc = read_member(reading, key.raw, allowed, field);
    if (rc && !reading->json.code)
        return rc;
    if (!kvr_json_finish(&reading->json)) {
        *field = NULL;
        return kvr_error_set(reading->error, KVR_E_INVALID, "the body is no JSON: %s at byte %zu",
                             reading->json.reason, kvr_json_offset(&reading->json));
    }
    return 0;
}

int kvr_admin_body_read(struct kvr_admin_body *body, struct kvr_slice json, uint32_t allowed,
                        uint32_t required, const char **field, struct kvr_error *error)
{
    *body = (struct kvr_admin_body){.rank = -1};
    *field = NULL;
    if (json.len) { /* an empty body is an empty object */
        struct reading reading = {.body = body, .error = error};
        reading.out = kvr_buffer_reserve(&body->text, json.len + KVR_JSON_SLACK);
        kvr_json_reader_init(&reading.json, json);
        int rc = read_object(&reading, allowed, field);
        if (rc)
            return rc;
    }
    return require(body, required, field, error);
}

void kvr_admin_body_deinit(struct kvr_admin_body *body)
{
    kvr_buffer_deinit(&body->text);
}
