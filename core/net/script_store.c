#include "script_store.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "log.h"
#include "memory.h"
#include "script_file.h"

/* Counts, remembers and tells a refusal. `own`: of what is in force; a slip in a name says nothing
 * about that. Returns the code. */
static int refused(struct kvr_script_store *store, enum kvr_script_role role, bool own,
                   const struct kvr_error *reason, struct kvr_error *error)
{
    store->refusals++;
    if (own)
        store->choices[role].refused_ns = kvr_loop_now();
    if (!store->quiet)
        kvr_log(KVR_LOG_WARN, "%s refused: %s", kvr_role_name(role), reason->text);
    kvr_error_set(error, reason->code, "%s", reason->text);
    return reason->code;
}

/* Reads the file and does all that may fail; NULL after a refusal. */
static struct kvr_slot_next *prepare(struct kvr_script_store *store, enum kvr_script_role role,
                                     struct kvr_slice name, const char *path,
                                     const struct kvr_script_param *params, uint32_t count,
                                     struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    struct kvr_slot *slot = kvr_router_slot(store->router, role);
    struct kvr_slot_next *next = NULL;
    struct kvr_error reason = {0};
    bool again = strcmp(store->choices[role].path, path) == 0;
    int rc =
        again ? kvr_script_file_read(path, &text, &reason)
              : kvr_script_file_find(store->dir, kvr_role_kind(role), name, path, &text, &reason);
    if (again && rc == KVR_E_NOT_FOUND)
        kvr_error_set(&reason, rc,
                      "its file %s is gone; what is in force stays, a restart would fail", path);
    if (rc && again)
        kvr_slot_refused(slot, &reason);
    if (rc == 0)
        next = kvr_slot_prepare(slot, kvr_script_file_name(path), kvr_slice_of(path),
                                kvr_buffer_slice(&text), params, count, &reason);
    kvr_buffer_deinit(&text);
    if (!next)
        (void)refused(store, role, again || rc == 0, &reason, error);
    return next;
}

static void put(struct kvr_script_store *store, enum kvr_script_role role, const char *path,
                struct kvr_slot_next *next)
{
    struct kvr_slot *slot = kvr_router_slot(store->router, role);
    const struct kvr_script_info *before = kvr_slot_info(slot);
    uint32_t generation = before ? before->generation : 0;
    kvr_slot_put(slot, next);
    const struct kvr_script_info *info = kvr_slot_info(slot);
    store->choices[role].refused_ns = 0;
    kvr_router_scripts_changed(store->router);
    if (info->generation == generation)
        return;
    store->choices[role].loaded_ns = kvr_loop_now();
    kvr_log(KVR_LOG_INFO, "%s %s in force: generation %u, hash %016llx, %s", kvr_role_name(role),
            info->name, info->generation, (unsigned long long)info->hash, path);
}

static void free_params(struct kvr_script_choice *choice)
{
    for (uint32_t i = 0; i < choice->params_count; i++) {
        kvr_free((char *)choice->params[i].key.data);
        kvr_free((char *)choice->params[i].value.data);
    }
    choice->params_count = 0;
}

static struct kvr_slice copy(struct kvr_slice text)
{
    return kvr_slice_make(kvr_strndup(text.data, text.len), text.len);
}

static void keep_param(struct kvr_script_choice *choice, const struct kvr_script_param *param)
{
    for (uint32_t i = 0; i < choice->params_count; i++) {
        if (!kvr_slice_equal(choice->params[i].key, param->key))
            continue;
        kvr_free((char *)choice->params[i].value.data);
        choice->params[i].value = copy(param->value);
        return;
    }
    if (choice->params_count == KVR_SCRIPT_PARAMS_LIST)
        return;
    choice->params[choice->params_count++] =
        (struct kvr_script_param){copy(param->key), copy(param->value)};
}

/* `params` may be the choice's own. */
static void remember(struct kvr_script_store *store, enum kvr_script_role role,
                     struct kvr_slice name, const char *path, const struct kvr_script_param *params,
                     uint32_t count)
{
    struct kvr_script_choice *choice = &store->choices[role];
    if (choice->path[0])
        kvr_reloader_remove(&store->reloader, choice->path);
    kvr_reloader_add(&store->reloader, path, NULL);
    struct kvr_script_choice before = *choice;
    choice->params_count = 0;
    for (uint32_t i = 0; i < count; i++)
        keep_param(choice, &params[i]);
    free_params(&before);
    snprintf(choice->name, sizeof choice->name, "%.*s", (int)name.len, name.data);
    snprintf(choice->path, sizeof choice->path, "%s", path);
}

