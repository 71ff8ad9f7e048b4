/* The JSON bodies of requests: a workload's pieces as messages of a chat, or as one prompt. A body
 * is a function of the request and of what is fixed here, so it can be written again. */
#ifndef KVR_LOAD_BODY_H
#define KVR_LOAD_BODY_H

#include <stdbool.h>

#include "buffer.h"
#include "error.h"
#include "slice.h"
#include "workload.h"

enum kvr_load_api { KVR_LOAD_CHAT, KVR_LOAD_COMPLETIONS };

struct kvr_load_body {
    enum kvr_load_api api;
    struct kvr_buffer start; /* up to the messages, or to the prompt */
    struct kvr_buffer end;   /* behind max_tokens */
};

/* `extra`: members to add, a JSON object; empty: none. KVR_E_INVALID when it is no object. */
int kvr_load_body_init(struct kvr_load_body *body, enum kvr_load_api api, const char *model,
                       bool stream, struct kvr_slice extra, struct kvr_error *error) KVR_MUST_USE;
void kvr_load_body_deinit(struct kvr_load_body *body);
/* Where such bodies go, below the target's base. */
const char *kvr_load_api_path(enum kvr_load_api api);

void kvr_load_body_write(const struct kvr_load_body *body,
                         const struct kvr_workload_request *request, struct kvr_buffer *out);

#endif
