#include "role.h"

#include "check.h"

enum kvr_script_role kvr_role_shadow(uint32_t i)
{
    KVR_CHECK(i < KVR_SHADOWS_MAX);
    return (enum kvr_script_role)(KVR_ROLE_SHADOW + i);
}

enum kvr_script_role kvr_role_shadow_spill(uint32_t i)
{
    KVR_CHECK(i < KVR_SHADOWS_MAX);
    return (enum kvr_script_role)(KVR_ROLE_SHADOW_SPILL + i);
}

const char *kvr_role_name(enum kvr_script_role role)
{
    static const char *const names[] = {
        "policy",         "spill",          "canary",         "shadow_1",
        "shadow_2",       "shadow_3",       "shadow_4",       "shadow_1_spill",
        "shadow_2_spill", "shadow_3_spill", "shadow_4_spill", "baseline",
    };
    _Static_assert(sizeof names / sizeof names[0] == KVR_ROLES, "a name for each role");
    KVR_CHECK(role < KVR_ROLES);
    return names[role];
}

enum kvr_script_role kvr_role_named(struct kvr_slice name)
{
    int role = 0;
    while (role < KVR_ROLES && !kvr_slice_is(name, kvr_role_name((enum kvr_script_role)role)))
        role++;
    return (enum kvr_script_role)role;
}

enum kvr_script_kind kvr_role_kind(enum kvr_script_role role)
{
    KVR_CHECK(role < KVR_ROLES);
    bool of_shadow = role >= KVR_ROLE_SHADOW_SPILL && role < KVR_ROLE_BASELINE;
    return role == KVR_ROLE_SPILL || of_shadow ? KVR_SCRIPT_SPILL : KVR_SCRIPT_POLICY;
}

enum kvr_script_role kvr_role_spill(enum kvr_script_role policy)
{
    KVR_CHECK(kvr_role_kind(policy) == KVR_SCRIPT_POLICY);
    if (policy < KVR_ROLE_SHADOW || policy >= KVR_ROLE_BASELINE)
        return KVR_ROLE_SPILL;
    return kvr_role_shadow_spill((uint32_t)policy - KVR_ROLE_SHADOW);
}
