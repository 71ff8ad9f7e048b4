/* The JSON body of a command to the admin interface, read into the fields that commands know. Every
 * field is checked for its kind; a field that the command does not know, that stands there twice
 * or that is missing is an error that names it. null counts as missing. */
#ifndef KVR_ADMIN_BODY_H
#define KVR_ADMIN_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "error.h"
#include "header.h"
#include "replica.h"
#include "script_store.h"

/* One bit each. */
enum kvr_admin_field {
    KVR_FIELD_URL = 1 << 0,
    KVR_FIELD_KEY = 1 << 1,
    KVR_FIELD_REPLICA = 1 << 2,
    KVR_FIELD_NAME = 1 << 3,
    KVR_FIELD_ROLE = 1 << 4,
    KVR_FIELD_LEVEL = 1 << 5,
    KVR_FIELD_WEIGHT = 1 << 6,
    KVR_FIELD_SHARE = 1 << 7,
    KVR_FIELD_CAPACITY = 1 << 8,
    KVR_FIELD_RANK = 1 << 9,
    KVR_FIELD_ANY_MODEL = 1 << 10,
    KVR_FIELD_MODELS = 1 << 11,
    KVR_FIELD_PARAMS = 1 << 12,
    KVR_FIELD_SHADOWS = 1 << 13,
    KVR_FIELD_PATH = 1 << 14,
    KVR_FIELD_HEADERS = 1 << 15,
    KVR_FIELD_BODY = 1 << 16,
    KVR_FIELD_FILE = 1 << 17,
    KVR_FIELD_WHY = 1 << 18,
};

#define KVR_ADMIN_HEADERS_MAX 64

/* Slices point into `text` or into the JSON, which must stay. What was not given is zero. */
struct kvr_admin_body {
    uint32_t given; /* KVR_FIELD_* */
    struct kvr_slice url;
    struct kvr_slice key; /* secret */
    struct kvr_slice replica;
    struct kvr_slice name;
    struct kvr_slice role;
    struct kvr_slice level;
    double weight;     /* > 0 */
    double share;      /* 0 .. 1 */
    uint32_t capacity; /* 0: unlimited */
    int32_t rank;      /* -1: none, also when not given */
    bool any_model;
    struct kvr_slice models[KVR_REPLICA_MODELS_MAX];
    uint32_t models_count;
    struct kvr_script_param params[KVR_SCRIPT_PARAMS_LIST];
    uint32_t params_count;
    struct kvr_script_wish shadows[KVR_SHADOWS_MAX];
    uint32_t shadows_count;
    struct kvr_slice file;
    struct kvr_slice why;
    struct kvr_slice path;
    struct kvr_header headers[KVR_ADMIN_HEADERS_MAX];
    uint32_t headers_count;
    struct kvr_slice body;  /* any JSON, as it stands */
    struct kvr_buffer text; /* decoded strings */
};

/* `allowed` and `required` are KVR_FIELD_*. On failure the reason is in `error`, and the field it
 * is about in *field (constant; NULL: the body as a whole). Deinit in either case. */
int kvr_admin_body_read(struct kvr_admin_body *body, struct kvr_slice json, uint32_t allowed,
                        uint32_t required, const char **field, struct kvr_error *error);
void kvr_admin_body_deinit(struct kvr_admin_body *body);

#endif
