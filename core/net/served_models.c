#include "served_models.h"

#include <math.h>
#include <string.h>

#include "json_number.h"
#include "json_reader.h"
#include "json_writer.h"
#include "memory.h"
#include "replica.h"

/* The engine's and ours. */
#define MODELS_ROOM ((size_t)2 * KVR_REPLICA_MODELS_MAX)

/* What one object of an answer says; slices into the answer. */
struct model_object {
    struct kvr_slice raw;
    struct kvr_json_span id;
    struct kvr_slice created; /* a number; empty: none */
    double max_model_len;
};

static void drop_models(struct kvr_served_models *served)
{
    kvr_free(served->models);
    kvr_buffer_deinit(&served->text);
    served->models = NULL;
    served->count = 0;
}

static void drop_names(struct kvr_served_models *served)
{
    for (uint32_t i = 0; i < served->names_count; i++)
        kvr_free(served->names[i]);
    kvr_free(served->names);
    served->names = NULL;
    served->names_count = 0;
}

void kvr_served_models_deinit(struct kvr_served_models *served)
{
    drop_models(served);
    drop_names(served);
}

static bool is_fixed_name(const struct kvr_served_models *served, struct kvr_slice id)
{
    for (uint32_t i = 0; i < served->names_count; i++)
        if (kvr_slice_is(id, served->names[i]))
            return true;
    return false;
}

/* NULL: none with that id. */
static const struct kvr_served_model *find(const struct kvr_served_models *served,
                                           struct kvr_slice id)
{
    for (uint32_t i = 0; i < served->count; i++)
        if (kvr_slice_equal(kvr_served_id(served, i), id))
            return &served->models[i];
    return NULL;
}

struct kvr_slice kvr_served_created(const struct kvr_served_models *served, struct kvr_slice id)
{
    const struct kvr_served_model *model = find(served, id);
    if (!model || model->created_len == 0)
        return kvr_slice_make("", 0);
    return kvr_slice_make(served->text.data + model->created_at, model->created_len);
}

/* Adds an object whose decoded id is the end of the text, from `id_at` on. */
static void add_model(struct kvr_served_models *served, const struct model_object *object,
                      size_t id_at, struct kvr_slice created)
{
    struct kvr_served_model *model = &served->models[served->count++];
    *model = (struct kvr_served_model){.id_at = id_at,
                                       .id_len = served->text.len - id_at,
                                       .object_at = served->text.len,
                                       .max_model_len = object->max_model_len};
    struct kvr_slice raw = object->raw;
    if (object->created.len) {
        size_t before = (size_t)(object->created.data - raw.data);
        kvr_buffer_append(&served->text, raw.data, before);
        model->created_at = served->text.len;
        model->created_len = created.len;
        kvr_buffer_append_slice(&served->text, created);
        raw.data += before + object->created.len;
        raw.len -= before + object->created.len;
    }
    kvr_buffer_append_slice(&served->text, raw);
    model->object_len = served->text.len - model->object_at;
}

/* Names that the operator fixed and the engine does not list. */
static void add_own_objects(struct kvr_served_models *served)
{
    for (uint32_t i = 0; i < served->names_count; i++) {
        struct kvr_slice id = kvr_slice_of(served->names[i]);
        if (find(served, id))
            continue;
        struct kvr_buffer text = {0};
        struct kvr_json_writer json = {.out = &text};
        kvr_json_object_begin(&json, NULL);
        kvr_json_string(&json, "id", id);
        kvr_json_text(&json, "object", "model");
        kvr_json_uint(&json, "created", served->unix_s);
        kvr_json_text(&json, "owned_by", "kvroute");
        kvr_json_object_end(&json);
        struct model_object object = {.raw = kvr_buffer_slice(&text), .max_model_len = (double)NAN};
        size_t id_at = served->text.len;
        kvr_buffer_append_slice(&served->text, id);
        add_model(served, &object, id_at, object.created);
        kvr_buffer_deinit(&text);
    }
}

