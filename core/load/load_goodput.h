/* What a good request is: limits on what it measured, as `vllm bench serve --goodput` takes them,
 * ttft:990 tpot:24 e2el:5000, and three more for the gaps of the request's own stream, itl_p50,
 * itl_mean and itl_max. In milliseconds of simulated time; a limit that is just met is met. */
#ifndef KVR_LOAD_GOODPUT_H
#define KVR_LOAD_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "slice.h"

enum kvr_load_metric {
    KVR_LOAD_TTFT,
    KVR_LOAD_TPOT,
    KVR_LOAD_E2EL,
    KVR_LOAD_ITL_P50,
    KVR_LOAD_ITL_MEAN,
    KVR_LOAD_ITL_MAX,
    KVR_LOAD_METRICS,
};

struct kvr_load_goodput {
    double limit_ms[KVR_LOAD_METRICS]; /* 0: none */
    uint32_t count;                    /* of limits; 0: every request that succeeds is good */
};

/* "ttft" and so on, as in the text. */
const char *kvr_load_metric_name(enum kvr_load_metric metric);
/* Adds the limits of a text such as "ttft:990,itl_p50:24" or "ttft:990". */
int kvr_load_goodput_add(struct kvr_load_goodput *goodput, struct kvr_slice text,
                         struct kvr_error *error) KVR_MUST_USE;
/* By what one request measured. */
bool kvr_load_goodput_met(const struct kvr_load_goodput *goodput,
                          const double measured_ms[KVR_LOAD_METRICS]);

#endif
