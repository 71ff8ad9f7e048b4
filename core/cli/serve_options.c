#include "serve_options.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "home.h"
#include "log.h"

#define REPLICA_MODELS_MAX KVR_REPLICA_MODELS_MAX
#define STRIP_HEADERS_MAX  32

static uint64_t ms(const struct kvr_config *config, const char *name)
{
    return (uint64_t)(kvr_config_number(config, name) * 1e6);
}

static uint32_t count(const struct kvr_config *config, const char *name)
{
    return (uint32_t)kvr_config_number(config, name);
}

static size_t bytes(const struct kvr_config *config, const char *name)
{
    return (size_t)kvr_config_number(config, name);
}

static int check_folder(const struct kvr_config *config, const char *path, struct kvr_error *error)
{
    DIR *folder = opendir(path);
    if (!folder) {
        kvr_error_set(error, KVR_E_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
        return kvr_serve_blame(config, "policies_dir", error);
    }
    closedir(folder);
    return 0;
}

/* Where the configuration says, else what came with the binary. */
static const char *find_policies(const struct kvr_config *config, struct kvr_error *error)
{
    static struct kvr_home home;
    const char *configured = kvr_config_text(config, "policies_dir");
    if (configured && *configured)
        return check_folder(config, configured, error) ? NULL : configured;
    if (kvr_home_find_policies(&home, error) == 0)
        return home.policies;
    kvr_serve_blame(config, "policies_dir", error);
    return NULL;
}

static void read_limits(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    options->listener = (struct kvr_listener_options){
        .connections_max = count(config, "limits.connections"),
        .header_bytes_max = bytes(config, "limits.header_bytes"),
        .header_count_max = count(config, "limits.header_count"),
        .body_bytes_max = bytes(config, "limits.body_bytes"),
        .bodies_total_max = bytes(config, "limits.bodies_total_bytes"),
        .idle_ns = ms(config, "timeouts.client_idle_ms"),
        .request_ns = ms(config, "timeouts.client_body_ms"),
        .write_stall_ns = ms(config, "timeouts.client_stall_ms"),
        .parting_ns = ms(config, "timeouts.client_parting_ms"),
    };
    options->stream_buffer_bytes = bytes(config, "limits.stream_buffer_bytes");
    for (int i = 0; i < KVR_TIME_LIMITS; i++)
        options->limits.limits.ms[i] =
            count(config, kvr_time_limit_setting((enum kvr_time_limit)i));
    options->limits.by_header_max_ms = count(config, "timeouts.by_header_max_ms");
    options->gather_us = count(config, "streams.gather_us");
    options->pool_idle_ns = ms(config, "timeouts.pool_idle_ms");
}

static void read_router(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    options->router = (struct kvr_router_options){
        .seed = (uint64_t)kvr_config_number(config, "seed"),
        .replicas_max = count(config, "limits.replicas"),
        .requests_max = count(config, "limits.requests"),
        .moves = count(config, "moves"),
        .vnodes = count(config, "ring.vnodes"),
        .block_bytes = count(config, "index.block_bytes"),
        .canary_share = kvr_config_number(config, "canary.share"),
        .canary_by_key = strcmp(kvr_config_text(config, "canary.by"), "key") == 0,
        .row_blocks = kvr_config_bool(config, "rows.blocks"),
        .queue =
            {
                .max = count(config, "queue.max"),
                .deadline_ns = ms(config, "queue.deadline_ms"),
                .order = strcmp(kvr_config_text(config, "queue.order"), "shortest") == 0
                             ? KVR_QUEUE_SHORTEST
                             : KVR_QUEUE_FIFO,
            },
        .health =
            {
                .interval_ns = ms(config, "health.interval_ms"),
                .timeout_ns = ms(config, "health.timeout_ms"),
                .failures_to_eject = count(config, "health.failures"),
                .passes_to_admit = count(config, "health.passes"),
                .ramp_ns = ms(config, "health.ramp_ms"),
            },
        .index =
            {
                .memory_bytes = (uint64_t)kvr_config_number(config, "index.memory_mb") << 20,
                .blocks_max = count(config, "index.nodes"),
                .blocks_per_replica_max = count(config, "index.nodes_per_replica"),
                .ttl_ns = ms(config, "index.ttl_ms"),
                .seed = (uint64_t)kvr_config_number(config, "seed"),
            },
    };
    options->router.wide_after = (uint64_t)kvr_config_number(config, "index.wide_after");
    options->prompt = (struct kvr_prompt_options){
        .block_bytes = options->router.block_bytes,
        .wide_after = (uint64_t)kvr_config_number(config, "index.wide_after"),
    };
}

/* Which conversation, whose, and by what key. */
static void read_identities(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    static const char *const by[] = {[KVR_BY_SESSION] = "session",
                                     [KVR_BY_TENANT] = "tenant",
                                     [KVR_BY_KEY] = "key",
                                     [KVR_BY_BLOCKS] = "blocks"};
    struct kvr_slice session = kvr_slice_of(kvr_config_text(config, "session.key"));
    struct kvr_slice tenant = kvr_slice_of(kvr_config_text(config, "tenant.key"));
    struct kvr_slice routing = kvr_slice_of(kvr_config_text(config, "routing.key"));
    options->session = (struct kvr_session_options){.session_key = session, .tenant_key = tenant};
    options->routing = (struct kvr_routing_options){
        .key = routing,
        .blocks = count(config, "routing.blocks"),
    };
    for (int i = KVR_BY_SESSION; i <= KVR_BY_BLOCKS; i++)
        if (strcmp(kvr_config_text(config, "routing.by"), by[i]) == 0)
            options->routing.by = (enum kvr_routing_by)i;
    options->api = (struct kvr_api_options){
        .session_field = session, .tenant_field = tenant, .routing_field = routing};
}

static void read_headers(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    static struct kvr_slice names[STRIP_HEADERS_MAX];
    uint32_t n = kvr_config_count(config, "strip_headers");
    options->preserve_host = kvr_config_bool(config, "preserve_host");
    options->headers = kvr_config_bool(config, "headers");
    options->strip_headers = names;
    for (uint32_t i = 0; i < n && i < STRIP_HEADERS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "strip_headers.%u", i + 1);
        names[options->strip_headers_count++] = kvr_slice_of(kvr_config_text(config, name));
    }
}

