#include "replica_server.h"

#include <string.h>

#define DEFAULT_MAX_TOKENS     64u
#define DEFAULT_IDLE_NS        5000000000u /* as uvicorn's */
#define DEFAULT_EMBEDDING_SIZE 64u
#define IDLE_SWEEP_MS          1.0 /* while the fault `idle` is set */

bool kvr_replica_server_serves(const struct kvr_replica_server *server, const char *name,
                               bool *lora)
{
    const struct kvr_replica_server_options *options = &server->options;
    *lora = false;
    for (uint32_t i = 0; i < options->models_len; i++)
        if (strcmp(options->models[i], name) == 0)
            return true;
    *lora = true;
    for (uint32_t i = 0; i < options->loras_len; i++)
        if (strcmp(options->loras[i], name) == 0)
            return true;
    return false;
}

/* ---- faults of the replica ---- */

/* Closes connections that have idled too long, more exactly than the listener's own sweep. */
static void on_sweep(struct kvr_emu_delay *delay)
{
    struct kvr_replica_server *server = KVR_LIST_ENTRY(delay, struct kvr_replica_server, sweeping);
    uint64_t now = kvr_loop_now();
    if (server->door.listener) {
        KVR_LIST_FOREACH (link, &server->door.listener->idle) {
            struct kvr_client *client = KVR_LIST_ENTRY(link, struct kvr_client, link);
            if ((double)(now - client->since_ns) < server->idle_ms * 1e6)
                break; /* the list is in order of age */
            kvr_client_close(client);
        }
    }
    kvr_emu_delay_start(&server->delays, &server->sweeping, IDLE_SWEEP_MS);
}

static void cut_calls(struct kvr_replica_server *server)
{
    while (!kvr_list_empty(&server->calls)) {
        struct kvr_emu_call *call = KVR_LIST_ENTRY(server->calls.next, struct kvr_emu_call, link);
        struct kvr_client *client = call->output.client;
        client->user = NULL;
        kvr_emu_call_drop(call, "broken");
        kvr_client_abort(client);
    }
}

static void start_counting(struct kvr_replica_server *server)
{
    uv_timeval64_t now;
    uv_gettimeofday(&now);
    kvr_emu_metrics_init(&server->metrics, server->profile.max_model_len,
                         &server->live.engine.counters, (uint64_t)now.tv_sec);
}

/* `orderly`: only the engine dies, and the server goes on to say so. Otherwise the process does:
 * connections are reset, and refused until it is back. */
static int restart(struct kvr_replica_server *server, const struct kvr_emu_fault *fault,
                   struct kvr_error *error)
{
    double ms = fault->ms >= 0 ? fault->ms : server->profile.startup_ms / server->live.time_scale;
    if (!fault->orderly) {
        cut_calls(server);
        int code = kvr_emu_door_shut(&server->door, true, ms, error);
        if (code)
            return code;
    }
    server->live.engine.profile.startup_ms = ms * server->live.time_scale;
    kvr_live_engine_restart(&server->live);
    start_counting(server);
    return 0;
}

int kvr_replica_server_fault(struct kvr_replica_server *server, const struct kvr_emu_fault *fault,
                             struct kvr_error *error)
{
    switch (fault->kind) {
    case KVR_EMU_FAULT_REFUSE:
        return kvr_emu_door_shut(&server->door, false, fault->ms, error);
    case KVR_EMU_FAULT_RESTART:
        return restart(server, fault, error);
    case KVR_EMU_FAULT_SLOW:
        kvr_live_engine_slow_down(&server->live, fault->factor);
        return 0;
    case KVR_EMU_FAULT_IDLE:
        server->idle_ms = fault->ms;
        kvr_emu_delay_start(&server->delays, &server->sweeping, IDLE_SWEEP_MS);
        return 0;
    case KVR_EMU_FAULT_NONE:
        kvr_replica_server_heal(server);
        return 0;
    default:
        return kvr_emu_faults_add(&server->faults, fault, error);
    }
}

