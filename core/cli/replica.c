/* kvroute replica and kvroute fleet: the command line of the emulated replicas. */
#include <stdio.h>

#include "command.h"
#include "options.h"
#include "profile_option.h"
#include "replica_host.h"

#define REPLICAS_MAX 256

static const char *const flavours[] = {"vllm", "sglang", "llamacpp", NULL};
static const char *const details[] = {"off", "on", "zero", NULL};
static const char *const alphabets[] = {"ascii", "cjk", "emoji", "mixed", NULL};

/* What the command line says, in the types of its options; these are the defaults. */
static struct {
    const char *profile;
    const char *host;
    uint64_t port;
    uint64_t replicas; /* 0: not given */
    const char *control;
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
    bool explain_faults;
} s = {
    .profile = "simple",
    .host = "127.0.0.1",
    .port = 8000,
    .time_scale = 1,
    .idle_s = 5,
    .max_tokens = 64,
    .embedding_size = 64,
    .log_lines = KVR_EMU_LOG_LINES,
};

static const struct kvr_option options[] = {
    KVR_OPTION_TEXT("profile", "NAME", &s.profile,
                    "the engine that is emulated, by name or by its file (simple)"),
    KVR_OPTION_TEXT("host", "ADDRESS", &s.host, "listen there (127.0.0.1)"),
    KVR_OPTION_COUNT("port", "N", &s.port, 0, 65535,
                     "of the first replica, the others follow; 0: any free (8000)"),
    KVR_OPTION_COUNT("port-base", "N", &s.port, 0, 65535, "the same"),
    KVR_OPTION_COUNT("replicas", "N", &s.replicas, 1, REPLICAS_MAX,
                     "how many (1; of a fleet, as many as the profile's study had)"),
    KVR_OPTION_TEXT("control", "HOST:PORT", &s.control,
                    "a listener for orders alone, which no fault touches"),
    KVR_OPTION_NUMBER("time-scale", "X", &s.time_scale, 1e-3, 1e4, "engine seconds a second (1)"),
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
    KVR_OPTION_FLAG("enable-request-id-headers", &s.echo_request_id, "X-Request-Id in answers too"),
    KVR_OPTION_FLAG("late-head", &s.late_head, "heads of streams with the first token, not before"),
    KVR_OPTION_LIST("fault", "FAULT", &s.faults, "such as \"stall;after=3\", may be repeated"),
    KVR_OPTION_FLAG("faults", &s.explain_faults, "tell which faults there are"),
    KVR_OPTION_TEXT("log", "FILE", &s.log, "one JSON line a request"),
    KVR_OPTION_COUNT("log-lines", "N", &s.log_lines, 0, 1e6, "of these kept for GET /log (1024)"),
    {0},
};

static int settle_profile(const struct kvr_usage *usage, struct kvr_profile *profile)
{
    struct kvr_error error = {0};
    if (kvr_profile_option(s.profile, profile, &error))
        return kvr_usage_error(usage, "%s", error.text);
    if (s.max_model_len)
        profile->max_model_len = (uint32_t)s.max_model_len;
    if (s.blocks)
        profile->blocks = (uint32_t)s.blocks;
    if (s.max_num_seqs)
        profile->max_num_seqs = (uint32_t)s.max_num_seqs;
    if (kvr_profile_check(profile, &error))
        return kvr_usage_error(usage, "%s", error.text);
    return KVR_OPTIONS_GO_ON;
}

static struct kvr_replica_server_options server_options(const struct kvr_profile *profile)
{
    return (struct kvr_replica_server_options){
        .profile = profile,
        .models = s.models.items,
        .models_len = s.models.len,
        .loras = s.loras.items,
        .loras_len = s.loras.len,
        .key = s.key,
        .host = s.check_host,
        .flavour = (enum kvr_emu_flavour)s.flavour,
        .details = (enum kvr_emu_details)s.details,
        .alphabet = (enum kvr_emu_alphabet)s.alphabet,
        .time_scale = s.time_scale,
        .seed = s.seed,
        .early_share = s.early_stops,
        .default_max_tokens = (uint32_t)s.max_tokens,
        .max_waiting = (uint32_t)s.max_queued_requests,
        .max_waiting_tokens = s.max_queued_tokens,
        .idle_ns = (uint64_t)(s.idle_s * 1e9),
        .requests_per_connection = (uint32_t)s.requests_per_connection,
        .embedding_size = (uint32_t)s.embedding_size,
        .stored_responses = (uint32_t)s.stored_responses,
        .echo_request_id = s.echo_request_id,
        .late_head = s.late_head,
    };
}

static int run(int argc, char **argv, bool fleet)
{
    const struct kvr_usage usage = {
        argv[0], "[OPTION...]",
        "Emulated inference engines: answers at the pace of a real one, from a paged prefix "
        "cache.\n"
        "Each address is a line on stdout, \"replica INDEX HOST:PORT\", then \"ready\".",
        options};
    int status = kvr_options_parse(&usage, argc, argv, NULL);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (s.explain_faults) {
        fputs(kvr_emu_fault_help, stdout);
        return KVR_EXIT_OK;
    }
    struct kvr_profile profile = {0};
    status = settle_profile(&usage, &profile);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (s.replicas == 0)
        s.replicas = fleet && profile.replicas ? profile.replicas : 1;
    if (s.port && s.port + s.replicas > 65536)
        return kvr_usage_error(&usage, "%llu replicas do not fit above port %llu",
                               (unsigned long long)s.replicas, (unsigned long long)s.port);
    return kvr_replica_host_run(&(struct kvr_replica_host_options){
        .server = server_options(&profile),
        .host = s.host,
        .port = (uint32_t)s.port,
        .replicas = (uint32_t)s.replicas,
        .control = s.control,
        .faults = s.faults.items,
        .faults_len = s.faults.len,
        .log = s.log,
        .log_lines = (uint32_t)s.log_lines,
    });
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