static uint64_t seconds(const struct kvr_config *config, const char *name)
{
    return (uint64_t)(kvr_config_number(config, name) * 1e9);
}

static void read_planner(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    options->planner = (struct kvr_planner_options){
        .interval_ns = seconds(config, "plan.interval_s"),
        .planning =
            {
                .plan =
                    {
                        .q_cap = kvr_config_number(config, "plan.q_cap"),
                        .skip = kvr_config_bool(config, "plan.skip"),
                        .phi = kvr_config_number(config, "plan.phi"),
                        .residency = kvr_config_number(config, "plan.residency_s"),
                        .keep = kvr_config_bool(config, "plan.keep"),
                        .theta = kvr_config_number(config, "plan.theta"),
                        .move_budget = kvr_config_number(config, "plan.move_budget"),
                        .loyalty = kvr_config_number(config, "plan.loyalty"),
                    },
                .slots = count(config, "plan.slots"),
                .tokens = kvr_config_number(config, "plan.tokens"),
                .life_s = kvr_config_number(config, "plan.life_s"),
                .handover = {.every = count(config, "plan.handover_every"),
                             .most_ns = seconds(config, "plan.handover_s")},
            },
    };
    options->gate = (struct kvr_gate_options){
        .baseline = kvr_config_text(config, "gate.baseline"),
        .envelope = {.window_ns = ms(config, "gate.window_ms"),
                     .requests_min = count(config, "gate.requests_min")},
    };
    options->router.count_keys = options->planner.interval_ns > 0;
    options->router.key_tokens =
        options->planner.planning.tokens > 0 || options->planner.planning.life_s > 0;
    options->router.keys = (struct kvr_window_options){
        .span_ns = seconds(config, "keys.window_s"),
        .cells_max = count(config, "keys.cells"),
    };
}

static void read_background(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    options->prober.path = kvr_config_text(config, "health.path");
    options->scrape = kvr_config_bool(config, "scrape.enabled");
    options->scraper = (struct kvr_scraper_options){
        .path = kvr_config_text(config, "scrape.path"),
        .interval_ns = ms(config, "scrape.interval_ms"),
        .timeout_ns = ms(config, "scrape.timeout_ms"),
    };
    options->models.interval_ns = ms(config, "models.refresh_ms");
    options->resolver.refresh_ns = ms(config, "dns.refresh_ms");
    const char *rows = kvr_config_text(config, "rows.path");
    options->rows = (struct kvr_row_log_options){
        .path = rows && *rows ? rows : NULL,
        .rotate_bytes = (uint64_t)kvr_config_number(config, "rows.max_bytes"),
        .keep = count(config, "rows.keep"),
        .flush_ns = ms(config, "rows.flush_ms"),
    };
}

