#include "ingress.h"

#include <string.h>

#include "check.h"
#include "ingress_parts.h"
#include "log.h"
#include "memory.h"

#define TICK_MS 100

static void on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    if (client->user)
        kvr_exchange_cancel(client->user);
}

static void on_drained(void *context, struct kvr_client *client)
{
    (void)context;
    if (client->user)
        kvr_exchange_client_drained(client->user);
}

void kvr_ingress_act(struct kvr_ingress *ingress)
{
    struct kvr_action action;
    if (ingress->acting)
        return; /* the call that is under way goes on with it: thousands may wait */
    ingress->acting = true;
    while (kvr_router_next_action(&ingress->router, &action))
        kvr_exchange_act(action.user, &action);
    ingress->acting = false;
    kvr_router_settle(&ingress->router); /* what waited has left now */
}

/* The next open exchange of a walk, or NULL. The walk ends others, not only the one at hand. */
static struct kvr_exchange *next_exchange(struct kvr_ingress *ingress)
{
    struct kvr_list *link = ingress->cursor;
    if (link == &ingress->exchanges)
        return NULL;
    ingress->cursor = link->next;
    return KVR_LIST_ENTRY(link, struct kvr_exchange, link);
}

void kvr_ingress_take_rows(struct kvr_ingress *ingress)
{
    struct kvr_buffer *rows = &ingress->router.rows;
    if (rows->len == 0)
        return;
    kvr_row_log_append(&ingress->row_log, kvr_buffer_slice(rows));
    rows->len = 0;
}

uint32_t kvr_ingress_open(const struct kvr_ingress *ingress)
{
    uint32_t open = ingress->exchanges_count;
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        open += kvr_listener_unfinished(&ingress->listeners[i]);
    return open;
}

bool kvr_ingress_drained(const struct kvr_ingress *ingress)
{
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        if (kvr_listener_parting(&ingress->listeners[i]))
            return false;
    return kvr_ingress_open(ingress) == 0;
}

static bool has_somewhere_to_go(const struct kvr_ingress *ingress)
{
    const struct kvr_replica_table *replicas = &ingress->router.replicas;
    bool all_probed = true;
    for (uint32_t i = 0; i < replicas->end; i++) {
        if (!replicas->slots[i].member)
            continue;
        if (replicas->slots[i].operational != KVR_DOWN)
            return true;
        all_probed &= ingress->router.health.entries[i].failures > 0;
    }
    return all_probed || kvr_loop_now() - ingress->started_ns >= KVR_DOORS_NS;
}

void kvr_ingress_may_accept(struct kvr_ingress *ingress)
{
    if (ingress->accepting || ingress->draining || !has_somewhere_to_go(ingress))
        return;
    ingress->accepting = true;
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        kvr_listener_open(&ingress->listeners[i]);
}

/* ---- what the background reports ---- */

void kvr_ingress_fleet_changed(struct kvr_ingress *ingress)
{
    kvr_prober_wake(&ingress->prober);
    kvr_model_list_wake(&ingress->model_list);
    if (ingress->options.scrape)
        kvr_scraper_wake(&ingress->scraper);
}

static void on_probed(void *context, uint32_t slot, enum kvr_probe_outcome outcome, bool refused)
{
    struct kvr_ingress *ingress = context;
    struct kvr_replica *replica = &ingress->router.replicas.slots[slot];
    enum kvr_operational before = replica->operational;
    if (outcome != KVR_PROBE_PASS)
        kvr_resolver_doubt(&ingress->resolver, slot, refused);
    kvr_router_probed(&ingress->router, kvr_loop_now(), slot, outcome, refused);
    kvr_ingress_may_accept(ingress);
    if (replica->operational == before)
        return;
    kvr_ingress_act(ingress);
    bool *told = &ingress->replicas[slot].told;
    kvr_log(KVR_LOG_INFO, "replica %s is %s%s%s", replica->name,
            kvr_operational_name(replica->operational), *told ? ", was " : "",
            *told ? kvr_operational_name(before) : "");
    *told = true;
    kvr_ingress_fleet_changed(ingress);
}

static void on_signals(void *context, uint32_t slot, const struct kvr_engine_signals *signals)
{
    struct kvr_ingress *ingress = context;
    kvr_router_signals(&ingress->router, kvr_loop_now(), slot, signals);
}

static void on_dialect(void *context, uint32_t slot, enum kvr_metrics_dialect dialect)
{
    struct kvr_ingress *ingress = context;
    ingress->replicas[slot].keeps_conversations = dialect == KVR_METRICS_LLAMACPP;
}

