/* The commands of admin.h about replicas. */
#include <math.h>
#include <string.h>

#include "admin_call.h"
#include "log.h"

/* ---- telling ---- */

static void write_engine(struct kvr_json_writer *json, const struct kvr_load *load, uint64_t now_ns)
{
    if (load->signals_ns == 0) {
        kvr_json_null(json, "engine");
        return;
    }
    kvr_json_object_begin(json, "engine");
    kvr_json_double(json, "age_ms", (double)(now_ns - load->signals_ns) / 1e6);
    kvr_json_double(json, "running", load->signals.running);
    kvr_json_double(json, "waiting", load->signals.waiting);
    kvr_json_double(json, "kv_usage", load->signals.kv_usage);
    kvr_json_double(json, "hit_rate", load->hit_rate);
    kvr_json_object_end(json);
}

static void write_pool(struct kvr_json_writer *json, const struct kvr_upstream_pool *pool)
{
    if (!pool) {
        kvr_json_null(json, "connections");
        return;
    }
    kvr_json_object_begin(json, "connections");
    kvr_json_uint(json, "open", pool->count);
    kvr_json_uint(json, "idle", pool->idle_count);
    kvr_json_uint(json, "opened", pool->opened);
    kvr_json_uint(json, "reused", pool->reused);
    kvr_json_uint(json, "stale", pool->stale);
    kvr_json_object_end(json);
}

static void write_load(struct kvr_json_writer *json, const struct kvr_load *load)
{
    kvr_json_uint(json, "in_flight", load->in_flight);
    kvr_json_uint(json, "uncached_tokens", load->uncached_tokens);
    kvr_json_uint(json, "requests", load->dispatched);
    kvr_json_double(json, "ttft_ms", load->ttft_ms.value);
    kvr_json_double(json, "error_rate", load->error_rate.value);
    kvr_json_double(json, "prefill_tokens_per_s", load->prefill_tokens_per_s.value);
}

static void write_identity(struct kvr_json_writer *json, const struct kvr_replica *replica,
                           uint32_t slot)
{
    kvr_json_text(json, "name", replica->name);
    kvr_json_hex64(json, "id", replica->id);
    kvr_json_uint(json, "slot", slot);
    kvr_json_uint(json, "generation", replica->generation);
    if (replica->rank < 0)
        kvr_json_null(json, "rank");
    else
        kvr_json_int(json, "rank", replica->rank);
    kvr_json_double(json, "weight", replica->weight);
    if (replica->capacity == UINT32_MAX)
        kvr_json_null(json, "capacity");
    else
        kvr_json_uint(json, "capacity", replica->capacity);
    kvr_json_bool(json, "any_model", replica->any_model);
    if (replica->models_known)
        kvr_json_uint(json, "models", replica->models_count);
    else
        kvr_json_null(json, "models");
}

static void write_replica(struct kvr_json_writer *json, const struct kvr_admin_call *call,
                          uint32_t slot)
{
    const struct kvr_router *router = &call->ingress->router;
    const struct kvr_replica *replica = &router->replicas.slots[slot];
    kvr_json_object_begin(json, NULL);
    write_identity(json, replica, slot);
    kvr_json_text(json, "operational", kvr_operational_name(replica->operational));
    kvr_json_text(json, "administrative",
                  replica->member ? kvr_administrative_name(replica->administrative) : "removed");
    kvr_json_bool(json, "in_rotation", kvr_replica_in_rotation(replica));
    kvr_json_double(json, "ramp", kvr_replica_ramp(replica, call->now_ns));
    kvr_json_uint(json, "ejections", replica->ejections);
    write_load(json, &router->loads[slot]);
    kvr_json_uint(json, "index_blocks",
                  replica->member ? kvr_prefix_index_believed(&router->index, slot) : 0);
    write_engine(json, &router->loads[slot], call->now_ns);
    write_pool(json, call->ingress->replicas[slot].pool);
    kvr_json_bool(json, "has_key", call->ingress->replicas[slot].key != NULL);
    kvr_json_object_end(json);
}

