/* The commands of admin.h about scripts. */
#include <stdio.h>
#include <string.h>

#include "admin_call.h"
#include "guard.h"
#include "log.h"
#include "memory.h"
#include "metrics_text.h"
#include "script_names.h"

/* ---- telling ---- */

/* The answer to a command tells of what the command has just done: now is later than the call. */
static void write_age(struct kvr_json_writer *json, const char *key, uint64_t since_ns)
{
    uint64_t age_ms = (kvr_loop_now() - since_ns) / 1000000;
    if (since_ns == 0)
        kvr_json_null(json, key);
    else
        kvr_json_double(json, key, (double)age_ms / 1e3);
}

static void write_error(struct kvr_json_writer *json, const char *text)
{
    if (*text)
        kvr_json_text(json, "error", text);
    else
        kvr_json_null(json, "error");
}

/* Shadows and the baseline of a gate are told of while they are there. */
static bool is_told(const struct kvr_router *router, enum kvr_script_role role)
{
    return role <= KVR_ROLE_CANARY || kvr_slot_info(kvr_router_slot(router, role));
}

void kvr_admin_write_scripts(const struct kvr_ingress *ingress, struct kvr_json_writer *json,
                             const char *key)
{
    kvr_json_object_begin(json, key);
    for (int i = 0; i < KVR_ROLES; i++) {
        enum kvr_script_role role = (enum kvr_script_role)i;
        const struct kvr_slot *slot = kvr_router_slot(&ingress->router, role);
        const struct kvr_script_info *info = kvr_slot_info(slot);
        if (!is_told(&ingress->router, role))
            continue;
        if (!info) {
            kvr_json_null(json, kvr_role_name(role));
            continue;
        }
        kvr_json_object_begin(json, kvr_role_name(role));
        kvr_json_text(json, "name", info->name);
        kvr_json_uint(json, "generation", info->generation);
        kvr_json_hex64(json, "hash", info->hash);
        kvr_json_text(json, "params", info->params);
        kvr_json_bool(json, "quarantined", kvr_slot_quarantined(slot));
        write_error(json, kvr_slot_last_error(slot));
        kvr_json_object_end(json);
    }
    kvr_json_object_end(json);
}

/* What was set from outside the file. */
static void write_params(struct kvr_json_writer *json, const struct kvr_script_choice *choice)
{
    kvr_json_object_begin(json, "set");
    for (uint32_t i = 0; i < choice->params_count; i++) {
        const struct kvr_script_param *param = &choice->params[i];
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)param->key.len, param->key.data);
        kvr_json_string(json, key, param->value);
    }
    kvr_json_object_end(json);
}

static void write_needs(struct kvr_json_writer *json, uint32_t needs)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{KVR_NEEDS_MATCH, "match"},         {KVR_NEEDS_PLAN, "plan"},
                 {KVR_NEEDS_RESIDENCY, "residency"}, {KVR_NEEDS_KEYS, "keys"},
                 {KVR_NEEDS_OPENINGS, "openings"},   {KVR_NEEDS_WORK, "work"},
                 {KVR_NEEDS_ACTIVE, "active"}};
    kvr_json_array_begin(json, "needs");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (needs & names[i].bit)
            kvr_json_text(json, NULL, names[i].name);
    kvr_json_array_end(json);
}

static void write_counters(struct kvr_json_writer *json, const struct kvr_script_counters *counters)
{
    kvr_json_object_begin(json, "counters");
    kvr_json_uint(json, "calls", counters->calls);
    kvr_json_uint(json, "errors", counters->errors);
    kvr_json_uint(json, "bad_results", counters->bad_results);
    kvr_json_uint(json, "slow", counters->slow);
    kvr_json_uint(json, "runaways", counters->runaways);
    kvr_json_uint(json, "memory", counters->memory);
    kvr_json_uint(json, "loads", counters->loads);
    kvr_json_uint(json, "refusals", counters->refusals);
    kvr_json_uint(json, "quarantines", counters->quarantines);
    kvr_json_object_end(json);
}

