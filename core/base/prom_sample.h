/* Reads a line of a page in Prometheus's text format (0.0.4), as prom_writer.h writes them:
 *
 *   vllm:num_requests_running{model_name="m",engine="0"} 3.0
 *   name                      labels                     value
 *
 * Pages come from others, so it is not strict: what follows the value (a time, an exemplar) is not
 * looked at, and a line that is no sample is one to pass over. Slices point into the line. */
#ifndef KVR_PROM_SAMPLE_H
#define KVR_PROM_SAMPLE_H

#include <stdbool.h>

#include "slice.h"

struct kvr_prom_sample {
    struct kvr_slice name;
    struct kvr_slice labels; /* between the braces; empty: none */
    double value;            /* NaN: no number, or not finite */
};

/* One line, without its line feed. False: a comment, nothing, or torn. */
bool kvr_prom_sample_read(struct kvr_prom_sample *sample, struct kvr_slice line);

/* The raw value of a label; false without one. Escapes are left: what is looked for has none. */
bool kvr_prom_find_label(struct kvr_slice labels, const char *name, struct kvr_slice *value);
/* A label that is a number; NaN for none. */
double kvr_prom_label_number(struct kvr_slice labels, const char *name);

#endif
