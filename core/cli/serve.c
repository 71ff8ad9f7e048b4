/* `kvroute serve`: reads the configuration, puts the scripts in force, starts the ingress and its
 * admin interface, and ends on SIGTERM or SIGINT: accepting stops, streams end up to a deadline,
 * rows are flushed. A second signal cuts at once. SIGHUP reads scripts again and reopens the rows.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "check.h"
#include "command.h"
#include "config.h"
#include "descriptors.h"
#include "file.h"
#include "handed.h"
#include "ingress.h"
#include "log.h"
#include "memory.h"
#include "options.h"
#include "serve_options.h"
#include "signals.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define DESCRIPTORS_MIN  64u /* some 20 are ours, the rest is for clients and replicas */

struct server {
    struct kvr_loop loop;
    struct kvr_ingress ingress;
    struct kvr_admin admin;
    struct kvr_handed handed;
    uv_timer_t deadline; /* after the signal to end: what is due by now */
    uint64_t unready_ns;
    uint64_t drain_ns;
    uint64_t end_began_ns;
    uint64_t drain_began_ns;
    bool ending;
    bool closing;
    bool closed;
};

static void on_closed(void *context)
{
    struct server *server = context;
    server->closed = true;
    uv_close((uv_handle_t *)&server->deadline, NULL);
    kvr_signals_leave();
    kvr_loop_deinit(&server->loop);
}

static void close_all(struct server *server)
{
    server->closing = true;
    uv_timer_stop(&server->deadline);
    uint32_t open = kvr_ingress_open(&server->ingress);
    if (open)
        kvr_log(KVR_LOG_WARN, "shutdown cuts %u open requests", open);
    kvr_admin_close(&server->admin);
    kvr_ingress_close(&server->ingress, server, on_closed);
}

static void drain(struct server *server, uint64_t now_ns)
{
    server->drain_began_ns = now_ns;
    kvr_log(KVR_LOG_INFO, "finishing %u open requests", kvr_ingress_open(&server->ingress));
    kvr_ingress_drain(&server->ingress);
    kvr_admin_hand_over(&server->admin);
}

static void on_deadline(uv_timer_t *timer)
{
    struct server *server = timer->data;
    uint64_t now_ns = kvr_loop_now();
    if (!server->ingress.draining) {
        if (now_ns - server->end_began_ns >= server->unready_ns)
            drain(server, now_ns);
        return;
    }
    bool late = now_ns - server->drain_began_ns >= server->drain_ns;
    if (late || kvr_ingress_drained(&server->ingress))
        close_all(server);
}