static void read_addresses(struct kvr_ingress_options *options, const struct kvr_config *config)
{
    uint32_t addresses = kvr_config_count(config, "listen");
    for (uint32_t i = 0; i < addresses && i < KVR_LISTENERS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "listen.%u", i + 1);
        options->listen[options->listen_count++] = kvr_config_text(config, name);
    }
}

int kvr_serve_options(struct kvr_ingress_options *options, const struct kvr_config *config,
                      struct kvr_error *error)
{
    memset(options, 0, sizeof *options);
    read_addresses(options, config);
    options->client_keys = kvr_config_text(config, "client_keys");
    options->replies = kvr_config_bool(config, "index.replies");
    options->script_budget_ms = count(config, "scripts.budget_ms");
    read_limits(options, config);
    read_router(options, config);
    read_planner(options, config);
    read_background(options, config);
    read_headers(options, config);
    read_identities(options, config);
    options->policies_dir = find_policies(config, error);
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(kvr_config_text(config, "log_level"), levels[i]) == 0)
            kvr_log_set_level((enum kvr_log_level)i);
    return options->policies_dir ? 0 : error->code;
}

static int add_one(struct kvr_ingress *ingress, const struct kvr_config *config, uint32_t i,
                   struct kvr_error *error)
{
    char name[64];
    struct kvr_slice models[REPLICA_MODELS_MAX];
    struct kvr_ingress_replica_spec spec = {.models = models};
#define FIELD(field) (snprintf(name, sizeof name, "replicas.%u." field, i), name)
    spec.url = kvr_slice_of(kvr_config_text(config, FIELD("url")));
    spec.key = kvr_slice_of(kvr_config_text(config, FIELD("key")));
    spec.weight = kvr_config_number(config, FIELD("weight"));
    spec.capacity = count(config, FIELD("capacity"));
    spec.rank = (int32_t)kvr_config_number(config, FIELD("rank"));
    spec.any_model = kvr_config_bool(config, FIELD("any_model"));
    uint32_t n = kvr_config_count(config, FIELD("models"));
    for (; spec.models_count < n && spec.models_count < REPLICA_MODELS_MAX; spec.models_count++) {
        snprintf(name, sizeof name, "replicas.%u.models.%u", i, spec.models_count + 1);
        models[spec.models_count] = kvr_slice_of(kvr_config_text(config, name));
    }
#undef FIELD
    int slot = kvr_ingress_add_replica(ingress, &spec, error);
    return slot < 0 ? kvr_serve_blame(
                          config, (snprintf(name, sizeof name, "replicas.%u.url", i), name), error)
                    : 0;
}

int kvr_serve_add_replicas(struct kvr_ingress *ingress, const struct kvr_config *config,
                           struct kvr_error *error)
{
    uint32_t n = kvr_config_count(config, "replicas");
    for (uint32_t i = 1; i <= n; i++) {
        int rc = add_one(ingress, config, i, error);
        if (rc)
            return rc;
    }
    return 0;
}

/* Of what the ingress opens, which is named in the message. */
int kvr_serve_blame_start(const struct kvr_ingress *ingress, const struct kvr_config *config,
                          struct kvr_error *error)
{
    static const char *const files[] = {"rows.path", "client_keys"};
    char name[32];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *path = kvr_config_text(config, files[i]);
        if (path && strstr(error->text, path))
            return kvr_serve_blame(config, files[i], error);
    }
    /* The first that does not listen; an address may stand there twice. */
    snprintf(name, sizeof name, "listen.%u", ingress->listeners_count + 1);
    const char *address = kvr_config_text(config, name);
    if (address && strstr(error->text, address))
        return kvr_serve_blame(config, name, error);
    return error->code;
}

int kvr_serve_print_settings(void)
{
    struct kvr_buffer text = {0};
    kvr_config_describe(&text);
    fwrite(text.data, 1, text.len, stdout);
    kvr_buffer_deinit(&text);
    return 0;
}