static void on_models(void *context, uint32_t slot, const struct kvr_slice *names, uint32_t count)
{
    struct kvr_ingress *ingress = context;
    kvr_replica_set_models(&ingress->router.replicas, slot, names, count);
}

static bool on_target(void *context, uint32_t slot, struct kvr_target *target)
{
    struct kvr_ingress *ingress = context;
    const struct kvr_ingress_replica *replica = &ingress->replicas[slot];
    const struct kvr_replica *member = &ingress->router.replicas.slots[slot];
    if (!replica->pool || replica->pool->address.ss_family == AF_UNSPEC)
        return false;
    target->address = (const struct sockaddr *)&replica->pool->address;
    target->authority = kvr_slice_make(member->name, member->authority_len);
    target->key = kvr_slice_of(replica->key);
    return true;
}

static void on_tick(uv_timer_t *timer)
{
    struct kvr_ingress *ingress = timer->data;
    uint64_t now = kvr_loop_now();
    kvr_router_tick(&ingress->router, now);
    kvr_ingress_act(ingress);
    kvr_ingress_may_accept(ingress);
    for (uint32_t i = 0; i < ingress->router.replicas.capacity; i++)
        if (ingress->replicas[i].pool)
            kvr_upstream_pool_sweep(ingress->replicas[i].pool, now);
    kvr_resolver_tick(&ingress->resolver, now);
    kvr_prompt_slim(&ingress->prompt);
    struct kvr_exchange *exchange;
    ingress->cursor = ingress->exchanges.next;
    while ((exchange = next_exchange(ingress)))
        kvr_exchange_tick(exchange, now);
}

/* ---- start ---- */

static int start_listening(struct kvr_ingress *ingress, struct kvr_error *error)
{
    struct kvr_handler handler = {
        .context = ingress,
        .on_request = kvr_ingress_on_request,
        .on_head = kvr_ingress_on_head,
        .on_refused = kvr_ingress_on_refused,
        .on_gone = on_gone,
        .on_drained = on_drained,
    };
    struct kvr_ingress_options *options = &ingress->options;
    options->listener.held_total = &ingress->held_bytes;
    options->listener.limits_are_settings = true;
    options->listener.waits = true;
    for (uint32_t i = 0; i < options->listen_count; i++) {
        int rc = kvr_listener_start(&ingress->listeners[i], ingress->loop, options->listen[i],
                                    &handler, &options->listener, error);
        if (rc)
            return rc;
        ingress->listeners_count++;
    }
    return 0;
}

static void start_background(struct kvr_ingress *ingress)
{
    const struct kvr_ingress_options *options = &ingress->options;
    struct kvr_router *router = &ingress->router;
    struct kvr_target_source source = {.context = ingress, .on_target = on_target};
    struct kvr_prober_events probed = {.context = ingress, .on_outcome = on_probed};
    kvr_prober_start(&ingress->prober, ingress->loop, &router->health, &options->prober, &source,
                     &probed);
    struct kvr_model_list_events models = {.context = ingress, .on_models = on_models};
    kvr_model_list_start(&ingress->model_list, ingress->loop, &router->replicas, &options->models,
                         &source, &models);
    struct kvr_scraper_events signals = {
        .context = ingress, .on_signals = on_signals, .on_dialect = on_dialect};
    if (options->scrape)
        kvr_scraper_start(&ingress->scraper, ingress->loop, &router->replicas, &options->scraper,
                          &source, &signals);
    KVR_CHECK(uv_timer_init(ingress->loop->uv, &ingress->tick) == 0);
    ingress->tick.data = ingress;
    KVR_CHECK(uv_timer_start(&ingress->tick, on_tick, TICK_MS, TICK_MS) == 0);
    kvr_planner_start(&ingress->planner, ingress->loop, router, &options->planner);
    kvr_watchdog_start(&ingress->watchdog, options->script_budget_ms);
}

static int64_t wall_offset_ns(void)
{
    uv_timeval64_t wall;
    KVR_CHECK(uv_gettimeofday(&wall) == 0);
    return wall.tv_sec * 1000000000 + (int64_t)wall.tv_usec * 1000 - (int64_t)uv_hrtime();
}

