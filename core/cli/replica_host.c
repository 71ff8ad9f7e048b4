/* Happy path: every replica listens, the addresses are announced, they serve, a signal ends it all,
 * exit 0. Failure modes: an address that is taken, a log that cannot be written, a fault that makes
 * no sense: one line on stderr, exit 1, or 2 where the words were wrong. */
#include "replica_host.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "command.h"
#include "descriptors.h"
#include "memory.h"
#include "signals.h"

struct host {
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_emu_log log;
    struct kvr_replica_server **servers; /* owned */
    uint32_t servers_len;
    struct kvr_listener control;
    bool has_control;
    bool stopping;
};

static void stop(struct host *host)
{
    host->stopping = true;
    kvr_signals_leave();
    for (uint32_t i = 0; i < host->servers_len; i++)
        kvr_replica_server_stop(host->servers[i]);
    if (host->has_control)
        kvr_listener_close(&host->control);
}

static void on_end_signal(void *context, int number)
{
    (void)number;
    struct host *host = context;
    if (!host->stopping)
        stop(host);
}

static void on_order(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    struct host *host = context;
    if (!kvr_replica_server_control(host->servers, host->servers_len, 0, client, request))
        kvr_client_error(
            client, &(struct kvr_api_error){404, "invalid_request_error", "not_found", NULL, 0},
            kvr_slice_of(""), "orders are /fault, /log and /replicas");
}

static void on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    (void)client; /* every order is answered at once */
}

/* ---- start ---- */

static int set_faults(const struct kvr_replica_host_options *options, struct host *host,
                      struct kvr_error *error)
{
    for (uint32_t i = 0; i < options->faults_len; i++) {
        struct kvr_emu_fault fault;
        int code = kvr_emu_fault_parse(kvr_slice_of(options->faults[i]), &fault, error);
        for (uint32_t k = 0; code == 0 && k < host->servers_len; k++)
            code = kvr_replica_server_fault(host->servers[k], &fault, error);
        if (code)
            return code;
    }
    return 0;
}

static int start_control(const struct kvr_replica_host_options *options, struct host *host,
                         struct kvr_error *error)
{
    if (!options->control)
        return 0;
    const struct kvr_handler handler = {
        .context = host, .on_request = on_order, .on_gone = on_gone};
    const struct kvr_listener_options defaults = {0};
    int code = kvr_listener_start(&host->control, &host->loop, options->control, &handler,
                                  &defaults, error);
    host->has_control = code == 0;
    return code;
}

static int start(const struct kvr_replica_host_options *options, struct host *host,
                 struct kvr_error *error)
{
    struct kvr_replica_server_options server = options->server;
    host->servers = kvr_alloc_zero(options->replicas, sizeof(struct kvr_replica_server *));
    server.fleet = host->servers;
    server.fleet_len = options->replicas;
    server.log = &host->log;
    for (uint32_t i = 0; i < options->replicas; i++) {
        char address[128];
        bool bare_v6 = strchr(options->host, ':') && options->host[0] != '[';
        snprintf(address, sizeof address, bare_v6 ? "[%s]:%u" : "%s:%u", options->host,
                 options->port ? options->port + i : 0);
        server.address = address;
        server.index = i;
        server.seed = options->server.seed + i;
        host->servers[i] = kvr_alloc_zero(1, sizeof *host->servers[i]);
        host->servers_len++;
        int code = kvr_replica_server_start(host->servers[i], &host->loop, &server, error);
        if (code)
            return code;
    }
    int code = set_faults(options, host, error);
    return code ? code : start_control(options, host, error);
}

static void announce(const struct host *host)
{
    for (uint32_t i = 0; i < host->servers_len; i++)
        printf("replica %u %s\n", i, host->servers[i]->door.address);
    if (host->has_control)
        printf("control %s\n", host->control.address);
    puts("ready");
    fflush(stdout);
}

static void tear_down(struct host *host)
{
    for (uint32_t i = 0; i < host->servers_len; i++) {
        kvr_replica_server_deinit(host->servers[i]);
        kvr_free(host->servers[i]);
    }
    kvr_free(host->servers);
    kvr_emu_log_deinit(&host->log);
    kvr_loop_deinit(&host->loop);
    uv_run(&host->uv, UV_RUN_NOWAIT);
    KVR_CHECK(!uv_loop_alive(&host->uv));
}

int kvr_replica_host_run(const struct kvr_replica_host_options *options)
{
    static struct host host; /* outlives this call: see signals.h */
    struct kvr_error error = {0};
    if (kvr_emu_log_init(&host.log, options->log, options->log_lines, &error)) {
        fprintf(stderr, "kvroute: %s\n", error.text);
        return KVR_EXIT_FAILED;
    }
    kvr_descriptors_raise();
    KVR_CHECK(uv_loop_init(&host.uv) == 0);
    kvr_loop_init(&host.loop, &host.uv);
    signal(SIGPIPE, SIG_IGN);
    kvr_signals_watch(&host.uv, &(struct kvr_signals_handler){&host, on_end_signal, NULL});
    int code = start(options, &host, &error);
    if (code) {
        fprintf(stderr, "kvroute: %s\n", error.text);
        stop(&host);
    } else {
        announce(&host);
    }
    uv_run(&host.uv, UV_RUN_DEFAULT); /* until every handle has closed */
    tear_down(&host);
    return code == 0 ? KVR_EXIT_OK : code == KVR_E_INVALID ? KVR_EXIT_USAGE : KVR_EXIT_FAILED;
}
