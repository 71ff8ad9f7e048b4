/* A routing key under one model, in 64 bits: by which requests are counted (window.h) and planned
 * (plan.h). What two models cache has nothing in common, and not every replica serves both, so one
 * routing key under two models is two keys. The model stands above the key; both are in 32 bits, a
 * request that names no model has 0 there. */
#ifndef KVR_MODEL_KEY_H
#define KVR_MODEL_KEY_H

#include <stdint.h>

#define KVR_MODEL_KEY_ROUTING UINT64_C(0xffffffff) /* the part that is the routing key */

/* Of two names in 32 bits (kvr_hash32); 0: there is no routing key. */
static inline uint64_t kvr_model_key(uint32_t model, uint32_t routing_key)
{
    return routing_key ? (uint64_t)model << 32 | routing_key : 0;
}

static inline uint32_t kvr_model_key_model(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

#endif
