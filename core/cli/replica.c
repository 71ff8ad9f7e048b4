/* kvroute replica and kvroute fleet: emulated engines behind real sockets, one or many in a
 * process.
 *
 * Happy path: every replica listens, its address is written to stdout as a line of its own, then
 * `ready`; they serve until SIGTERM or SIGINT, then cut their connections, and the process exits 0.
 *
 *   replica 0 127.0.0.1:8001
 *   replica 1 127.0.0.1:8002
 *   control 127.0.0.1:39127
 *   ready
 *
 * Failure modes: an address that is taken, a profile that is not there: one line on stderr, exit 1
 * or 2. Running out of descriptors shows in the listener's log; the limit is raised at the start.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "command.h"
#include "memory.h"
#include "options.h"
#include "replica_server.h"

#define REPLICAS_MAX 256

static const char *const flavours[] = {"vllm", "sglang", "llamacpp", NULL};
static const char *const details[] = {"off", "on", "zero", NULL};
static const char *const alphabets[] = {"ascii", "cjk", "emoji", "mixed", NULL};

/* What the command line says; the types are those of its options. */
struct settings {
    const char *profile;
    const char *host;
    uint64_t port; /* of the first replica; 0: any */
    uint64_t replicas;
    const char *control; /* host:port; NULL: none */
    struct kvr_option_list models;
    struct kvr_option_list loras;
    struct kvr_option_list faults;
    const char *key;
    const char *check_host;
    unsigned flavour;
    unsigned details;
    unsigned alphabet;
    double time_scale;
    double early_stops;
    double idle_s;
    uint64_t seed;
    uint64_t max_model_len;
    uint64_t blocks;
    uint64_t max_num_seqs;
    uint64_t max_tokens;
    uint64_t max_queued_requests;
    uint64_t max_queued_tokens;
    uint64_t requests_per_connection;
    uint64_t embedding_size;
    uint64_t stored_responses;
    uint64_t log_lines;
    const char *log;
    bool echo_request_id;
    bool late_head;
};

/* The running process. */
struct host {
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_emu_log log;
    struct kvr_replica_server **servers; /* owned */
    uint32_t servers_len;
    struct kvr_listener control;
    bool has_control;
    uv_signal_t signals[2];
};

static void stop(struct host *host)
{
    for (uint32_t i = 0; i < host->servers_len; i++)
        kvr_replica_server_stop(host->servers[i]);
    if (host->has_control)
        kvr_listener_close(&host->control);
    for (int i = 0; i < 2; i++)
        if (!uv_is_closing((uv_handle_t *)&host->signals[i]))
            uv_close((uv_handle_t *)&host->signals[i], NULL);
}

static void on_signal(uv_signal_t *signal, int number)
{
    (void)number;
    stop(signal->data);
}

static void on_control(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    struct host *host = context;
    if (!kvr_replica_server_control(host->servers, host->servers_len, 0, client, request))
        kvr_client_error(
            client, &(struct kvr_api_error){404, "invalid_request_error", "not_found", NULL, 0},
            kvr_slice_of(""), "orders are /fault, /log and /replicas");
}

static void on_control_gone(void *context, struct kvr_client *client)
{
    (void)context;
    (void)client; /* every order is answered at once */
}

/* ---- setting up ---- */