static void on_end_signal(void *context, int number)
{
    struct server *server = context;
    if (server->ending) {
        server->unready_ns = 0;
        server->drain_ns = 0;
        return;
    }
    server->ending = true;
    server->end_began_ns = kvr_loop_now();
    kvr_ingress_leave(&server->ingress);
    kvr_log(KVR_LOG_INFO, "%s: ending", number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (server->unready_ns == 0)
        drain(server, server->end_began_ns);
    uv_timer_start(&server->deadline, on_deadline, 0, 20);
}

static void on_hangup(void *context)
{
    struct server *server = context;
    if (server->closing)
        return;
    kvr_log(KVR_LOG_INFO, "SIGHUP: scripts and client keys are read again, rows are reopened");
    (void)kvr_script_store_reload(&server->ingress.scripts, NULL); /* a refusal is logged there */
    kvr_client_keys_reload(&server->ingress.client_keys);
    if (server->ingress.options.rows.path)
        kvr_row_log_reopen(&server->ingress.row_log);
}

static void watch_signals(struct server *server)
{
    const struct kvr_signals_handler handler = {server, on_end_signal, on_hangup};
    kvr_signals_watch(server->loop.uv, &handler);
    KVR_CHECK(uv_timer_init(server->loop.uv, &server->deadline) == 0);
    server->deadline.data = server;
}

static int fail(const struct kvr_error *error)
{
    fprintf(stderr, "kvroute serve: %s\n", error->text);
    return 1;
}

static int start(struct server *server, const struct kvr_config *config, struct kvr_error *error)
{
    struct kvr_ingress *ingress = &server->ingress;
    struct kvr_admin_options admin = {.listen = kvr_config_text(config, "admin.listen"),
                                      .token = kvr_config_text(config, "admin.token")};
    if (server->handed.admin[0])
        admin.listen = server->handed.admin;
    int rc = kvr_serve_choose_scripts(&ingress->scripts, config, error);
    if (rc == 0)
        rc = kvr_ingress_start(ingress, error) ? kvr_serve_blame_start(ingress, config, error) : 0;
    if (rc == 0)
        rc = kvr_serve_add_replicas(ingress, config, error);
    const char *plan = kvr_config_text(config, "plan.file");
    if (rc == 0 && plan && kvr_planner_load_first(&ingress->planner, plan, error))
        rc = kvr_serve_blame(config, "plan.file", error);
    const char *gate = kvr_config_text(config, "gate.file");
    if (rc == 0 && gate && *gate && kvr_gate_load_first(ingress, kvr_slice_of(gate), error))
        rc = kvr_serve_blame(config, "gate.file", error);
    if (rc == 0 && kvr_admin_start(&server->admin, &server->loop, ingress, &admin, error))
        rc = kvr_serve_blame(config, "admin.listen", error);
    if (rc == 0)
        kvr_ingress_may_accept(ingress);
    return rc;
}

/* One line, for people and for whoever started this with port 0. */
static void say_where(const struct server *server)
{
    printf("kvroute serving on");
    for (uint32_t i = 0; i < server->ingress.listeners_count; i++)
        printf(" %s", server->ingress.listeners[i].address);
    printf(" admin %s\n", kvr_admin_address(&server->admin));
    fflush(stdout);
}

/* Whoever handed sockets over has said where to listen. */
static void listen_at_handed(struct kvr_ingress_options *options, const struct kvr_handed *handed)
{
    if (handed->listen_count == 0)
        return;
    options->listen_count = handed->listen_count;
    for (uint32_t i = 0; i < handed->listen_count; i++)
        options->listen[i] = handed->listen[i];
}

static int run(const struct kvr_config *config)
{
    struct server *server = kvr_alloc_zero(1, sizeof *server);
    struct kvr_error error = {0};
    signal(SIGPIPE, SIG_IGN);
    uint32_t descriptors = kvr_descriptors_raise();
    if (descriptors && descriptors < DESCRIPTORS_MIN) {
        kvr_error_set(&error, KVR_E_LIMIT, "ulimit -n %u: at least %u descriptors are needed",
                      descriptors, DESCRIPTORS_MIN);
        return fail(&error);
    }
    kvr_loop_init(&server->loop, uv_default_loop());
    struct kvr_ingress_options options;
    if (kvr_serve_options(&options, config, &error) || kvr_handed_take(&server->handed, &error))
        return fail(&error);
    listen_at_handed(&options, &server->handed);
    options.listener.descriptors_max = descriptors;
    server->unready_ns = (uint64_t)(kvr_config_number(config, "timeouts.unready_ms") * 1e6);
    server->drain_ns = (uint64_t)(kvr_config_number(config, "timeouts.drain_ms") * 1e6);
    kvr_ingress_init(&server->ingress, &server->loop, &options);
    size_t heap = (size_t)(kvr_config_number(config, "scripts.memory_mb") * (1 << 20));
    for (int role = 0; role < KVR_ROLES; role++)
        kvr_slot_limit_memory(kvr_router_slot(&server->ingress.router, (enum kvr_script_role)role),
                              heap);
    if (start(server, config, &error))
        return fail(&error); /* the process ends here: nothing to undo */
    watch_signals(server);
    if (kvr_config_count(config, "replicas") == 0)
        kvr_log(KVR_LOG_WARN, "no replicas: requests are refused until one is added, by replicas = "
                              "{ \"URL\" } in the configuration, --replica URL, or kvroute ctl add "
                              "URL");
    say_where(server);
    uv_run(server->loop.uv, UV_RUN_DEFAULT);
    KVR_CHECK(server->closed);
    kvr_ingress_deinit(&server->ingress);
    kvr_free(server);
    return 0;
}

static int set(struct kvr_config *config, const char *name, const char *value)
{
    struct kvr_error error = {0};
    if (kvr_config_set(config, name, kvr_slice_of(value), &error) == 0)
        return 0;
    fprintf(stderr, "kvroute serve: %s\n", error.text);
    return KVR_EXIT_USAGE;
}

/* What the command line says is applied over the file. */
struct flags {
    const char *config, *policy, *listen;
    struct kvr_option_list replicas, settings;
    bool help_config;
};

static int apply_setting(struct kvr_config *config, const char *setting)
{
    char name[128];
    const char *equals = strchr(setting, '=');
    if (!equals || (size_t)(equals - setting) >= sizeof name) {
        fprintf(stderr, "kvroute serve: --set takes KEY=VALUE, got \"%s\"\n", setting);
        return KVR_EXIT_USAGE;
    }
    snprintf(name, sizeof name, "%.*s", (int)(equals - setting), setting);
    return set(config, name, equals + 1);
}

static int apply(struct kvr_config *config, const struct flags *flags)
{
    int rc = flags->policy ? set(config, "policy", flags->policy) : 0;
    if (rc == 0 && flags->listen)
        rc = set(config, "listen", flags->listen);
    for (uint32_t i = 0; rc == 0 && i < flags->replicas.len; i++) {
        char name[64];
        snprintf(name, sizeof name, "replicas.%u.url", kvr_config_count(config, "replicas") + 1);
        rc = set(config, name, flags->replicas.items[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < flags->settings.len; i++)
        rc = apply_setting(config, flags->settings.items[i]);
    return rc;
}

static struct kvr_config *read_config(const char *path, struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    if (path && kvr_file_read_given(path, CONFIG_BYTES_MAX, &text, error)) {
        kvr_buffer_deinit(&text);
        return NULL;
    }
    struct kvr_config *config =
        kvr_config_read(path ? path : "defaults", kvr_buffer_slice(&text), error);
    kvr_buffer_deinit(&text);
    return config;
}

static int serve(int argc, char **argv)
{
    static struct flags flags;
    const struct kvr_option table[] = {
        {"config", 'c', "FILE", "a Lua file of settings (kvroute.lua, where it exists)",
         KVR_OPTION_IS_TEXT, &flags.config, 0, 0, NULL},
        {"replica", 'r', "URL", "add a replica, such as http://127.0.0.1:8001; repeatable",
         KVR_OPTION_IS_LIST, &flags.replicas, 0, 0, NULL},
        {"policy", 'p', "NAME", "routing policy (prefix_affinity)", KVR_OPTION_IS_TEXT,
         &flags.policy, 0, 0, NULL},
        {"listen", 'l', "ADDRESS", "where requests come in (127.0.0.1:8080)", KVR_OPTION_IS_TEXT,
         &flags.listen, 0, 0, NULL},
        {"set", 's', "KEY=VALUE", "one setting by its dotted name, over the file; repeatable",
         KVR_OPTION_IS_LIST, &flags.settings, 0, 0, NULL},
        KVR_OPTION_FLAG("help-config", &flags.help_config, "all settings with their defaults"),
        {0},
    };
    const struct kvr_usage usage = {
        "serve", "[OPTION...]",
        "Runs the ingress: OpenAI-compatible HTTP in, routed by a Lua policy, to the replicas.",
        table};
    int status = kvr_options_parse(&usage, argc, argv, NULL);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (flags.help_config)
        return kvr_serve_print_settings();
    if (!flags.config && access("kvroute.lua", R_OK) == 0)
        flags.config = "kvroute.lua";
    struct kvr_error error = {0};
    struct kvr_config *config = read_config(flags.config, &error);
    if (!config) {
        fail(&error);
        return KVR_EXIT_USAGE;
    }
    int rc = apply(config, &flags);
    if (rc == 0)
        rc = run(config);
    kvr_config_destroy(config);
    return rc;
}

const struct kvr_command kvr_command_serve = {
    .name = "serve",
    .summary = "the ingress: routes requests to replicas by a Lua policy",
    .run = serve,
};
