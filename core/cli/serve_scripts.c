/* The part of serve_options.h that puts the configured scripts in force. */
#include <stdio.h>
#include <string.h>

#include "serve_options.h"

int kvr_serve_blame(const struct kvr_config *config, const char *name, struct kvr_error *error)
{
    char place_name[192];
    struct kvr_error told = {.code = error->code};
    snprintf(place_name, sizeof place_name, "@%s", name);
    snprintf(told.text, sizeof told.text, "%s", kvr_config_text(config, place_name));
    size_t len = strlen(told.text);
    snprintf(told.text + len, sizeof told.text - len, "%s", error->text);
    *error = told;
    return error->code;
}

/* Does the message of a script that was refused name this param of it? */
static bool names_param(const char *message, const char *key)
{
    static const char *const forms[] = {"param %s: ", "params.%s: ", "no param named %s;"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char form[192];
        int len = (int)strcspn(forms[i], "%");
        snprintf(form, sizeof form, "%.*s%s%s", len, forms[i], key, forms[i] + len + 2);
        if (strstr(message, form))
            return true;
    }
    return false;
}

static void drop_first(struct kvr_error *error, size_t bytes)
{
    memmove(error->text, error->text + bytes, strlen(error->text + bytes) + 1);
}

/* A script is refused for what it is, or for a param that it is given. */
static int blame_script(const struct kvr_config *config, const char *name, const char *params_table,
                        struct kvr_error *error)
{
    const char *key;
    for (uint32_t i = 0; (key = kvr_config_key(config, params_table, i)); i++) {
        char param[160];
        snprintf(param, sizeof param, "%s.%s", params_table, key);
        if (strlen(key) >= 96 || !names_param(error->text, key))
            continue;
        if (strncmp(error->text, "params.spill: ", strlen("params.spill: ")) == 0)
            drop_first(error, strlen("params.spill: ")); /* the place says so */
        return kvr_serve_blame(config, param, error);
    }
    return kvr_serve_blame(config, name, error);
}

/* The entries of a free-form table as params of a script. */
static uint32_t read_params(const struct kvr_config *config, const char *table,
                            struct kvr_script_param *params)
{
    uint32_t at = 0;
    const char *key;
    while (at < KVR_SCRIPT_PARAMS_LIST && (key = kvr_config_key(config, table, at))) {
        char name[192];
        snprintf(name, sizeof name, "%s.%s", table, key);
        params[at++] = (struct kvr_script_param){kvr_slice_of(key),
                                                 kvr_slice_of(kvr_config_text(config, name))};
    }
    return at;
}

static int choose(struct kvr_script_store *store, enum kvr_script_role role,
                  const struct kvr_config *config, const char *name, const char *params_table,
                  struct kvr_error *error)
{
    struct kvr_script_param params[KVR_SCRIPT_PARAMS_LIST];
    const char *script = kvr_config_text(config, name);
    if (!script || !*script)
        return 0;
    uint32_t n = read_params(config, params_table, params);
    int rc = kvr_script_store_choose(store, role, kvr_slice_of(script), params, n, error);
    return rc ? blame_script(config, name, params_table, error) : 0;
}

/* Which of the shadows the message is about; it begins with the role of that. */
static int blame_shadow(const struct kvr_config *config, uint32_t count, struct kvr_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        char name[64], params[64];
        const char *role = kvr_role_name(kvr_role_shadow(i));
        size_t len = strlen(role);
        if (strncmp(error->text, role, len) != 0 || strncmp(error->text + len, ": ", 2) != 0)
            continue;
        drop_first(error, len + 2);
        snprintf(name, sizeof name, "shadow.%u.policy", i + 1);
        snprintf(params, sizeof params, "shadow.%u.params", i + 1);
        return blame_script(config, name, params, error);
    }
    return error->code;
}

static int choose_shadows(struct kvr_script_store *store, const struct kvr_config *config,
                          struct kvr_error *error)
{
    struct kvr_script_wish wishes[KVR_SHADOWS_MAX] = {0};
    uint32_t n = kvr_config_count(config, "shadow");
    char name[64];
    for (uint32_t i = 0; i < n && i < KVR_SHADOWS_MAX; i++) {
        snprintf(name, sizeof name, "shadow.%u.policy", i + 1);
        wishes[i].name = kvr_slice_of(kvr_config_text(config, name));
        snprintf(name, sizeof name, "shadow.%u.params", i + 1);
        wishes[i].params_count = read_params(config, name, wishes[i].params);
    }
    if (kvr_script_store_set_shadows(store, wishes, n, error))
        return blame_shadow(config, n, error);
    for (uint32_t i = 0; i < n; i++) {
        struct kvr_script_param params[KVR_SCRIPT_PARAMS_LIST];
        char policy[64];
        snprintf(name, sizeof name, "shadow.%u.spill_params", i + 1);
        snprintf(policy, sizeof policy, "shadow.%u.policy", i + 1);
        uint32_t count = read_params(config, name, params);
        if (count &&
            kvr_script_store_set_params(store, kvr_role_shadow_spill(i), params, count, error))
            return blame_script(config, policy, name, error);
    }
    return 0;
}

int kvr_serve_choose_scripts(struct kvr_script_store *store, const struct kvr_config *config,
                             struct kvr_error *error)
{
    store->quiet = true; /* the caller tells of a refusal, and where to repair it */
    int rc = choose(store, KVR_ROLE_SPILL, config, "spill", "spill_params", error);
    if (rc == 0)
        rc = choose(store, KVR_ROLE_POLICY, config, "policy", "params", error);
    if (rc == 0)
        rc = choose(store, KVR_ROLE_CANARY, config, "canary.policy", "canary.params", error);
    if (rc == 0)
        rc = choose_shadows(store, config, error);
    store->quiet = false;
    return rc;
}