void kvr_ingress_init(struct kvr_ingress *ingress, struct kvr_loop *loop,
                      const struct kvr_ingress_options *options)
{
    memset(ingress, 0, sizeof *ingress);
    ingress->options = *options;
    ingress->loop = loop;
    ingress->started_ns = kvr_loop_now();
    kvr_list_init(&ingress->exchanges);
    KVR_CHECK(uv_random(NULL, NULL, &ingress->nonce, sizeof ingress->nonce, 0, NULL) == 0);
    ingress->options.router.wall_offset_ns = wall_offset_ns();
    ingress->options.router.rows = options->rows.path != NULL;
    kvr_router_init(&ingress->router, &ingress->options.router);
    ingress->replicas =
        kvr_alloc_zero(ingress->router.replicas.capacity, sizeof *ingress->replicas);
    kvr_resolver_start(&ingress->resolver, loop, ingress->router.replicas.capacity,
                       &options->resolver, ingress, kvr_ingress_replica_moved);
    kvr_prompt_init(&ingress->prompt, &options->prompt);
    kvr_loop_pace(loop, options->gather_us);
    kvr_script_store_start(&ingress->scripts, loop, &ingress->router, options->policies_dir);
}

int kvr_ingress_start(struct kvr_ingress *ingress, struct kvr_error *error)
{
    int rc = 0;
    if (ingress->options.rows.path)
        rc = kvr_row_log_open(&ingress->row_log, ingress->loop, &ingress->options.rows, error);
    if (rc == 0 && ingress->options.client_keys)
        rc = kvr_client_keys_open(&ingress->client_keys, ingress->loop,
                                  ingress->options.client_keys, error);
    if (rc == 0)
        rc = start_listening(ingress, error);
    if (rc)
        return rc;
    start_background(ingress);
    return 0;
}

void kvr_ingress_part_closed(void *context)
{
    struct kvr_ingress *ingress = context;
    KVR_CHECK(ingress->closing_parts > 0);
    if (--ingress->closing_parts == 0 && ingress->on_closed)
        ingress->on_closed(ingress->closed_context);
}

/* ---- the end ---- */

void kvr_ingress_leave(struct kvr_ingress *ingress)
{
    ingress->leaving = true;
}

void kvr_ingress_drain(struct kvr_ingress *ingress)
{
    ingress->leaving = true;
    ingress->draining = true;
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        kvr_listener_stop(&ingress->listeners[i]);
}

void kvr_ingress_close(struct kvr_ingress *ingress, void *context, void (*on_closed)(void *context))
{
    ingress->closed_context = context;
    ingress->on_closed = on_closed;
    struct kvr_exchange *exchange;
    ingress->cursor = ingress->exchanges.next;
    while ((exchange = next_exchange(ingress)))
        kvr_exchange_cut(exchange);
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        kvr_listener_close(&ingress->listeners[i]);
    kvr_prober_close(&ingress->prober);
    kvr_model_list_close(&ingress->model_list);
    if (ingress->options.scrape)
        kvr_scraper_close(&ingress->scraper);
    uv_close((uv_handle_t *)&ingress->tick, NULL);
    kvr_watchdog_stop(&ingress->watchdog);
    ingress->closing = true;
    ingress->closing_parts = 1 + ingress->pools_closing;
    ingress->closing_parts += ingress->options.rows.path ? 2u : 1u;
    ingress->closing_parts += kvr_client_keys_on(&ingress->client_keys);
    ingress->closing_parts += 3; /* the resolver, the planner and the gate */
    for (uint32_t i = 0; i < ingress->router.replicas.capacity; i++)
        if (ingress->replicas[i].pool)
            ingress->closing_parts++;
    kvr_script_store_close(&ingress->scripts, ingress, kvr_ingress_part_closed);
    kvr_resolver_close(&ingress->resolver, ingress, kvr_ingress_part_closed);
    kvr_planner_close(&ingress->planner, ingress, kvr_ingress_part_closed);
    kvr_gate_close(ingress, ingress, kvr_ingress_part_closed);
    if (kvr_client_keys_on(&ingress->client_keys))
        kvr_client_keys_close(&ingress->client_keys, ingress, kvr_ingress_part_closed);
    if (ingress->options.rows.path)
        kvr_row_log_close(&ingress->row_log, ingress, kvr_ingress_part_closed);
    for (uint32_t i = 0; i < ingress->router.replicas.capacity; i++)
        if (ingress->replicas[i].pool)
            kvr_ingress_close_pool(ingress, i);
    kvr_ingress_part_closed(ingress);
}

void kvr_ingress_deinit(struct kvr_ingress *ingress)
{
    kvr_router_deinit(&ingress->router);
    kvr_client_keys_deinit(&ingress->client_keys);
    kvr_prompt_deinit(&ingress->prompt);
    kvr_spares_deinit(&ingress->spares);
    kvr_buffer_deinit(&ingress->head_out);
    kvr_buffer_deinit(&ingress->extra_out);
    kvr_free(ingress->replicas);
}
