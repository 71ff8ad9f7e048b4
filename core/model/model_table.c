#include "model_table.h"

#include <math.h>
#include <string.h>

#include "memory.h"

#define OTHER              KVR_MODELS_MAX
#define BYTES_PER_TOKEN_W  0.05 /* weight of one finished request */
#define BYTES_PER_TOKEN_LO 0.25 /* estimates outside are an engine's or a client's mistake */
#define BYTES_PER_TOKEN_HI 64.0

static void init_model(struct kvr_model *model, uint64_t hash, struct kvr_slice name)
{
    memset(model, 0, sizeof *model);
    model->hash = hash;
    size_t len = name.len < sizeof model->name - 1 ? name.len : sizeof model->name - 1;
    memcpy(model->name, name.data ? name.data : "", len);
    kvr_ewma_init(&model->bytes_per_token);
    kvr_hash_ring_init(&model->ring);
}

void kvr_model_table_init(struct kvr_model_table *table, uint32_t replicas_max, uint32_t vnodes,
                          double default_bytes_per_token)
{
    *table = (struct kvr_model_table){.vnodes = vnodes,
                                      .replicas_max = replicas_max,
                                      .default_bytes_per_token = default_bytes_per_token};
    table->models = kvr_alloc_zero(KVR_MODELS_MAX + 1, sizeof *table->models);
    init_model(&table->models[0], 0, kvr_slice_of(""));
    table->count = 1;
}

static void deinit_model(struct kvr_model *model)
{
    kvr_free(model->members);
    kvr_free(model->ring_members);
    kvr_hash_ring_deinit(&model->ring);
}

void kvr_model_table_deinit(struct kvr_model_table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        deinit_model(&table->models[i]);
    if (table->models && table->models[OTHER].hash)
        deinit_model(&table->models[OTHER]);
    kvr_free(table->models);
    *table = (struct kvr_model_table){0};
}

/* Names over the bound share one entry: routed as any name is, counted together. It is refreshed
 * for the name at hand each time. */
static struct kvr_model *other(struct kvr_model_table *table, uint64_t hash)
{
    struct kvr_model *model = &table->models[OTHER];
    if (model->hash == 0)
        init_model(model, hash, kvr_slice_of("other"));
    if (model->hash != hash) {
        model->hash = hash;
        model->members_version = 0;
    }
    return model;
}

static bool is_served(const struct kvr_replica_table *replicas, uint64_t hash)
{
    for (uint32_t slot = 0; slot < replicas->end; slot++)
        if (replicas->slots[slot].member && kvr_replica_serves(&replicas->slots[slot], hash))
            return true;
    return false;
}

struct kvr_model *kvr_model_get(struct kvr_model_table *table,
                                const struct kvr_replica_table *replicas, struct kvr_slice name)
{
    uint64_t hash = name.len ? kvr_name_hash(name) : 0;
    for (uint32_t i = 0; i < table->count; i++)
        if (table->models[i].hash == hash)
            return &table->models[i];
    if (table->count == KVR_MODELS_MAX || !is_served(replicas, hash))
        return other(table, hash);
    struct kvr_model *model = &table->models[table->count++];
    init_model(model, hash, name);
    return model;
}

bool kvr_model_is_shared(const struct kvr_model_table *table, const struct kvr_model *model)
{
    return model == &table->models[OTHER];
}

void kvr_model_refresh(struct kvr_model_table *table, struct kvr_model *model,
                       const struct kvr_replica_table *replicas)
{
    if (model->members_version == replicas->version)
        return;
    if (!model->members) {
        model->members = kvr_alloc_zero(table->replicas_max, sizeof *model->members);
        model->ring_members = kvr_alloc_zero(table->replicas_max, sizeof *model->ring_members);
    }
    model->members_count = 0;
    for (uint32_t slot = 0; slot < replicas->end; slot++) {
        const struct kvr_replica *replica = &replicas->slots[slot];
        if (!replica->member || !kvr_replica_serves(replica, model->hash))
            continue;
        uint32_t at = model->members_count++;
        model->members[at] = slot;
        model->ring_members[at] =
            (struct kvr_ring_member){.id = replica->id, .weight = replica->weight};
    }
    kvr_hash_ring_build(&model->ring, model->ring_members, model->members_count, table->vnodes);
    model->members_version = replicas->version;
}

double kvr_model_bytes_per_token(const struct kvr_model_table *table, const struct kvr_model *model)
{
    double learned = model->bytes_per_token.value;
    return isnan(learned) ? table->default_bytes_per_token : learned;
}

void kvr_model_learn(struct kvr_model *model, double prompt_bytes, double prompt_tokens)
{
    if (!(prompt_bytes > 0 && prompt_tokens > 0))
        return;
    double ratio = prompt_bytes / prompt_tokens;
    if (ratio >= BYTES_PER_TOKEN_LO && ratio <= BYTES_PER_TOKEN_HI)
        kvr_ewma_add(&model->bytes_per_token, ratio, BYTES_PER_TOKEN_W);
}
