/* The key by which a request is counted and planned (window.h, plan.h): whose prompts have enough
 * in common that they belong to the same replicas. What it is the operator says:
 *
 *   session   the conversation, as session.h finds it
 *   tenant    the tenant, as session.h finds it
 *   key       the value of a header, else of a body field of that name: a top-level one, or
 *             metadata.NAME
 *   blocks    the prompt's first blocks, or all of a shorter prompt; of one model, LoRA and salt
 *
 * A request that has none of what was chosen goes by its session. The key is counted and planned
 * under the model that the request names (model_key.h). */
#ifndef KVR_ROUTING_KEY_H
#define KVR_ROUTING_KEY_H

#include "session.h"

enum kvr_routing_by { KVR_BY_SESSION, KVR_BY_TENANT, KVR_BY_KEY, KVR_BY_BLOCKS };

struct kvr_routing_options {
    enum kvr_routing_by by;
    struct kvr_slice key; /* BY_KEY: the name; also kvr_api_options.routing_field */
    uint32_t blocks;      /* BY_BLOCKS; > 0 */
};

/* `chain` is the prompt's, of `chain_len` blocks. 0: there is not even a session. */
uint64_t kvr_routing_key(const struct kvr_routing_options *options,
                         const struct kvr_header *headers, size_t count,
                         const struct kvr_api_request *request, const struct kvr_session *session,
                         const uint64_t *chain, uint32_t chain_len);

/* The key that a text names, for lists of keys that people write: 16 small hexadecimal digits are
 * the key itself, as rows show it; anything else is the value of a header or field. 0: it is empty.
 */
uint64_t kvr_routing_key_named(struct kvr_slice text);

#endif
