#include "ingress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "local_paths.h"
#include "log.h"
#include "memory.h"

#define TICK_MS 100

/* ---- requests ---- */

static struct kvr_slice request_id(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                                   char *room, size_t size)
{
    struct kvr_slice id = kvr_http_header(head, "x-request-id");
    if (id.len && id.len < KVR_REQUEST_ID_MAX)
        return id;
    int len = snprintf(room, size, "%016llx%08llx", (unsigned long long)ingress->nonce,
                       (unsigned long long)++ingress->ids);
    return kvr_slice_make(room, (size_t)len);
}

static void fill_from_body(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                           struct kvr_submission *submission)
{
    const struct kvr_api_request *api = &ingress->api_request;
    struct kvr_session session =
        kvr_session_derive(&ingress->options.session, head->headers, head->count, api);
    submission->routed = true;
    submission->model = api->model;
    submission->session = session.key;
    submission->session_source = kvr_session_source_name(session.source);
    submission->tenant = session.tenant;
    submission->chain = ingress->prompt.chain;
    submission->chain_len = api->api == KVR_API_EMBEDDINGS ? 0 : ingress->prompt.chain_len;
    submission->turn = api->turn;
    submission->choices = api->n * (api->prompts ? api->prompts : 1);
    submission->stream = api->stream;
    submission->prompt_bytes = (double)api->prompt_bytes;
    if (api->prompt_tokens >= 0)
        submission->prompt_tokens = (double)api->prompt_tokens;
    submission->extra_tokens = (double)(api->extra_tokens + api->other_tokens);
    submission->priority = api->priority;
    if (api->max_tokens >= 0)
        submission->max_tokens = (double)api->max_tokens;
}

/* A positive number in a header's value, or NaN. */
static double read_number(struct kvr_slice value)
{
    char text[32];
    if (value.len == 0 || value.len >= sizeof text)
        return (double)NAN;
    memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    char *end;
    double number = strtod(text, &end);
    return *end == '\0' && number > 0 && isfinite(number) ? number : (double)NAN;
}

int kvr_ingress_read(struct kvr_ingress *ingress, const struct kvr_http_head *head,
                     struct kvr_slice body, struct kvr_submission *submission,
                     struct kvr_error *error)
{
    kvr_router_settle(&ingress->router); /* the scan makes a new chain */
    enum kvr_api api = kvr_slice_is(head->method, "POST") ? kvr_api_of(head->path) : KVR_API_OPAQUE;
    *submission = (struct kvr_submission){
        .endpoint = api == KVR_API_OPAQUE ? "other" : kvr_api_name(api),
        .prompt_tokens = (double)NAN,
        .max_tokens = (double)NAN,
        .slo_ttft_ms = read_number(kvr_http_header(head, "x-kvroute-slo-ttft-ms")),
        .tag = kvr_http_header(head, "x-kvroute-tag"),
    };
    /* A compressed body is nobody's to read here: it goes by load. */
    if (api == KVR_API_OPAQUE || kvr_http_header(head, "content-encoding").len)
        return 0;
    int rc = kvr_api_request_scan(&ingress->api_request, api, body, &ingress->options.api,
                                  &ingress->prompt, error);
    if (rc)
        return rc;
    fill_from_body(ingress, head, submission);
    return 0;
}

static void on_request(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    struct kvr_ingress *ingress = context;
    if (kvr_local_path(ingress, client, request))
        return;
    struct kvr_submission submission;
    struct kvr_error error = {0};
    uint64_t received_ns = ingress->loop->woke_ns;
    if (kvr_ingress_read(ingress, request->head, request->body, &submission, &error)) {
        ingress->counters.bad_bodies++;
        kvr_client_error(
            client, &(struct kvr_api_error){400, "invalid_request_error", "invalid_json", NULL, 0},
            kvr_slice_of(""), error.text);
        return;
    }
    char room[32];
    submission.request_id = request_id(ingress, request->head, room, sizeof room);
    submission.received_ns = received_ns;
    kvr_exchange_begin(ingress, client, request, &submission);
    kvr_router_settle(&ingress->router);
}

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
    while (kvr_router_next_action(&ingress->router, &action))
        kvr_exchange_act(action.user, &action);
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
    return ingress->exchanges_count;
}

/* ---- what the background reports ---- */

static void fleet_changed(struct kvr_ingress *ingress)
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
    kvr_router_probed(&ingress->router, kvr_loop_now(), slot, outcome, refused);
    if (replica->operational == before)
        return;
    kvr_log(KVR_LOG_INFO, "replica %s is %s, was %s", replica->name,
            kvr_operational_name(replica->operational), kvr_operational_name(before));
    fleet_changed(ingress);
}

static void on_signals(void *context, uint32_t slot, const struct kvr_engine_signals *signals)
{
    struct kvr_ingress *ingress = context;
    kvr_router_signals(&ingress->router, kvr_loop_now(), slot, signals);
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
    if (!replica->pool)
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
    for (uint32_t i = 0; i < ingress->router.replicas.capacity; i++)
        if (ingress->replicas[i].pool)
            kvr_upstream_pool_sweep(ingress->replicas[i].pool, now);
    KVR_LIST_FOREACH (link, &ingress->exchanges)
        kvr_exchange_tick(KVR_LIST_ENTRY(link, struct kvr_exchange, link), now);
}

/* ---- start ---- */

