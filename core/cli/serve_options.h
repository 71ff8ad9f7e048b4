/* From a configuration to the options of an ingress: units, defaults of paths, keys from files. */
#ifndef KVR_SERVE_OPTIONS_H
#define KVR_SERVE_OPTIONS_H

#include "config.h"
#include "error.h"
#include "ingress.h"

/* Texts of `options` live as long as `config`. */
int kvr_serve_options(struct kvr_ingress_options *options, const struct kvr_config *config,
                      struct kvr_error *error);
/* Puts policy, spill rule, canary and shadows in force. */
int kvr_serve_choose_scripts(struct kvr_script_store *store, const struct kvr_config *config,
                             struct kvr_error *error);
int kvr_serve_add_replicas(struct kvr_ingress *ingress, const struct kvr_config *config,
                           struct kvr_error *error);
/* Puts the place of this setting before the reason: "kvroute.lua:4: policy: ". Returns its code. */
int kvr_serve_blame(const struct kvr_config *config, const char *name, struct kvr_error *error);
/* The same where the ingress did not start, for the setting that the reason is about. */
int kvr_serve_blame_start(const struct kvr_ingress *ingress, const struct kvr_config *config,
                          struct kvr_error *error);
/* Prints all settings; returns an exit code. */
int kvr_serve_print_settings(void);

#endif
