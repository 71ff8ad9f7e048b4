/* The part of ingress.h that adds and removes replicas: names, addresses, pools of connections. */
#include <netinet/in.h>
#include <string.h>

#include "check.h"
#include "ingress.h"
#include "ingress_parts.h"
#include "log.h"
#include "memory.h"

/* host:port of a URL; KVR_E_INVALID for what is not plain http. */
static int split_url(struct kvr_slice url, struct kvr_slice *authority, struct kvr_error *error)
{
    *authority = url;
    if (url.len > 7 && strncasecmp(url.data, "http://", 7) == 0)
        *authority = kvr_slice_make(url.data + 7, url.len - 7);
    if (authority->len && authority->data[authority->len - 1] == '/')
        authority->len--;
    if (authority->len == 0 || memchr(authority->data, '/', authority->len))
        return kvr_error_set(error, KVR_E_INVALID, "replica \"%.*s\" is not http://host:port",
                             (int)url.len, url.data);
    return 0;
}

/* Where a replica is: an address, or a name to be followed. */
struct place {
    struct sockaddr_storage address; /* family AF_UNSPEC: not known yet */
    char host[KVR_HOST_MAX];         /* empty: it is an address */
    char port[8];
};

static int find_place(struct kvr_ingress *ingress, const struct kvr_ingress_replica_spec *spec,
                      struct kvr_slice authority, struct place *place, struct kvr_error *error)
{
    char text[KVR_AUTHORITY_MAX + 1];
    *place = (struct place){0};
    if (authority.len >= sizeof text)
        return kvr_error_set(
            error, KVR_E_INVALID,
            "replica \"%.100s...\": host:port is of %zu bytes, at most %d are possible",
            authority.data, authority.len, KVR_AUTHORITY_MAX);
    int rc = kvr_resolver_split(authority, place->host, place->port, error);
    if (rc)
        return rc;
    memcpy(text, authority.data, authority.len);
    text[authority.len] = '\0';
    if (kvr_address_parse(text, &place->address, NULL) == 0) {
        place->host[0] = '\0';
        return 0;
    }
    memset(&place->address, 0, sizeof place->address);
    if (text[0] == '[')
        return kvr_error_set(error, KVR_E_INVALID, "replica \"%s\" has no IPv6 address in []",
                             text);
    if (spec->running)
        return 0;
    return kvr_resolver_wait(&ingress->resolver, place->host, place->port, &place->address, error);
}

static const struct sockaddr *known_address(const struct place *place)
{
    return place->address.ss_family == AF_UNSPEC ? NULL : (const struct sockaddr *)&place->address;
}

void kvr_ingress_replica_moved(void *context, uint32_t slot, const struct sockaddr *address)
{
    struct kvr_ingress *ingress = context;
    struct kvr_upstream_pool *pool = ingress->replicas[slot].pool;
    char text[INET6_ADDRSTRLEN] = "?";
    uv_ip_name(address, text, sizeof text);
    kvr_log(KVR_LOG_INFO, "replica %s is at %s", ingress->router.replicas.slots[slot].name, text);
    /* Another engine, as far as one can tell: what the old one held says nothing of it. */
    if (pool->address.ss_family != AF_UNSPEC)
        kvr_router_restarted(&ingress->router, slot);
    kvr_upstream_pool_move(pool, address);
    kvr_ingress_fleet_changed(ingress);
}

/* A request's own limit may be longer; shorter ones are the exchange's to see to. */
static void set_connect_limit(const struct kvr_ingress *ingress, struct kvr_upstream_pool *pool)
{
    const struct kvr_time_limits_options *limits = &ingress->options.limits;
    uint32_t ms = limits->limits.ms[KVR_TIME_CONNECT];
    if (ms)
        pool->connect_ns =
            (uint64_t)(ms > limits->by_header_max_ms ? ms : limits->by_header_max_ms) * 1000000u;
}

int kvr_ingress_add_replica(struct kvr_ingress *ingress,
                            const struct kvr_ingress_replica_spec *spec, struct kvr_error *error)
{
    struct kvr_slice authority;
    struct place place;
    int rc = split_url(spec->url, &authority, error);
    if (rc == 0)
        rc = find_place(ingress, spec, authority, &place, error);
    if (rc)
        return rc;
    int slot = kvr_router_add_replica(&ingress->router, kvr_loop_now(),
                                      &(struct kvr_replica_spec){.authority = authority,
                                                                 .rank = spec->rank,
                                                                 .weight = spec->weight,
                                                                 .capacity = spec->capacity,
                                                                 .any_model = spec->any_model},
                                      error);
    if (slot < 0)
        return slot;
    struct kvr_ingress_replica *replica = &ingress->replicas[slot];
    KVR_CHECK(!replica->pool);
    *replica = (struct kvr_ingress_replica){0};
    replica->pool = kvr_alloc(sizeof *replica->pool);
    kvr_upstream_pool_init(replica->pool, ingress->loop, &kvr_exchange_upstream_events,
                           known_address(&place));
    if (place.host[0])
        kvr_resolver_follow(&ingress->resolver, (uint32_t)slot, place.host, place.port,
                            known_address(&place));
    set_connect_limit(ingress, replica->pool);
    if (ingress->options.pool_idle_ns)
        replica->pool->idle_ns = ingress->options.pool_idle_ns;
    if (spec->key.len)
        replica->key = kvr_strndup(spec->key.data, spec->key.len);
    if (spec->models_count) {
        kvr_replica_set_models(&ingress->router.replicas, (uint32_t)slot, spec->models,
                               spec->models_count);
        uint64_t unix_s =
            (uint64_t)((int64_t)kvr_loop_now() + ingress->options.router.wall_offset_ns) /
            1000000000u;
        kvr_model_list_fix(&ingress->model_list, (uint32_t)slot, spec->models, spec->models_count,
                           unix_s);
    }
    kvr_ingress_fleet_changed(ingress);
    return slot;
}

static void on_pool_closed(struct kvr_upstream_pool *pool)
{
    struct kvr_ingress *ingress = pool->owner;
    kvr_free(pool);
    if (ingress->closing)
        kvr_ingress_part_closed(ingress);
    else
        ingress->pools_closing--;
}

void kvr_ingress_close_pool(struct kvr_ingress *ingress, uint32_t slot)
{
    struct kvr_ingress_replica *replica = &ingress->replicas[slot];
    struct kvr_upstream_pool *pool = replica->pool;
    if (!ingress->closing) /* then it has forgotten all of them */
        kvr_resolver_forget(&ingress->resolver, slot);
    kvr_free(replica->key);
    *replica = (struct kvr_ingress_replica){0};
    pool->owner = ingress;
    pool->on_closed = on_pool_closed;
    kvr_upstream_pool_close(pool);
}

void kvr_ingress_remove_replica(struct kvr_ingress *ingress, uint32_t slot)
{
    kvr_router_remove_replica(&ingress->router, slot);
    ingress->pools_closing++;
    kvr_ingress_close_pool(ingress, slot);
    kvr_ingress_fleet_changed(ingress);
}
