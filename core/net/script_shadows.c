/* The part of script_store.h that is about shadows. */
#include "log.h"
#include "script_file.h"
#include "script_store.h"

/* Loads it into `slot`, which is nobody's. */
static int try_one(const struct kvr_script_store *store, enum kvr_script_role role,
                   struct kvr_slice name, const struct kvr_script_param *params, uint32_t count,
                   struct kvr_slot *slot, struct kvr_error *error)
{
    char path[KVR_SCRIPT_PATH_MAX];
    struct kvr_buffer text = {0};
    int rc = kvr_script_file_path(store->dir, role, name, path, error);
    if (rc == 0)
        rc = kvr_script_file_find(store->dir, kvr_role_kind(role), name, path, &text, error);
    if (rc == 0)
        rc = kvr_slot_load(slot, kvr_script_file_name(path), kvr_slice_of(path),
                           kvr_buffer_slice(&text), params, count, error);
    kvr_buffer_deinit(&text);
    return rc;
}

/* Would it load, and its spill rule? */
static int check(const struct kvr_script_store *store, uint32_t i,
                 const struct kvr_script_wish *wish, struct kvr_error *error)
{
    enum kvr_script_role role = kvr_role_shadow(i);
    struct kvr_picture *picture = &store->router->picture;
    struct kvr_slot *policy = kvr_slot_create(KVR_SCRIPT_POLICY, picture, 0);
    struct kvr_slot *spill = kvr_slot_create(KVR_SCRIPT_SPILL, picture, 0);
    int rc = wish->name.len ? 0 : kvr_error_set(error, KVR_E_INVALID, "a shadow needs a name");
    if (rc == 0)
        rc = try_one(store, role, wish->name, wish->params, wish->params_count, policy, error);
    const char *rule = rc ? "" : kvr_slot_info(policy)->default_spill;
    if (*rule)
        rc = kvr_script_store_blame(
            try_one(store, kvr_role_spill(role), kvr_slice_of(rule), NULL, 0, spill, error),
            "params.spill", error);
    kvr_slot_destroy(policy);
    kvr_slot_destroy(spill);
    return kvr_script_store_blame(rc, kvr_role_name(role), error);
}

int kvr_script_store_set_shadows(struct kvr_script_store *store,
                                 const struct kvr_script_wish *wishes, uint32_t count,
                                 struct kvr_error *error)
{
    int rc = 0;
    struct kvr_error local = {0};
    error = error ? error : &local;
    if (count > KVR_SHADOWS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "more than %d shadows", KVR_SHADOWS_MAX);
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        rc = check(store, i, &wishes[i], error);
    if (rc) {
        store->refusals++;
        if (!store->quiet)
            kvr_log(KVR_LOG_WARN, "shadows refused: %s", error->text);
        return rc;
    }
    for (uint32_t i = 0; rc == 0 && i < KVR_SHADOWS_MAX; i++) {
        static const struct kvr_script_wish none;
        const struct kvr_script_wish *wish = i < count ? &wishes[i] : &none;
        rc = kvr_script_store_choose(store, kvr_role_shadow(i), wish->name, wish->params,
                                     wish->params_count, error);
    }
    return rc;
}