void kvr_served_models_fix(struct kvr_served_models *served, const struct kvr_slice *names,
                           uint32_t count, uint64_t unix_s)
{
    KVR_CHECK(count <= KVR_REPLICA_MODELS_MAX);
    kvr_served_models_deinit(served);
    served->unix_s = unix_s;
    served->names = kvr_alloc_zero(count ? count : 1, sizeof *served->names);
    served->names_count = count;
    for (uint32_t i = 0; i < count; i++)
        served->names[i] = kvr_strndup(names[i].data, names[i].len);
    served->models = kvr_alloc(MODELS_ROOM * sizeof *served->models);
    add_own_objects(served);
}

/* ---- an answer ---- */

static bool read_object(struct kvr_slice raw, struct model_object *object)
{
    *object = (struct model_object){.raw = raw, .max_model_len = (double)NAN};
    struct kvr_json_reader json;
    struct kvr_json_span key;
    struct kvr_slice number;
    kvr_json_reader_init(&json, raw);
    if (!kvr_json_enter_object(&json))
        return false;
    while (kvr_json_next_key(&json, &key)) {
        bool taken = false;
        if (kvr_slice_is(key.raw, "id"))
            taken = kvr_json_read_string(&json, &object->id);
        else if (kvr_slice_is(key.raw, "created"))
            taken = kvr_json_read_number(&json, &object->created);
        else if (kvr_slice_is(key.raw, "max_model_len") && kvr_json_read_number(&json, &number)) {
            object->max_model_len = kvr_json_number_value(number);
            taken = true;
        }
        if (!taken)
            kvr_json_skip(&json, NULL);
    }
    return kvr_json_finish(&json) && object->id.raw.len > 0;
}

/* Decodes the id to the end of the text. */
static size_t append_id(struct kvr_buffer *text, const struct kvr_json_span *id)
{
    size_t at = text->len;
    char *out = kvr_buffer_reserve(text, id->raw.len + KVR_JSON_SLACK);
    if (id->escaped) {
        text->len += kvr_json_string_unescape(id->raw, out);
    } else {
        memcpy(out, id->raw.data, id->raw.len);
        text->len += id->raw.len;
    }
    return at;
}

/* Returns whether it was over a limit. */
static bool take_object(struct kvr_served_models *fresh, const struct model_object *object,
                        const struct kvr_created_source *source)
{
    size_t before = fresh->text.len;
    size_t id_at = append_id(&fresh->text, &object->id);
    struct kvr_slice id = kvr_slice_make(fresh->text.data + id_at, fresh->text.len - id_at);
    bool unwanted = (fresh->names && !is_fixed_name(fresh, id)) || find(fresh, id);
    bool over = id.len > KVR_MODEL_NAME_MAX || fresh->count == KVR_REPLICA_MODELS_MAX;
    if (unwanted || over) {
        fresh->text.len = before;
        return !unwanted;
    }
    struct kvr_slice created = source->created_of(source->context, id);
    add_model(fresh, object, id_at, created.len ? created : object->created);
    return false;
}

/* Reads {"data": [object, ...]}. */
static int read_answer(struct kvr_served_models *fresh, struct kvr_slice answer,
                       const struct kvr_created_source *source)
{
    struct kvr_json_reader json;
    struct kvr_json_span key;
    bool has_data = false;
    int over = 0;
    kvr_json_reader_init(&json, answer);
    if (!kvr_json_enter_object(&json))
        return KVR_E_INVALID;
    while (kvr_json_next_key(&json, &key)) {
        if (has_data || !kvr_slice_is(key.raw, "data") || !kvr_json_enter_array(&json)) {
            kvr_json_skip(&json, NULL);
            continue;
        }
        has_data = true;
        while (kvr_json_next_item(&json)) {
            struct kvr_slice raw;
            struct model_object object;
            if (kvr_json_skip(&json, &raw) && read_object(raw, &object))
                over += take_object(fresh, &object, source);
        }
    }
    return kvr_json_finish(&json) && has_data ? over : KVR_E_INVALID;
}

int kvr_served_models_read(struct kvr_served_models *served, struct kvr_slice answer,
                           const struct kvr_created_source *source)
{
    struct kvr_served_models fresh = *served;
    fresh.count = 0;
    fresh.text = (struct kvr_buffer){0};
    fresh.models = kvr_alloc(MODELS_ROOM * sizeof *fresh.models);
    int over = read_answer(&fresh, answer, source);
    if (over < 0) {
        drop_models(&fresh);
        return over;
    }
    add_own_objects(&fresh);
    drop_models(served);
    *served = fresh;
    return over;
}