static void forget(struct kvr_script_store *store, enum kvr_script_role role)
{
    struct kvr_script_choice *choice = &store->choices[role];
    if (choice->path[0])
        kvr_reloader_remove(&store->reloader, choice->path);
    free_params(choice);
    *choice = (struct kvr_script_choice){0};
    kvr_slot_clear(kvr_router_slot(store->router, role));
    kvr_router_scripts_changed(store->router);
}

/* What becomes of the spill rule beside a policy. */
struct follow {
    enum kvr_script_role role;
    enum { FOLLOW_KEEP, FOLLOW_NONE, FOLLOW_LOAD } what;
    char name[KVR_SCRIPT_NAME_MAX];
    char path[KVR_SCRIPT_PATH_MAX];
    struct kvr_slot_next *next;
};

/* The spill rule that this policy names, unless the operator chose one. A canary and a baseline
 * share the policy's; a shadow has its own, and none when it is off. `policy` may be NULL: none. */
static int prepare_spill(struct kvr_script_store *store, enum kvr_script_role role,
                         const struct kvr_script_info *policy, struct follow *follow,
                         struct kvr_error *error)
{
    *follow = (struct follow){.what = FOLLOW_KEEP};
    if (kvr_role_kind(role) == KVR_SCRIPT_SPILL || role == KVR_ROLE_CANARY ||
        role == KVR_ROLE_BASELINE || (role == KVR_ROLE_POLICY && store->spill_chosen))
        return 0;
    follow->role = kvr_role_spill(role);
    if (!policy || policy->default_spill[0] == '\0') {
        follow->what = FOLLOW_NONE;
        return 0;
    }
    if (strcmp(store->choices[follow->role].name, policy->default_spill) == 0)
        return 0;
    memcpy(follow->name, policy->default_spill, sizeof follow->name);
    struct kvr_slice name = kvr_slice_of(follow->name);
    struct kvr_error reason = {0};
    int rc = kvr_script_file_path(store->dir, follow->role, name, follow->path, &reason);
    if (rc == 0) {
        follow->what = FOLLOW_LOAD;
        follow->next = prepare(store, follow->role, name, follow->path, NULL, 0, &reason);
        rc = follow->next ? 0 : reason.code;
    }
    if (rc)
        kvr_error_set(error, rc, "%s", reason.text);
    return kvr_script_store_blame(rc, "params.spill", error);
}

static void put_spill(struct kvr_script_store *store, struct follow *follow)
{
    if (follow->what == FOLLOW_NONE)
        forget(store, follow->role);
    if (follow->what != FOLLOW_LOAD)
        return;
    put(store, follow->role, follow->path, follow->next);
    remember(store, follow->role, kvr_slice_of(follow->name), follow->path, NULL, 0);
}

/* The spill rule of what is in force. */
static int follow_default_spill(struct kvr_script_store *store, enum kvr_script_role role,
                                struct kvr_error *error)
{
    struct follow follow;
    int rc = prepare_spill(store, role, kvr_slot_info(kvr_router_slot(store->router, role)),
                           &follow, error);
    if (rc == 0)
        put_spill(store, &follow);
    return rc;
}

/* Puts a script in force, a policy with its spill rule. All or nothing: a policy without its spill
 * rule is not what was asked for. */
static int load(struct kvr_script_store *store, enum kvr_script_role role, struct kvr_slice name,
                const char *path, const struct kvr_script_param *params, uint32_t count,
                struct kvr_error *error)
{
    struct kvr_error local = {0};
    struct follow follow;
    struct kvr_slot *slot = kvr_router_slot(store->router, role);
    error = error ? error : &local;
    struct kvr_slot_next *next = prepare(store, role, name, path, params, count, error);
    if (!next)
        return error->code;
    if (prepare_spill(store, role, kvr_slot_next_info(slot, next), &follow, error)) {
        kvr_slot_drop(next);
        if (strcmp(store->choices[role].path, path) == 0) {
            kvr_slot_refused(slot, error);
            store->choices[role].refused_ns = kvr_loop_now();
        }
        return error->code;
    }
    put(store, role, path, next);
    put_spill(store, &follow);
    return 0;
}

