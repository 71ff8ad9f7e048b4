/* How the router's refusals are told to a client: one status, code and wording each. */
#ifndef KVR_REJECTION_H
#define KVR_REJECTION_H

#include <stddef.h>

#include "client.h"
#include "router.h"

struct kvr_rejection_answer {
    struct kvr_api_error error;
};

const struct kvr_rejection_answer *kvr_rejection_answer(enum kvr_rejection rejection);
/* Writes the sentence: what was asked for, by name, and what is in the way. `failure` is why the
 * last dispatch failed, or NULL. */
void kvr_rejection_message(enum kvr_rejection rejection, const char *model, const char *failure,
                           char *out, size_t room);

#endif