void kvr_replica_server_heal(struct kvr_replica_server *server)
{
    server->faults.len = 0;
    kvr_emu_delay_stop(&server->sweeping);
    kvr_live_engine_slow_down(&server->live, 1);
    kvr_emu_door_open(&server->door);
}

/* ---- start and stop ---- */

#define DEFAULT_OPTION(name, value)                                                                \
    if (server->options.name == 0)                                                                 \
    server->options.name = (value)

static void fill_in(struct kvr_replica_server *server,
                    const struct kvr_replica_server_options *options)
{
    server->options = *options;
    server->profile = *options->profile;
    server->options.profile = &server->profile;
    DEFAULT_OPTION(time_scale, 1);
    DEFAULT_OPTION(default_max_tokens, DEFAULT_MAX_TOKENS);
    DEFAULT_OPTION(idle_ns, DEFAULT_IDLE_NS);
    DEFAULT_OPTION(embedding_size, DEFAULT_EMBEDDING_SIZE);
    if (options->models_len == 0) {
        server->own_name[0] = server->profile.name;
        server->options.models = server->own_name;
        server->options.models_len = 1;
    }
    if (!options->fleet) {
        server->alone[0] = server;
        server->options.fleet = server->alone;
        server->options.fleet_len = 1;
        server->options.index = 0;
    }
}

static int start_parts(struct kvr_replica_server *server, struct kvr_error *error)
{
    const struct kvr_replica_server_options *options = &server->options;
    int code = kvr_emu_delays_init(&server->delays, server->loop->uv, error);
    if (code)
        return code;
    const struct kvr_live_options live = {
        .profile = &server->profile,
        .time_scale = options->time_scale,
        .seed = options->seed,
        .max_waiting = options->max_waiting,
        .max_waiting_tokens = options->max_waiting_tokens,
    };
    struct kvr_live_handler events = kvr_emu_call_events;
    events.context = server;
    code = kvr_live_engine_init(&server->live, server->loop->uv, &live, &events, error);
    if (code)
        goto fail_after_delays;
    struct kvr_handler requests = kvr_replica_requests;
    requests.context = server;
    code =
        kvr_emu_door_init(&server->door, server->loop, &server->delays, options->address, &requests,
                          &(struct kvr_listener_options){.idle_ns = options->idle_ns}, error);
    if (code)
        goto fail_after_live;
    return 0;
fail_after_live:
    kvr_emu_door_close(&server->door);
    kvr_live_engine_deinit(&server->live);
fail_after_delays:
    kvr_emu_delays_deinit(&server->delays);
    return code;
}

int kvr_replica_server_start(struct kvr_replica_server *server, struct kvr_loop *loop,
                             const struct kvr_replica_server_options *options,
                             struct kvr_error *error)
{
    memset(server, 0, sizeof *server);
    server->loop = loop;
    fill_in(server, options);
    kvr_list_init(&server->calls);
    kvr_emu_delay_init(&server->sweeping, on_sweep);
    int code = kvr_profile_check(&server->profile, error);
    if (code == 0)
        code = start_parts(server, error);
    if (code)
        return code;
    server->started = true;
    server->sink.on_event = kvr_emu_call_on_event;
    kvr_tokens_init(&server->tokens, server->profile.bytes_per_token);
    kvr_emu_store_init(&server->store, options->stored_responses);
    start_counting(server);
    server->created_s = server->metrics.started_s;
    return 0;
}

void kvr_replica_server_stop(struct kvr_replica_server *server)
{
    if (!server->started)
        return;
    cut_calls(server);
    kvr_emu_delay_stop(&server->sweeping);
    kvr_emu_door_close(&server->door);
    kvr_live_engine_deinit(&server->live);
    kvr_emu_delays_deinit(&server->delays);
}

void kvr_replica_server_deinit(struct kvr_replica_server *server)
{
    kvr_emu_door_deinit(&server->door);
    if (!server->started)
        return;
    kvr_emu_connections_deinit(&server->connections);
    kvr_emu_store_deinit(&server->store);
    kvr_tokens_deinit(&server->tokens);
    kvr_buffer_deinit(&server->scratch);
    kvr_buffer_deinit(&server->wire);
    kvr_buffer_deinit(&server->sink.text);
}
