/* The models a fleet serves, as requests name them: one entry a name, with what the router keeps by
 * model: its replicas, the ring over them, the count that rotates ties, and how many canonical
 * prompt bytes make a token. Bounded; when full, an unknown name shares the entry "other". */
#ifndef KVR_MODEL_TABLE_H
#define KVR_MODEL_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ewma.h"
#include "hash_ring.h"
#include "replica.h"

#define KVR_MODELS_MAX 128

struct kvr_model {
    uint64_t hash; /* of its name; 0 for entry 0, requests that name none */
    char name[KVR_MODEL_NAME_MAX];
    uint32_t serial; /* requests so far: rotates */
    struct kvr_ewma bytes_per_token;
    uint64_t members_version; /* of the replica table, at which `members` was made */
    uint32_t members_count;
    uint32_t *members;                    /* slots that serve it, ascending */
    struct kvr_ring_member *ring_members; /* their identities and weights, in step */
    struct kvr_hash_ring ring;            /* over members, by index; ignores ramps */
};

struct kvr_model_table {
    struct kvr_model *models; /* KVR_MODELS_MAX + 1: the last is "other" */
    uint32_t count;
    uint32_t vnodes; /* points of a replica of weight 1 on each model's ring */
    uint32_t replicas_max;
    double default_bytes_per_token; /* of a model that no answer has told of yet */
};

/* `replicas_max` bounds the members of one model. */
void kvr_model_table_init(struct kvr_model_table *table, uint32_t replicas_max, uint32_t vnodes,
                          double default_bytes_per_token);
void kvr_model_table_deinit(struct kvr_model_table *table);

/* The entry of that name, made when some replica serves it: invented names share "other". */
struct kvr_model *kvr_model_get(struct kvr_model_table *table,
                                const struct kvr_replica_table *replicas, struct kvr_slice name);
/* Brings members and ring up to date with the replica table. */
void kvr_model_refresh(struct kvr_model_table *table, struct kvr_model *model,
                       const struct kvr_replica_table *replicas);
/* It is "other". */
bool kvr_model_is_shared(const struct kvr_model_table *table, const struct kvr_model *model);
double kvr_model_bytes_per_token(const struct kvr_model_table *table,
                                 const struct kvr_model *model);
/* Learns from a finished request. */
void kvr_model_learn(struct kvr_model *model, double prompt_bytes, double prompt_tokens);

#endif