/* Of the script in force, over its generations; the counters are the role's since the start. */
static void write_since(struct kvr_json_writer *json, const struct kvr_slot *slot)
{
    struct kvr_script_counters since = kvr_slot_since_chosen(slot);
    kvr_json_object_begin(json, "since_chosen");
    kvr_json_uint(json, "calls", since.calls);
    kvr_json_uint(json, "failed", since.errors + since.bad_results + since.runaways + since.memory);
    kvr_json_uint(json, "refused", since.refusals);
    kvr_json_object_end(json);
}

static void write_names(struct kvr_json_writer *json, const char *key, const char *dir,
                        enum kvr_script_kind kind)
{
    struct kvr_script_names *names = kvr_alloc(sizeof *names);
    kvr_script_names_read(names, dir, kind);
    kvr_json_array_begin(json, key);
    for (uint32_t i = 0; i < names->count; i++)
        kvr_json_text(json, NULL, names->list[i]);
    kvr_json_array_end(json);
    kvr_free(names);
}

static void write_script(struct kvr_json_writer *json, const struct kvr_admin_call *call,
                         enum kvr_script_role role)
{
    const struct kvr_script_store *store = &call->ingress->scripts;
    const struct kvr_script_choice *choice = &store->choices[role];
    const struct kvr_slot *slot = kvr_router_slot(&call->ingress->router, role);
    const struct kvr_script_info *info = kvr_slot_info(slot);
    kvr_json_object_begin(json, NULL);
    kvr_json_text(json, "role", kvr_role_name(role));
    kvr_json_bool(json, "in_force", info != NULL);
    if (info) {
        kvr_json_text(json, "name", info->name);
        kvr_json_text(json, "path", info->path);
        kvr_json_hex64(json, "hash", info->hash);
        kvr_json_uint(json, "generation", info->generation);
        kvr_json_text(json, "params", info->params);
        kvr_json_hex64(json, "params_hash", info->params_hash);
        write_params(json, choice);
        write_needs(json, info->needs);
        kvr_json_uint(json, "memory_bytes", kvr_slot_memory(slot));
    }
    if (role == KVR_ROLE_SPILL)
        kvr_json_bool(json, "chosen", store->spill_chosen);
    if (role == KVR_ROLE_CANARY)
        kvr_json_double(json, "share", call->ingress->router.options.canary_share);
    write_age(json, "loaded_s", info ? choice->loaded_ns : 0);
    write_age(json, "refused_s", choice->refused_ns);
    kvr_json_bool(json, "quarantined", kvr_slot_quarantined(slot));
    write_error(json, kvr_slot_last_error(slot));
    write_since(json, slot);
    write_counters(json, kvr_slot_counters(slot));
    kvr_json_object_end(json);
}

void kvr_admin_scripts(struct kvr_admin_call *call)
{
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "policies_dir", call->ingress->scripts.dir);
    write_names(&json, "policies", call->ingress->scripts.dir, KVR_SCRIPT_POLICY);
    write_names(&json, "spill_rules", call->ingress->scripts.dir, KVR_SCRIPT_SPILL);
    kvr_json_uint(&json, "reloads", call->ingress->scripts.reloads);
    kvr_json_uint(&json, "refusals", call->ingress->scripts.refusals);
    kvr_json_uint(&json, "abandoned_vms", kvr_guard_abandoned());
    kvr_json_bool(&json, "lua_off", kvr_guard_exhausted());
    kvr_json_array_begin(&json, "scripts");
    for (int i = 0; i < KVR_ROLES; i++)
        if (is_told(&call->ingress->router, (enum kvr_script_role)i))
            write_script(&json, call, (enum kvr_script_role)i);
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* ---- setting ---- */

