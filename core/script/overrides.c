#include "overrides.h"

#include "memory.h"

static void release(struct kvr_slice slice)
{
    kvr_free((void *)(uintptr_t)slice.data);
}

static struct kvr_slice copy(struct kvr_slice slice)
{
    return kvr_slice_make(kvr_strndup(slice.data ? slice.data : "", slice.len), slice.len);
}

void kvr_overrides_deinit(struct kvr_overrides *overrides)
{
    for (uint32_t i = 0; i < overrides->count; i++) {
        release(overrides->list[i].key);
        release(overrides->list[i].value);
    }
    overrides->count = 0;
}

static int compare(struct kvr_slice a, struct kvr_slice b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.data, b.data, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int merge_one(struct kvr_overrides *overrides, const struct kvr_script_param *param,
                     struct kvr_error *error)
{
    uint32_t at = 0;
    while (at < overrides->count && compare(overrides->list[at].key, param->key) < 0)
        at++;
    if (at < overrides->count && kvr_slice_equal(overrides->list[at].key, param->key)) {
        struct kvr_slice old = overrides->list[at].value;
        overrides->list[at].value = copy(param->value);
        release(old);
        return 0;
    }
    if (overrides->count == KVR_OVERRIDES_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "more than %d params", KVR_OVERRIDES_MAX);
    memmove(&overrides->list[at + 1], &overrides->list[at],
            (overrides->count - at) * sizeof overrides->list[0]);
    overrides->list[at] = (struct kvr_script_param){copy(param->key), copy(param->value)};
    overrides->count++;
    return 0;
}

int kvr_overrides_merge(struct kvr_overrides *overrides, const struct kvr_script_param *params,
                        uint32_t count, struct kvr_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        int rc = merge_one(overrides, &params[i], error);
        if (rc)
            return rc;
    }
    return 0;
}

bool kvr_overrides_equal(const struct kvr_overrides *a, const struct kvr_overrides *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!kvr_slice_equal(a->list[i].key, b->list[i].key) ||
            !kvr_slice_equal(a->list[i].value, b->list[i].value))
            return false;
    return true;
}