void kvr_admin_replicas(struct kvr_admin_call *call)
{
    const struct kvr_replica_table *replicas = &call->ingress->router.replicas;
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_array_begin(&json, "replicas");
    for (uint32_t slot = 0; slot < replicas->end; slot++)
        if (replicas->slots[slot].member || replicas->slots[slot].holds)
            write_replica(&json, call, slot);
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

static void answer_replica(struct kvr_admin_call *call, uint32_t slot)
{
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    write_replica(&json, call, slot);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* ---- setting ---- */

void kvr_admin_add(struct kvr_admin_call *call)
{
    const struct kvr_admin_body *body = call->body;
    struct kvr_error error = {0};
    struct kvr_ingress_replica_spec spec = {
        .url = body->url,
        .key = body->key,
        .weight = body->weight,
        .capacity = body->capacity,
        .rank = body->rank,
        .any_model = body->any_model,
        .running = true,
        .models = body->models,
        .models_count = body->models_count,
    };
    for (size_t i = 0; i < body->key.len; i++)
        if ((unsigned char)body->key.data[i] <= ' ' || (unsigned char)body->key.data[i] >= 0x7f) {
            kvr_admin_refuse(call, 400, "invalid_value", "key",
                             "key: visible ASCII characters are expected");
            return;
        }
    int slot = kvr_ingress_add_replica(call->ingress, &spec, &error);
    if (slot < 0) {
        kvr_admin_refuse_error(call, "url", &error);
        return;
    }
    kvr_log(KVR_LOG_INFO, "replica %s added by the operator",
            call->ingress->router.replicas.slots[slot].name);
    answer_replica(call, (uint32_t)slot);
}

static bool is_id(struct kvr_slice text, uint64_t id)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)id);
    return kvr_slice_is_nocase(text, digits);
}

/* The member that the body names; KVR_NO_REPLICA after an answer of 404. A URL is taken too, since
 * that is what it was added by. */
static uint32_t find_replica(struct kvr_admin_call *call)
{
    const struct kvr_replica_table *replicas = &call->ingress->router.replicas;
    struct kvr_slice name = call->body->replica;
    if (name.len > 7 && strncasecmp(name.data, "http://", 7) == 0)
        name = kvr_slice_make(name.data + 7, name.len - 7);
    if (name.len && name.data[name.len - 1] == '/')
        name.len--;
    uint32_t slot = kvr_replica_find(replicas, name);
    for (uint32_t i = 0; slot == KVR_NO_REPLICA && i < replicas->end; i++)
        if (replicas->slots[i].member && is_id(name, replicas->slots[i].id))
            slot = i;
    if (slot == KVR_NO_REPLICA)
        kvr_admin_refuse(call, 404, "not_found", "replica",
                         "replica: \"%.*s\" is no member of the fleet",
                         name.len < 120 ? (int)name.len : 120, name.data ? name.data : "");
    return slot;
}

void kvr_admin_remove(struct kvr_admin_call *call)
{
    uint32_t slot = find_replica(call);
    if (slot == KVR_NO_REPLICA)
        return;
    const struct kvr_replica *replica = &call->ingress->router.replicas.slots[slot];
    kvr_log(KVR_LOG_INFO, "replica %s removed by the operator", replica->name);
    kvr_ingress_remove_replica(call->ingress, slot);
    answer_replica(call, slot);
}

static void set_administrative(struct kvr_admin_call *call, enum kvr_administrative state)
{
    uint32_t slot = find_replica(call);
    if (slot == KVR_NO_REPLICA)
        return;
    struct kvr_replica_table *replicas = &call->ingress->router.replicas;
    if (replicas->slots[slot].administrative != state) {
        kvr_replica_set_administrative(replicas, slot, state);
        kvr_log(KVR_LOG_INFO, "replica %s is %s by the operator", replicas->slots[slot].name,
                kvr_administrative_name(state));
    }
    answer_replica(call, slot);
}

void kvr_admin_drain(struct kvr_admin_call *call)
{
    set_administrative(call, KVR_DRAINING);
}

void kvr_admin_restore(struct kvr_admin_call *call)
{
    set_administrative(call, KVR_READY);
}

void kvr_admin_weight(struct kvr_admin_call *call)
{
    uint32_t slot = find_replica(call);
    if (slot == KVR_NO_REPLICA)
        return;
    struct kvr_replica_table *replicas = &call->ingress->router.replicas;
    int rc = kvr_replica_set_weight(replicas, slot, call->body->weight);
    KVR_CHECK(rc == 0); /* its range is that of the body's field */
    kvr_log(KVR_LOG_INFO, "replica %s has weight %g by the operator", replicas->slots[slot].name,
            call->body->weight);
    answer_replica(call, slot);
}