/* Says what stays, so that nobody has to ask. */
static void refuse_load(struct kvr_admin_call *call, enum kvr_script_role role, const char *param,
                        const struct kvr_error *error)
{
    const struct kvr_script_info *info =
        kvr_slot_info(kvr_router_slot(&call->ingress->router, role));
    struct kvr_error told = {.code = error->code};
    if (info)
        snprintf(told.text, sizeof told.text, "%.*s; %s %s (generation %u) stays in force",
                 (int)(sizeof told.text - 160), error->text, kvr_role_name(role), info->name,
                 info->generation);
    else
        snprintf(told.text, sizeof told.text, "%s", error->text);
    kvr_admin_refuse_error(call, param, &told);
}

/* True when the script was put in force; else answered. */
static bool choose(struct kvr_admin_call *call, enum kvr_script_role role)
{
    const struct kvr_admin_body *body = call->body;
    struct kvr_error error = {0};
    if (kvr_script_store_choose(&call->ingress->scripts, role, body->name, body->params,
                                body->params_count, &error) == 0)
        return true;
    refuse_load(call, role, "name", &error);
    return false;
}

void kvr_admin_policy(struct kvr_admin_call *call)
{
    if (call->body->name.len == 0)
        kvr_admin_refuse(call, 400, "invalid_value", "name", "name: a policy is expected");
    else if (choose(call, KVR_ROLE_POLICY))
        kvr_admin_scripts(call);
}

void kvr_admin_spill(struct kvr_admin_call *call)
{
    if (choose(call, KVR_ROLE_SPILL))
        kvr_admin_scripts(call);
}

/* A name needs a share, unless one is set already; a share alone is for the canary in force. */
void kvr_admin_canary(struct kvr_admin_call *call)
{
    const struct kvr_admin_body *body = call->body;
    struct kvr_router *router = &call->ingress->router;
    bool has_name = (body->given & KVR_FIELD_NAME) != 0;
    bool has_share = (body->given & KVR_FIELD_SHARE) != 0;
    bool off = has_name && body->name.len == 0;
    double share = has_share ? body->share : router->options.canary_share;
    if (!has_name && !has_share) {
        kvr_admin_refuse(call, 400, "invalid_value", "name", "name: is needed, or share");
        return;
    }
    if (!has_name && !kvr_slot_info(router->slots[KVR_ROLE_CANARY])) {
        kvr_admin_refuse(call, 409, "not_possible_now", "name", "name: no canary is in force yet");
        return;
    }
    if (!off && !(share > 0)) {
        kvr_admin_refuse(call, 400, "invalid_value", "share",
                         "share: a number above 0 and up to 1 is needed");
        return;
    }
    if (has_name && !choose(call, KVR_ROLE_CANARY))
        return;
    router->options.canary_share = off ? 0 : share;
    kvr_log(KVR_LOG_INFO, "canary share is %g by the operator", router->options.canary_share);
    kvr_admin_scripts(call);
}

void kvr_admin_params(struct kvr_admin_call *call)
{
    const struct kvr_admin_body *body = call->body;
    enum kvr_script_role role = kvr_role_named(body->role);
    if (role == KVR_ROLES) {
        kvr_admin_refuse(call, 400, "invalid_value", "role",
                         "role: policy, spill, canary, shadow_1, shadow_1_spill, ... is expected, "
                         "not \"%.*s\"",
                         body->role.len < 80 ? (int)body->role.len : 80, body->role.data);
        return;
    }
    struct kvr_error error = {0};
    if (kvr_script_store_set_params(&call->ingress->scripts, role, body->params, body->params_count,
                                    &error))
        refuse_load(call, role, "params", &error);
    else
        kvr_admin_scripts(call);
}

void kvr_admin_reload(struct kvr_admin_call *call)
{
    struct kvr_error error = {0};
    if (kvr_script_store_reload(&call->ingress->scripts, &error))
        kvr_admin_refuse_error(call, NULL, &error);
    else
        kvr_admin_scripts(call);
}