static struct kvr_replica_server_options
options_of(const struct settings *settings, struct host *host, const struct kvr_profile *profile)
{
    return (struct kvr_replica_server_options){
        .profile = profile,
        .models = settings->models.items,
        .models_len = settings->models.len,
        .loras = settings->loras.items,
        .loras_len = settings->loras.len,
        .key = settings->key,
        .host = settings->check_host,
        .flavour = (enum kvr_emu_flavour)settings->flavour,
        .details = (enum kvr_emu_details)settings->details,
        .alphabet = (enum kvr_emu_alphabet)settings->alphabet,
        .time_scale = settings->time_scale,
        .early_share = settings->early_stops,
        .default_max_tokens = (uint32_t)settings->max_tokens,
        .max_waiting = (uint32_t)settings->max_queued_requests,
        .max_waiting_tokens = settings->max_queued_tokens,
        .idle_ns = (uint64_t)(settings->idle_s * 1e9),
        .requests_per_connection = (uint32_t)settings->requests_per_connection,
        .embedding_size = (uint32_t)settings->embedding_size,
        .stored_responses = (uint32_t)settings->stored_responses,
        .echo_request_id = settings->echo_request_id,
        .late_head = settings->late_head,
        .log = &host->log,
        .fleet = host->servers,
    };
}

static int set_faults(const struct settings *settings, struct host *host, struct kvr_error *error)
{
    for (uint32_t i = 0; i < settings->faults.len; i++) {
        struct kvr_emu_fault fault;
        int code = kvr_emu_fault_parse(kvr_slice_of(settings->faults.items[i]), &fault, error);
        for (uint32_t k = 0; code == 0 && k < host->servers_len; k++)
            code = kvr_replica_server_fault(host->servers[k], &fault, error);
        if (code)
            return code;
    }
    return 0;
}

static int start_control(const struct settings *settings, struct host *host,
                         struct kvr_error *error)
{
    if (!settings->control)
        return 0;
    const struct kvr_handler handler = {
        .context = host, .on_request = on_control, .on_gone = on_control_gone};
    int code = kvr_listener_start(&host->control, &host->loop, settings->control, &handler,
                                  &(struct kvr_listener_options){0}, error);
    host->has_control = code == 0;
    return code;
}

static int start_all(const struct settings *settings, const struct kvr_profile *profile,
                     struct host *host, struct kvr_error *error)
{
    host->servers = kvr_alloc_zero((size_t)settings->replicas, sizeof(struct kvr_replica_server *));
    struct kvr_replica_server_options options = options_of(settings, host, profile);
    options.fleet_len = (uint32_t)settings->replicas;
    for (uint32_t i = 0; i < settings->replicas; i++) {
        char address[128];
        snprintf(address, sizeof address, "%s:%u", settings->host,
                 settings->port ? (unsigned)settings->port + i : 0);
        host->servers[i] = kvr_alloc_zero(1, sizeof *host->servers[i]);
        host->servers_len++;
        options.address = address;
        options.index = i;
        options.seed = settings->seed + i;
        int code = kvr_replica_server_start(host->servers[i], &host->loop, &options, error);
        if (code)
            return code;
    }
    int code = set_faults(settings, host, error);
    return code ? code : start_control(settings, host, error);
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

/* Thousands of streams need as many descriptors. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void tear_down(struct host *host)
{
    uv_run(&host->uv, UV_RUN_DEFAULT); /* until every handle has closed */
    for (uint32_t i = 0; i < host->servers_len; i++) {
        kvr_replica_server_deinit(host->servers[i]);
        kvr_free(host->servers[i]);
    }
    kvr_free(host->servers);
    kvr_emu_log_deinit(&host->log);
    kvr_loop_deinit(&host->loop);
    uv_run(&host->uv, UV_RUN_NOWAIT);
    KVR_CHECK(uv_loop_close(&host->uv) == 0);
}

static int serve(const struct settings *settings, const struct kvr_profile *profile)
{
    struct host host = {0};
    struct kvr_error error = {0};
    if (kvr_emu_log_init(&host.log, settings->log, (uint32_t)settings->log_lines, &error)) {
        fprintf(stderr, "kvroute: %s\n", error.text);
        return KVR_EXIT_FAILED;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    KVR_CHECK(uv_loop_init(&host.uv) == 0);
    kvr_loop_init(&host.loop, &host.uv);
    static const int numbers[2] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        KVR_CHECK(uv_signal_init(&host.uv, &host.signals[i]) == 0);
        host.signals[i].data = &host;
        KVR_CHECK(uv_signal_start(&host.signals[i], on_signal, numbers[i]) == 0);
    }
    int code = start_all(settings, profile, &host, &error);
    if (code) {
        fprintf(stderr, "kvroute: %s\n", error.text);
        stop(&host);
    } else {
        announce(&host);
    }
    tear_down(&host);
    return code == 0 ? KVR_EXIT_OK : code == KVR_E_INVALID ? KVR_EXIT_USAGE : KVR_EXIT_FAILED;
}

