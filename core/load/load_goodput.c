#include "load_goodput.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *kvr_load_metric_name(enum kvr_load_metric metric)
{
    static const char *const names[KVR_LOAD_METRICS] = {
        [KVR_LOAD_TTFT] = "ttft",         [KVR_LOAD_TPOT] = "tpot",
        [KVR_LOAD_E2EL] = "e2el",         [KVR_LOAD_ITL_P50] = "itl_p50",
        [KVR_LOAD_ITL_MEAN] = "itl_mean", [KVR_LOAD_ITL_MAX] = "itl_max",
    };
    KVR_CHECK(metric < KVR_LOAD_METRICS);
    return names[metric];
}

static int add_one(struct kvr_load_goodput *goodput, struct kvr_slice item, struct kvr_error *error)
{
    const char *colon = item.len ? memchr(item.data, ':', item.len) : NULL;
    struct kvr_slice name = {item.data, colon ? (size_t)(colon - item.data) : item.len};
    char number[32];
    snprintf(number, sizeof number, "%.*s", colon ? (int)(item.len - name.len - 1) : 0,
             colon ? colon + 1 : "");
    char *end = number;
    double limit_ms = strtod(number, &end);
    if (!colon || *end || !(limit_ms > 0 && limit_ms < 1e12))
        return kvr_error_set(error, KVR_E_INVALID, "\"%.*s\" is not NAME:MILLISECONDS",
                             (int)item.len, item.data);
    for (unsigned i = 0; i < KVR_LOAD_METRICS; i++) {
        if (!kvr_slice_is(name, kvr_load_metric_name((enum kvr_load_metric)i)))
            continue;
        goodput->count += goodput->limit_ms[i] == 0;
        goodput->limit_ms[i] = limit_ms;
        return 0;
    }
    return kvr_error_set(error, KVR_E_INVALID,
                         "\"%.*s\" is none of ttft, tpot, e2el, itl_p50, itl_mean, itl_max",
                         (int)name.len, name.data);
}

int kvr_load_goodput_add(struct kvr_load_goodput *goodput, struct kvr_slice text,
                         struct kvr_error *error)
{
    while (text.len) {
        size_t len = 0;
        while (len < text.len && text.data[len] != ',' && text.data[len] != ' ')
            len++;
        int rc = len ? add_one(goodput, kvr_slice_make(text.data, len), error) : 0;
        if (rc)
            return rc;
        size_t skip = len < text.len ? len + 1 : len;
        text = kvr_slice_make(text.data + skip, text.len - skip);
    }
    return 0;
}

bool kvr_load_goodput_met(const struct kvr_load_goodput *goodput,
                          const double measured_ms[KVR_LOAD_METRICS])
{
    for (unsigned i = 0; i < KVR_LOAD_METRICS; i++)
        if (goodput->limit_ms[i] > 0 && !(measured_ms[i] <= goodput->limit_ms[i]))
            return false;
    return true;
}
