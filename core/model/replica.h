/* The replica table: who the members of the fleet are. Fixed size; a slot is stable while its
 * replica is a member, and its generation changes when the slot is given to another, when the
 * replica restarts, or when it goes down: whatever was believed of the old generation is void.
 *
 * State is two independent axes, each changed by one function that checks the move:
 *
 *   operational     down <-> suspect <-> ramping -> up      what probes and traffic say
 *   administrative  ready <-> draining <-> off              what the operator says
 *
 * A replica is an (authority, rank) pair: one engine process may hold several data-parallel ranks.
 * Load is not here (load.h): health events must never touch accounts. */
#ifndef KVR_REPLICA_H
#define KVR_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "slice.h"

#define KVR_REPLICAS_MAX       1024
#define KVR_REPLICA_NAME_MAX   256
#define KVR_AUTHORITY_MAX      (KVR_REPLICA_NAME_MAX - 16) /* bytes of its host:port */
#define KVR_REPLICA_MODELS_MAX 32
#define KVR_MODEL_NAME_MAX     256
#define KVR_NO_REPLICA         UINT32_MAX

enum kvr_operational { KVR_DOWN, KVR_SUSPECT, KVR_RAMPING, KVR_UP };
enum kvr_administrative { KVR_OFF, KVR_DRAINING, KVR_READY };

const char *kvr_operational_name(enum kvr_operational state);
const char *kvr_administrative_name(enum kvr_administrative state);

/* What a configuration says of a replica. Slices need to live only during the call. */
struct kvr_replica_spec {
    struct kvr_slice authority; /* host:port, the identity */
    int32_t rank;               /* data-parallel rank; -1: the engine has none */
    double weight;              /* 0: the default, 1 */
    uint32_t capacity;          /* most requests in flight; 0: unlimited */
    bool any_model;             /* serves whatever is asked for (llama.cpp with one model) */
};

struct kvr_replica {
    bool member;
    enum kvr_operational operational;
    enum kvr_administrative administrative;
    uint32_t generation;             /* of this slot; never 0 for a member */
    uint64_t id;                     /* 64-bit hash of name */
    double weight;                   /* > 0 */
    uint32_t capacity;               /* UINT32_MAX: unlimited */
    int32_t rank;                    /* -1 none */
    uint64_t available_since_ns;     /* last move out of down */
    uint64_t ramp_ns;                /* length of the ramp after a return; 0 none */
    char name[KVR_REPLICA_NAME_MAX]; /* authority, or authority#rank; from here on not for views */
    uint16_t authority_len;          /* leading bytes of name */
    bool any_model;
    bool models_known; /* until then it serves any name */
    uint32_t models_count;
    uint64_t models[KVR_REPLICA_MODELS_MAX]; /* 64-bit hashes of model names, ascending */
    uint64_t ejections;                      /* moves to down */
    uint32_t holds; /* requests that still name this slot: it is not given away */
};

struct kvr_replica_table {
    struct kvr_replica *slots;
    uint32_t capacity; /* slots allocated */
    uint32_t count;    /* members */
    uint32_t end;      /* one past the highest slot ever used: bound of every scan */
    uint64_t version;  /* changes when membership, weights or models change: caches key on it */
};

void kvr_replica_table_init(struct kvr_replica_table *table, uint32_t capacity);
void kvr_replica_table_deinit(struct kvr_replica_table *table);

/* Adds a member, down and ready, with generation > 0. Returns its slot, or KVR_E_INVALID (bad
 * authority or weight), KVR_E_EXISTS, KVR_E_LIMIT. */
int kvr_replica_add(struct kvr_replica_table *table, const struct kvr_replica_spec *spec);
/* It stops being a member at once; its name stays readable while `holds` is not 0. */
/* It stops being a member at once; its name stays readable while `holds` is not 0. */
void kvr_replica_remove(struct kvr_replica_table *table, uint32_t slot);
/* Slot of the member with that name, or KVR_NO_REPLICA. */
uint32_t kvr_replica_find(const struct kvr_replica_table *table, struct kvr_slice name);

/* The only writers of the two axes. A move to down bumps the generation. */
void kvr_replica_set_operational(struct kvr_replica_table *table, uint32_t slot,
                                 enum kvr_operational state, uint64_t now_ns);
void kvr_replica_set_administrative(struct kvr_replica_table *table, uint32_t slot,
                                    enum kvr_administrative state);
int kvr_replica_set_weight(struct kvr_replica_table *table, uint32_t slot, double weight);
/* The engine process behind it is a new one: same member, new generation. */
void kvr_replica_restarted(struct kvr_replica_table *table, uint32_t slot);

/* Replaces what it serves. At most KVR_REPLICA_MODELS_MAX names count. */
void kvr_replica_set_models(struct kvr_replica_table *table, uint32_t slot,
                            const struct kvr_slice *names, uint32_t count);
bool kvr_replica_serves(const struct kvr_replica *replica, uint64_t model);

/* In rotation: operational and ready. Caps and exclusions are the router's. */
static inline bool kvr_replica_in_rotation(const struct kvr_replica *replica)
{
    return replica->member && replica->operational != KVR_DOWN &&
           replica->administrative == KVR_READY && replica->weight > 0;
}
double kvr_replica_ramping(const struct kvr_replica *replica, uint64_t now_ns);
/* Share of its weight at `now_ns`, from 0.1 at the return to 1 at the end of the ramp. */
static inline double kvr_replica_ramp(const struct kvr_replica *replica, uint64_t now_ns)
{
    return replica->operational == KVR_RAMPING ? kvr_replica_ramping(replica, now_ns) : 1;
}

/* The hash under which names of replicas, models, sessions and keys travel. Never 0. */
uint64_t kvr_name_hash(struct kvr_slice name);
/* The 32-bit form for Lua: 0 only for 0. */
uint32_t kvr_hash32(uint64_t hash);

#endif
