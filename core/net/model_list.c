#include "model_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "json_writer.h"
#include "memory.h"
#include "served_models.h"

#define DEFAULT_PATH        "/v1/models"
#define DEFAULT_INTERVAL_NS 10000000000u
#define DEFAULT_TIMEOUT_NS  5000000000u
#define RETRY_NS            500000000u /* after a failure; doubles up to the interval */
#define ANSWER_MAX          (1u << 20)

struct kvr_model_list_slot {
    uint64_t replica_id; /* whose models these are; 0: nobody's */
    struct kvr_served_models served;
};

static void forget(struct kvr_model_list_slot *slot)
{
    kvr_served_models_deinit(&slot->served);
    slot->replica_id = 0;
}

/* The slot's record, empty if it was another replica's. */
static struct kvr_model_list_slot *slot_for(struct kvr_model_list *list, uint32_t index)
{
    struct kvr_model_list_slot *slot = &list->slots[index];
    uint64_t id = list->rounds.replicas->slots[index].id;
    if (slot->replica_id != id)
        forget(slot);
    slot->replica_id = id;
    return slot;
}

/* `created` of that id as any member's object has it now; empty when none has. */
static struct kvr_slice known_created(const void *context, struct kvr_slice id)
{
    const struct kvr_model_list *list = context;
    const struct kvr_replica_table *replicas = list->rounds.replicas;
    for (uint32_t i = 0; i < replicas->end; i++) {
        const struct kvr_model_list_slot *slot = &list->slots[i];
        if (!replicas->slots[i].member || replicas->slots[i].id != slot->replica_id)
            continue;
        struct kvr_slice created = kvr_served_created(&slot->served, id);
        if (created.len)
            return created;
    }
    return kvr_slice_make("", 0);
}

static enum kvr_round_verdict on_answer(void *context, uint32_t index,
                                        const struct kvr_fetch_result *result)
{
    struct kvr_model_list *list = context;
    struct kvr_served_models *served = &slot_for(list, index)->served;
    struct kvr_created_source source = {list, known_created};
    int over = kvr_served_models_read(served, result->body, &source);
    if (over < 0) {
        list->malformed++;
        return KVR_ROUND_FAILED;
    }
    list->over_limit += (uint64_t)over;
    if (served->names)
        return KVR_ROUND_OK;
    struct kvr_slice names[KVR_REPLICA_MODELS_MAX];
    for (uint32_t i = 0; i < served->count; i++)
        names[i] = kvr_served_id(served, i);
    list->events.on_models(list->events.context, index, names, served->count);
    return KVR_ROUND_OK;
}

/* ---- the merged list ---- */

struct candidate {
    struct kvr_slice id;
    struct kvr_slice object;
    uint64_t hash;
    double max_model_len;
    uint32_t order; /* in which it was met; of a group, of its first */
};

/* By id; of one id, the smallest max_model_len first, then the one met first. */
static int compare_ids(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    size_t len = a->id.len < b->id.len ? a->id.len : b->id.len;
    int rc = memcmp(a->id.data, b->id.data, len);
    if (rc || a->id.len != b->id.len)
        return rc ? rc : (a->id.len < b->id.len ? -1 : 1);
    double x = isnan(a->max_model_len) ? HUGE_VAL : a->max_model_len;
    double y = isnan(b->max_model_len) ? HUGE_VAL : b->max_model_len;
    if (x != y)
        return x < y ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static int compare_orders(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool counts(const struct kvr_model_list *list, uint32_t index)
{
    const struct kvr_replica *replica = &list->rounds.replicas->slots[index];
    return replica->member && replica->id == list->slots[index].replica_id &&
           replica->operational != KVR_DOWN && replica->administrative != KVR_OFF;
}

/* All objects of replicas that count; the caller frees. */
static struct candidate *gather(const struct kvr_model_list *list, uint32_t *count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < list->rounds.replicas->end; i++)
        total += counts(list, i) ? list->slots[i].served.count : 0;
    struct candidate *all = kvr_alloc((total ? total : 1) * sizeof *all);
    uint32_t used = 0;
    for (uint32_t i = 0; i < list->rounds.replicas->end; i++) {
        const struct kvr_served_models *served = &list->slots[i].served;
        for (uint32_t k = 0; counts(list, i) && k < served->count; k++) {
            struct kvr_slice id = kvr_served_id(served, k);
            all[used] = (struct candidate){.id = id,
                                           .object = kvr_served_object(served, k),
                                           .hash = kvr_name_hash(id),
                                           .max_model_len = served->models[k].max_model_len,
                                           .order = used};
            used++;
        }
    }
    *count = used;
    return all;
}

/* Leaves one a group, in the place of the group's first. Returns how many. */
static uint32_t merge(struct candidate *all, uint32_t count)
{
    qsort(all, count, sizeof *all, compare_ids);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct candidate *last = kept ? &all[kept - 1] : NULL;
        if (!last || !kvr_slice_equal(last->id, all[i].id))
            all[kept++] = all[i];
        else if (all[i].order < last->order)
            last->order = all[i].order;
    }
    qsort(all, kept, sizeof *all, compare_orders);
    return kept;
}

