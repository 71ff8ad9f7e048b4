/* The part of sim.h that puts scripts in force. */
#include "memory.h"
#include "rng.h"
#include "sim_parts.h"

int kvr_sim_load(struct kvr_sim *sim, const char *role_name, const char *name, const char *text,
                 const struct kvr_sim_param *params, uint32_t params_len, struct kvr_error *error)
{
    enum kvr_script_role role = kvr_role_named(kvr_slice_of(role_name));
    if (role == KVR_ROLES)
        return kvr_error_set(error, KVR_E_NOT_FOUND, "no script role is named %s", role_name);
    struct kvr_script_param *list = kvr_alloc_zero(params_len + 1, sizeof *list);
    for (uint32_t i = 0; i < params_len; i++)
        list[i] =
            (struct kvr_script_param){kvr_slice_of(params[i].key), kvr_slice_of(params[i].value)};
    kvr_router_settle(&sim->router);
    int failed = kvr_slot_load(kvr_router_slot(&sim->router, role), kvr_slice_of(name),
                               (struct kvr_slice){0}, kvr_slice_of(text), list, params_len, error);
    kvr_free(list);
    if (failed)
        return failed;
    kvr_router_scripts_changed(&sim->router);
    return KVR_OK;
}

static const struct kvr_script_info *script_of(const struct kvr_sim *sim, const char *role_name)
{
    enum kvr_script_role role = kvr_role_named(kvr_slice_of(role_name));
    return role == KVR_ROLES ? NULL : kvr_slot_info(kvr_router_slot(&sim->router, role));
}

uint64_t kvr_sim_script_hash(const struct kvr_sim *sim, const char *role)
{
    const struct kvr_script_info *info = script_of(sim, role);
    return info ? kvr_mix64(info->hash) ^ info->params_hash : 0;
}

uint64_t kvr_sim_params_hash(const struct kvr_sim *sim, const char *role)
{
    const struct kvr_script_info *info = script_of(sim, role);
    return info ? info->params_hash : 0;
}

uint32_t kvr_sim_script_needs(const struct kvr_sim *sim, const char *role)
{
    const struct kvr_script_info *info = script_of(sim, role);
    return info ? info->needs : 0;
}

const char *kvr_sim_default_spill(const struct kvr_sim *sim)
{
    const struct kvr_script_info *info = script_of(sim, "policy");
    return info ? info->default_spill : "";
}
