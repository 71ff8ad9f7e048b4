/* Settings that came from outside a script's file: a sorted, owned set of key = value texts that
 * overrides defaults in `params`. */
#ifndef KVR_OVERRIDES_H
#define KVR_OVERRIDES_H

#include "slot.h"

#define KVR_OVERRIDES_MAX 32

struct kvr_overrides {
    struct kvr_script_param list[KVR_OVERRIDES_MAX]; /* ascending by key; texts are owned */
    uint32_t count;
};

void kvr_overrides_deinit(struct kvr_overrides *overrides);
/* Adds or replaces each. KVR_E_LIMIT past KVR_OVERRIDES_MAX. */
int kvr_overrides_merge(struct kvr_overrides *overrides, const struct kvr_script_param *params,
                        uint32_t count, struct kvr_error *error);
bool kvr_overrides_equal(const struct kvr_overrides *a, const struct kvr_overrides *b);

#endif