int kvr_script_store_blame(int rc, const char *what, struct kvr_error *error)
{
    struct kvr_error told;
    if (rc == 0 || !error)
        return rc;
    kvr_error_set(&told, error->code, "%s: %.*s", what, (int)(sizeof told.text - 80), error->text);
    *error = told;
    return rc;
}

static int reload_role(struct kvr_script_store *store, enum kvr_script_role role,
                       struct kvr_error *error)
{
    const struct kvr_script_choice *choice = &store->choices[role];
    int rc = load(store, role, kvr_slice_of(choice->name), choice->path, choice->params,
                  choice->params_count, error);
    store->reloads += rc == 0;
    return rc;
}

int kvr_script_store_choose(struct kvr_script_store *store, enum kvr_script_role role,
                            struct kvr_slice name, const struct kvr_script_param *params,
                            uint32_t count, struct kvr_error *error)
{
    if (name.len == 0 && role == KVR_ROLE_SPILL) {
        store->spill_chosen = false;
        return follow_default_spill(store, KVR_ROLE_POLICY, error);
    }
    if (name.len == 0 && role != KVR_ROLE_POLICY) {
        forget(store, role);
        return follow_default_spill(store, role, error);
    }
    char path[KVR_SCRIPT_PATH_MAX];
    if (count > KVR_SCRIPT_PARAMS_LIST)
        return kvr_error_set(error, KVR_E_LIMIT, "more than %d params", KVR_SCRIPT_PARAMS_LIST);
    int rc = kvr_script_file_path(store->dir, role, name, path, error);
    if (rc == 0)
        rc = load(store, role, name, path, params, count, error);
    if (rc)
        return rc;
    remember(store, role, name, path, params, count);
    store->spill_chosen |= role == KVR_ROLE_SPILL;
    return 0;
}

int kvr_script_store_set_params(struct kvr_script_store *store, enum kvr_script_role role,
                                const struct kvr_script_param *params, uint32_t count,
                                struct kvr_error *error)
{
    struct kvr_script_choice *choice = &store->choices[role];
    if (!choice->path[0])
        return kvr_error_set(error, KVR_E_STATE, "no %s is in force", kvr_role_name(role));
    struct kvr_script_param merged[KVR_SCRIPT_PARAMS_LIST];
    uint32_t merged_count = choice->params_count;
    memcpy(merged, choice->params, merged_count * sizeof *merged);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < merged_count && !kvr_slice_equal(merged[at].key, params[i].key))
            at++;
        if (at == KVR_SCRIPT_PARAMS_LIST)
            return kvr_error_set(error, KVR_E_LIMIT, "more than %d params", KVR_SCRIPT_PARAMS_LIST);
        merged[at] = params[i];
        if (at == merged_count)
            merged_count++;
    }
    int rc =
        load(store, role, kvr_slice_of(choice->name), choice->path, merged, merged_count, error);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < count; i++)
        keep_param(choice, &params[i]);
    return 0;
}

int kvr_script_store_reload(struct kvr_script_store *store, struct kvr_error *error)
{
    int first = 0;
    for (int role = 0; role < KVR_ROLES; role++) {
        if (!store->choices[role].path[0])
            continue;
        int rc = reload_role(store, (enum kvr_script_role)role, first ? NULL : error);
        first = first ? first : rc;
    }
    return first;
}

static void on_changed(void *context, const char *path)
{
    struct kvr_script_store *store = context;
    for (int role = 0; role < KVR_ROLES; role++)
        if (strcmp(store->choices[role].path, path) == 0)
            (void)reload_role(store, (enum kvr_script_role)role, NULL);
}

void kvr_script_store_start(struct kvr_script_store *store, struct kvr_loop *loop,
                            struct kvr_router *router, const char *dir)
{
    memset(store, 0, sizeof *store);
    store->router = router;
    snprintf(store->dir, sizeof store->dir, "%s", dir);
    kvr_reloader_init(&store->reloader, loop, NULL, store, on_changed);
}

void kvr_script_store_close(struct kvr_script_store *store, void *context,
                            void (*on_closed)(void *context))
{
    for (int role = 0; role < KVR_ROLES; role++)
        free_params(&store->choices[role]);
    kvr_reloader_close(&store->reloader, context, on_closed);
}