void kvr_model_list_merged(const struct kvr_model_list *list, struct kvr_buffer *out)
{
    uint32_t count;
    struct candidate *all = gather(list, &count);
    count = merge(all, count);
    struct kvr_json_writer json = {.out = out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "object", "list");
    kvr_json_array_begin(&json, "data");
    for (uint32_t i = 0; i < count; i++)
        kvr_json_raw(&json, NULL, all[i].object);
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_free(all);
}

/* ---- start, changes, end ---- */

void kvr_model_list_start(struct kvr_model_list *list, struct kvr_loop *loop,
                          const struct kvr_replica_table *replicas,
                          const struct kvr_model_list_options *options,
                          const struct kvr_target_source *source,
                          const struct kvr_model_list_events *events)
{
    *list = (struct kvr_model_list){.events = *events};
    list->slots = kvr_alloc_zero(replicas->capacity, sizeof *list->slots);
    struct kvr_rounds_options rounds = {.retry_ns = RETRY_NS, .max_bytes = ANSWER_MAX};
    if (options) {
        rounds.path = options->path;
        rounds.interval_ns = options->interval_ns;
        rounds.timeout_ns = options->timeout_ns;
    }
    if (!rounds.path)
        rounds.path = DEFAULT_PATH;
    if (rounds.interval_ns == 0)
        rounds.interval_ns = DEFAULT_INTERVAL_NS;
    if (rounds.timeout_ns == 0)
        rounds.timeout_ns = DEFAULT_TIMEOUT_NS;
    struct kvr_rounds_events asked = {.context = list, .on_answer = on_answer};
    kvr_rounds_start(&list->rounds, loop, replicas, &rounds, source, &asked);
}

void kvr_model_list_wake(struct kvr_model_list *list)
{
    const struct kvr_replica_table *replicas = list->rounds.replicas;
    for (uint32_t i = 0; i < replicas->end; i++)
        if (!replicas->slots[i].member)
            forget(&list->slots[i]);
    kvr_rounds_wake(&list->rounds);
}

void kvr_model_list_fix(struct kvr_model_list *list, uint32_t index, const struct kvr_slice *names,
                        uint32_t count, uint64_t unix_s)
{
    KVR_CHECK(list->rounds.replicas->slots[index].member);
    if (count > KVR_REPLICA_MODELS_MAX) {
        list->over_limit += count - KVR_REPLICA_MODELS_MAX;
        count = KVR_REPLICA_MODELS_MAX;
    }
    kvr_served_models_fix(&slot_for(list, index)->served, names, count, unix_s);
}

void kvr_model_list_close(struct kvr_model_list *list)
{
    kvr_rounds_close(&list->rounds);
    for (uint32_t i = 0; list->slots && i < list->rounds.replicas->capacity; i++)
        forget(&list->slots[i]);
    kvr_free(list->slots);
    list->slots = NULL;
}
