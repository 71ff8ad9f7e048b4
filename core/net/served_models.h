/* What one replica serves: the models of its last answer to GET /v1/models, each with its id and
 * its object as the engine wrote it. Or, when the operator has fixed the names, those names, with
 * the engine's objects where it has them and objects of ours where it has not.
 *
 * The caller owns the struct; zeroed is empty. At most KVR_REPLICA_MODELS_MAX models. */
#ifndef KVR_SERVED_MODELS_H
#define KVR_SERVED_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "slice.h"

/* Offsets into the text. */
struct kvr_served_model {
    size_t id_at, id_len;           /* decoded */
    size_t object_at, object_len;   /* as the engine wrote it, but for `created` */
    size_t created_at, created_len; /* the number inside the object; length 0: none */
    double max_model_len;           /* NaN: not said */
};

struct kvr_served_models {
    struct kvr_served_model *models;
    uint32_t count;
    struct kvr_buffer text;
    char **names; /* the operator's; NULL: none are fixed */
    uint32_t names_count;
    uint64_t unix_s; /* `created` of objects of ours */
};

/* The `created` that an id is to keep, as text; empty: the engine's own. */
struct kvr_created_source {
    const void *context;
    struct kvr_slice (*created_of)(const void *context, struct kvr_slice id);
};

void kvr_served_models_deinit(struct kvr_served_models *served);
/* Fixes the names, until deinit. */
void kvr_served_models_fix(struct kvr_served_models *served, const struct kvr_slice *names,
                           uint32_t count, uint64_t unix_s);
/* Replaces the models by those of an answer. KVR_E_INVALID, with nothing changed, for what is no
 * model list; otherwise how many models were over a limit and left out. */
int kvr_served_models_read(struct kvr_served_models *served, struct kvr_slice answer,
                           const struct kvr_created_source *source);

static inline struct kvr_slice kvr_served_id(const struct kvr_served_models *served, uint32_t i)
{
    return kvr_slice_make(served->text.data + served->models[i].id_at, served->models[i].id_len);
}
static inline struct kvr_slice kvr_served_object(const struct kvr_served_models *served, uint32_t i)
{
    return kvr_slice_make(served->text.data + served->models[i].object_at,
                          served->models[i].object_len);
}
/* The `created` of the model with that id, as text; empty: none. */
struct kvr_slice kvr_served_created(const struct kvr_served_models *served, struct kvr_slice id);

#endif
