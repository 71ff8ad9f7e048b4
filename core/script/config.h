/* Reads a configuration: a Lua file whose top-level assignments are settings.
 *
 *   listen = "0.0.0.0:8080"
 *   replicas = { { url = "http://127.0.0.1:8001" }, { url = "http://127.0.0.1:8002", weight = 2 } }
 *   health.interval_ms = 500                        -- or: health = { interval_ms = 500 }
 *   admin.token = env("KVROUTE_TOKEN")
 *
 * Unknown keys, wrong types and values out of range are refused with key, value and line; values of
 * secrets are never shown. The shape is described once, in config_schema.lua, beside its defaults;
 * C gets flat answers. A configuration is read at start; policies' params may change at run time,
 * nothing else does. */
#ifndef KVR_CONFIG_H
#define KVR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "error.h"
#include "slice.h"

struct kvr_config;

/* `path` is for messages only. NULL text: the defaults. Returns NULL on failure. */
struct kvr_config *kvr_config_read(const char *path, struct kvr_slice text,
                                   struct kvr_error *error);
/* The same of a file of client keys, whose shape is client_schema.lua. */
struct kvr_config *kvr_config_read_clients(const char *path, struct kvr_slice text,
                                           struct kvr_error *error);
/* And of an emulated engine's profile, whose shape is profile_schema.lua. */
struct kvr_config *kvr_config_read_profile(const char *path, struct kvr_slice text,
                                           struct kvr_error *error);
/* NULL is allowed. */
void kvr_config_destroy(struct kvr_config *config);

/* Settings by dotted name ("health.interval_ms", "replicas.1.url"); arrays count from 1. The name
 * must exist in the schema: asking for another is a bug. Strings live as long as the config and are
 * NULL when empty. The text of a list of texts is its first. Entries of free-form tables such as
 * `params` are texts, whatever the file gave. "@NAME" is where the setting of that name was made,
 * for the beginning of a message: "kvroute.lua:4: health.path: ". */
const char *kvr_config_text(const struct kvr_config *config, const char *name);
double kvr_config_number(const struct kvr_config *config, const char *name);
bool kvr_config_bool(const struct kvr_config *config, const char *name);
/* Items of a list, or entries of a free-form table. */
uint32_t kvr_config_count(const struct kvr_config *config, const char *name);
/* The i-th (from 0) key of a free-form table, NULL past the end. Ascending. */
const char *kvr_config_key(const struct kvr_config *config, const char *name, uint32_t i);
/* Sets one key as if the file had said so (command-line flags win over the file). On failure
 * nothing has changed. What was answered before stays valid. */
int kvr_config_set(struct kvr_config *config, const char *name, struct kvr_slice value,
                   struct kvr_error *error);

/* Appends one line a setting: name, default, what it means. */
void kvr_config_describe(struct kvr_buffer *out);

#endif
