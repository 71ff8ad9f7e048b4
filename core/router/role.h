/* What each of the router's script slots is for.
 *
 *   policy   decides                        spill           is asked after its picks for the cache
 *   canary   decides for some sessions      spill           the same
 *   shadow_N says what it would have done   shadow_N_spill  the same, for that shadow alone
 *   baseline decides in place of the first two once the envelope of a gate is left (envelope.h)
 *
 * Names are those of rows, metrics, logs and commands. */
#ifndef KVR_ROLE_H
#define KVR_ROLE_H

#include <stdbool.h>

#include "slice.h"
#include "slot.h"

#define KVR_SHADOWS_MAX 4

enum kvr_script_role {
    KVR_ROLE_POLICY,
    KVR_ROLE_SPILL,
    KVR_ROLE_CANARY,
    KVR_ROLE_SHADOW, /* KVR_SHADOWS_MAX of them, then as many spill rules in the same order */
    KVR_ROLE_SHADOW_SPILL = KVR_ROLE_SHADOW + KVR_SHADOWS_MAX,
    KVR_ROLE_BASELINE = KVR_ROLE_SHADOW_SPILL + KVR_SHADOWS_MAX,
    KVR_ROLES,
};

/* The i-th shadow, from 0, and its spill rule. */
enum kvr_script_role kvr_role_shadow(uint32_t i);
enum kvr_script_role kvr_role_shadow_spill(uint32_t i);

/* Constant: "policy", "spill", "canary", "shadow_1", ..., "shadow_1_spill", ..., "baseline" */
const char *kvr_role_name(enum kvr_script_role role);
/* KVR_ROLES when none has that name. */
enum kvr_script_role kvr_role_named(struct kvr_slice name);
enum kvr_script_kind kvr_role_kind(enum kvr_script_role role);
/* The role of the spill rule that is asked after the picks of this policy. */
enum kvr_script_role kvr_role_spill(enum kvr_script_role policy);

#endif