static int start_listening(struct kvr_ingress *ingress, struct kvr_error *error)
{
    struct kvr_handler handler = {
        .context = ingress, .on_request = on_request, .on_gone = on_gone, .on_drained = on_drained};
    const struct kvr_ingress_options *options = &ingress->options;
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
    struct kvr_scraper_events signals = {.context = ingress, .on_signals = on_signals};
    if (options->scrape)
        kvr_scraper_start(&ingress->scraper, ingress->loop, &router->replicas, &options->scraper,
                          &source, &signals);
    KVR_CHECK(uv_timer_init(ingress->loop->uv, &ingress->tick) == 0);
    ingress->tick.data = ingress;
    KVR_CHECK(uv_timer_start(&ingress->tick, on_tick, TICK_MS, TICK_MS) == 0);
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
    kvr_prompt_init(&ingress->prompt, &options->prompt);
    kvr_script_store_start(&ingress->scripts, loop, &ingress->router, options->policies_dir);
}

int kvr_ingress_start(struct kvr_ingress *ingress, struct kvr_error *error)
{
    int rc = 0;
    if (ingress->options.rows.path)
        rc = kvr_row_log_open(&ingress->row_log, ingress->loop, &ingress->options.rows, error);
    if (rc)
        return rc;
    rc = start_listening(ingress, error);
    if (rc)
        return rc;
    start_background(ingress);
    return 0;
}

/* ---- the fleet ---- */

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

static int resolve(struct kvr_ingress *ingress, struct kvr_slice authority,
                   struct sockaddr_storage *address, struct kvr_error *error)
{
    char text[KVR_REPLICA_NAME_MAX];
    if (authority.len >= sizeof text)
        return kvr_error_set(error, KVR_E_INVALID, "replica name is too long");
    memcpy(text, authority.data, authority.len);
    text[authority.len] = '\0';
    if (kvr_parse_address(text, address, NULL) == 0)
        return 0;
    char *colon = strrchr(text, ':');
    if (!colon)
        return kvr_error_set(error, KVR_E_INVALID, "replica \"%s\" has no port", text);
    *colon = '\0';
    uv_getaddrinfo_t lookup;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int rc = uv_getaddrinfo(ingress->loop->uv, &lookup, NULL, text, colon + 1, &hints);
    if (rc)
        return kvr_error_set(error, KVR_E_INVALID, "replica \"%s\" cannot be resolved: %s", text,
                             uv_strerror(rc));
    memcpy(address, lookup.addrinfo->ai_addr, lookup.addrinfo->ai_addrlen);
    uv_freeaddrinfo(lookup.addrinfo);
    return 0;
}

int kvr_ingress_add_replica(struct kvr_ingress *ingress,
                            const struct kvr_ingress_replica_spec *spec, struct kvr_error *error)
{
    struct kvr_slice authority;
    struct sockaddr_storage address;
    int rc = split_url(spec->url, &authority, error);
    if (rc == 0)
        rc = resolve(ingress, authority, &address, error);
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
                           (const struct sockaddr *)&address);
    if (ingress->options.connect_ns)
        replica->pool->connect_ns = ingress->options.connect_ns;
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
    fleet_changed(ingress);
    return slot;
}

static void part_closed(void *context)
{
    struct kvr_ingress *ingress = context;
    KVR_CHECK(ingress->closing_parts > 0);
    if (--ingress->closing_parts == 0 && ingress->on_closed)
        ingress->on_closed(ingress->closed_context);
}

static void on_pool_closed(struct kvr_upstream_pool *pool)
{
    struct kvr_ingress *ingress = pool->owner;
    kvr_free(pool);
    if (ingress->closing)
        part_closed(ingress);
    else
        ingress->pools_closing--;
}

static void close_pool(struct kvr_ingress *ingress, uint32_t slot)
{
    struct kvr_ingress_replica *replica = &ingress->replicas[slot];
    struct kvr_upstream_pool *pool = replica->pool;
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
    close_pool(ingress, slot);
    fleet_changed(ingress);
}

/* ---- the end ---- */

void kvr_ingress_drain(struct kvr_ingress *ingress)
{
    ingress->draining = true;
    for (uint32_t i = 0; i < ingress->listeners_count; i++)
        kvr_listener_stop(&ingress->listeners[i]);
}

void kvr_ingress_close(struct kvr_ingress *ingress, void *context, void (*on_closed)(void *context))
{
    ingress->closed_context = context;
    ingress->on_closed = on_closed;
    KVR_LIST_FOREACH (link, &ingress->exchanges)
        kvr_exchange_cut(KVR_LIST_ENTRY(link, struct kvr_exchange, link));
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
    for (uint32_t i = 0; i < ingress->router.replicas.capacity; i++)
        if (ingress->replicas[i].pool)
            ingress->closing_parts++;
    kvr_script_store_close(&ingress->scripts, ingress, part_closed);
    if (ingress->options.rows.path)
        kvr_row_log_close(&ingress->row_log, ingress, part_closed);
    for (uint32_t i = 0; i < ingress->router.replicas.capacity; i++)
        if (ingress->replicas[i].pool)
            close_pool(ingress, i);
    part_closed(ingress);
}

void kvr_ingress_deinit(struct kvr_ingress *ingress)
{
    kvr_router_deinit(&ingress->router);
    kvr_prompt_deinit(&ingress->prompt);
    kvr_buffer_deinit(&ingress->head_out);
    kvr_free(ingress->replicas);
}
