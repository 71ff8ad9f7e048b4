/* The options of a workload (workload.h) by name, for --set NAME=VALUE. */
#ifndef KVR_LOAD_SETTINGS_H
#define KVR_LOAD_SETTINGS_H

#include <stdio.h>

#include "error.h"
#include "workload.h"

/* `setting` is NAME=VALUE. */
int kvr_load_set(struct kvr_workload_options *options, const char *setting,
                 struct kvr_error *error) KVR_MUST_USE;
/* All of them, with the values in `options`. */
void kvr_load_print_settings(const struct kvr_workload_options *options, FILE *out);

#endif