/* ---- the command line ---- */

static int print_profiles(const struct kvr_usage *usage, const char *name)
{
    char names[256];
    size_t len = 0;
    const struct kvr_profile *profile;
    for (size_t i = 0; (profile = kvr_profile_at(i)) && len < sizeof names; i++)
        len +=
            (size_t)snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", profile->name);
    return kvr_usage_error(usage, "there is no profile \"%s\"; there are %s", name, names);
}

static int settle_profile(const struct settings *settings, const struct kvr_usage *usage,
                          struct kvr_profile *profile)
{
    const struct kvr_profile *found = kvr_profile_find(kvr_slice_of(settings->profile));
    if (!found)
        return print_profiles(usage, settings->profile);
    *profile = *found;
    if (settings->max_model_len)
        profile->max_model_len = (uint32_t)settings->max_model_len;
    if (settings->blocks)
        profile->blocks = (uint32_t)settings->blocks;
    if (settings->max_num_seqs)
        profile->max_num_seqs = (uint32_t)settings->max_num_seqs;
    struct kvr_error error;
    if (kvr_profile_check(profile, &error))
        return kvr_usage_error(usage, "%s", error.text);
    return KVR_OPTIONS_GO_ON;
}

/* `fleet`: many replicas by default, and names for their number and ports. */
static int run(int argc, char **argv, bool fleet)
{
    struct settings s = {
        .profile = "simple",
        .host = "127.0.0.1",
        .port = 8000,
        .replicas = fleet ? 0 : 1,
        .time_scale = 1,
        .idle_s = 5,
        .max_tokens = 64,
        .embedding_size = 64,
        .log_lines = KVR_EMU_LOG_LINES,
    };
    const struct kvr_option options[] = {
        KVR_OPTION_TEXT("profile", "NAME", &s.profile, "the engine that is emulated (simple)"),
        KVR_OPTION_TEXT("host", "ADDRESS", &s.host, "listen there (127.0.0.1)"),
        KVR_OPTION_COUNT(fleet ? "port-base" : "port", "N", &s.port, 0, 65535,
                         fleet ? "port of the first replica, the others follow; 0: any (8000)"
                               : "port; 0: any free one (8000)"),
        KVR_OPTION_COUNT("replicas", "N", &s.replicas, 1, REPLICAS_MAX,
                         fleet ? "how many (as many as the profile's study had)" : "how many (1)"),
        KVR_OPTION_TEXT("control", "HOST:PORT", &s.control,
                        "a listener for orders alone, which no fault touches"),
        KVR_OPTION_NUMBER("time-scale", "X", &s.time_scale, 1e-3, 1e4,
                          "engine seconds a second (1)"),
        KVR_OPTION_COUNT("seed", "N", &s.seed, 0, 1e15, "of the engines' jitter (0)"),
        KVR_OPTION_CHOICE("flavour", "NAME", &s.flavour, flavours,
                          "whose shapes: vllm, sglang, llamacpp (vllm)"),
        KVR_OPTION_LIST("served-model-name", "NAME", &s.models,
                        "a name of the model, may be repeated (the profile's)"),
        KVR_OPTION_LIST("lora", "NAME", &s.loras, "an adapter of it, may be repeated"),
        KVR_OPTION_CHOICE("prompt-tokens-details", "MODE", &s.details, details,
                          "cached tokens in usage: off, on (unless 0), zero (always) (off)"),
        KVR_OPTION_COUNT("max-model-len", "N", &s.max_model_len, 1, 1e8,
                         "tokens of a request (the profile's)"),
        KVR_OPTION_COUNT("blocks", "N", &s.blocks, 1, 1e8, "of the KV cache (the profile's)"),
        KVR_OPTION_COUNT("max-num-seqs", "N", &s.max_num_seqs, 1, 1e6,
                         "requests in a batch (the profile's)"),
        KVR_OPTION_COUNT("max-num-queued-reqs", "N", &s.max_queued_requests, 1, 1e6,
                         "waiting requests; over it 503 (65536)"),
        KVR_OPTION_COUNT("max-num-queued-tokens", "N", &s.max_queued_tokens, 1, 1e12,
                         "their prompt tokens; over it 503 (no limit)"),
        KVR_OPTION_COUNT("default-max-tokens", "N", &s.max_tokens, 1, 1e6,
                         "of an answer where none is asked for (64)"),
        KVR_OPTION_NUMBER("early-stops", "SHARE", &s.early_stops, 0, 1,
                          "of answers that stop by themselves before (0)"),
        KVR_OPTION_CHOICE("alphabet", "NAME", &s.alphabet, alphabets,
                          "of answers: ascii, cjk, emoji, mixed (ascii)"),
        KVR_OPTION_COUNT("embedding-size", "N", &s.embedding_size, 1, 65536,
                         "numbers in a vector (64)"),
        KVR_OPTION_COUNT("store-responses", "N", &s.stored_responses, 1, 65536,
                         "remember so many for previous_response_id (none)"),
        KVR_OPTION_TEXT("key", "KEY", &s.key, "ask for it on every path"),
        KVR_OPTION_TEXT("check-host", "HOST:PORT", &s.check_host, "404 for any other Host"),
        KVR_OPTION_NUMBER("keep-alive", "SECONDS", &s.idle_s, 0.001, 1e6,
                          "close idle connections after (5)"),
        KVR_OPTION_COUNT("requests-per-connection", "N", &s.requests_per_connection, 1, 1e9,
                         "then close it, unannounced (no limit)"),
        KVR_OPTION_FLAG("enable-request-id-headers", &s.echo_request_id,
                        "X-Request-Id in answers too"),
        KVR_OPTION_FLAG("late-head", &s.late_head,
                        "heads of streams with the first token, not before"),
        KVR_OPTION_LIST("fault", "FAULT", &s.faults,
                        "such as \"stall;after=3\", may be repeated; see emu_fault.h"),
        KVR_OPTION_TEXT("log", "FILE", &s.log, "one JSON line a request"),
        KVR_OPTION_COUNT("log-lines", "N", &s.log_lines, 0, 1e6,
                         "of these kept for GET /log (1024)"),
        {0},
    };
    const struct kvr_usage usage = {
        argv[0], "[OPTION...]",
        "Emulated inference engines: answers at the pace of a real one, from a paged prefix "
        "cache.\n"
        "Each address is a line on stdout, \"replica INDEX HOST:PORT\", then \"ready\".",
        options};
    int status = kvr_options_parse(&usage, argc, argv, NULL);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    struct kvr_profile profile;
    status = settle_profile(&s, &usage, &profile);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (s.replicas == 0)
        s.replicas = profile.replicas ? profile.replicas : 1;
    if (s.port && s.port + s.replicas > 65536)
        return kvr_usage_error(&usage, "%llu replicas do not fit above port %llu",
                               (unsigned long long)s.replicas, (unsigned long long)s.port);
    return serve(&s, &profile);
}

static int run_replica(int argc, char **argv)
{
    return run(argc, argv, false);
}

static int run_fleet(int argc, char **argv)
{
    return run(argc, argv, true);
}

const struct kvr_command kvr_command_replica = {
    "replica", "an emulated inference engine behind a real socket", run_replica};
const struct kvr_command kvr_command_fleet = {"fleet", "many of them in one process", run_fleet};
