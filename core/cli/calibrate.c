/* kvroute calibrate: times an endpoint and writes the profile of an engine that would time alike.
 *
 * Happy path: the endpoint says what it serves, it is timed for a minute or two, the constants are
 * fitted, the errors of the fit are told, the profile is printed or written, exit 0. Failure modes:
 * an endpoint that is not there, refuses the requests, or does not tell usage: one line on stderr,
 * exit 1. Nothing else should use the endpoint meanwhile; if something does, the errors show it. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "descriptors.h"
#include "engine_probe.h"
#include "fetch.h"
#include "options.h"
#include "pick.h"
#include "profile_text.h"

#define GUESSED_BLOCKS  8192
#define GUESSED_LEN     8192
#define MESSAGE_TOKENS  7 /* of a chat of one message, as the emulated tokenizer has it */
#define HEAD_TOKENS_MAX 256

static const char *const apis[] = {"chat", "completions", NULL};
static const char *const forms[] = {"better", "linear", "roofline", NULL};

static struct {
    const char *name;
    const char *out;
    const char *model;
    const char *key_env;
    unsigned api;
    unsigned form;
    uint64_t budget;
    uint64_t blocks;
    uint64_t max_num_seqs;
    uint64_t prompt_max;
    uint64_t batch_max;
    uint64_t repeats;
    double time_scale;
    double timeout_s;
} s = {
    .name = "calibrated",
    .max_num_seqs = 256,
    .prompt_max = 8192,
    .batch_max = 32,
    .repeats = 3,
    .time_scale = 1,
    .timeout_s = 120,
};

static const struct kvr_option options[] = {
    {"out", 'o', "FILE", "the profile goes there (stdout)", KVR_OPTION_IS_TEXT, &s.out, 0, 0, NULL},
    KVR_OPTION_TEXT("name", "NAME", &s.name, "of the profile (calibrated)"),
    KVR_OPTION_TEXT("model", "NAME", &s.model, "its name (the first that the endpoint lists)"),
    KVR_OPTION_CHOICE("api", "NAME", &s.api, apis, "chat or completions (chat)"),
    KVR_OPTION_TEXT("key-env", "NAME", &s.key_env, "bearer token, from this variable"),
    KVR_OPTION_COUNT("max-prompt", "N", &s.prompt_max, 256, 8192,
                     "tokens of the longest prompt (8192, or what the model takes)"),
    KVR_OPTION_COUNT("max-batch", "N", &s.batch_max, 1, 256, "streams at once, doubled up to (32)"),
    KVR_OPTION_COUNT("repeats", "N", &s.repeats, 1, 16,
                     "requests a figure, of which the median counts (3)"),
    KVR_OPTION_CHOICE("form", "NAME", &s.form, forms,
                      "how a step's parts add up: linear, roofline, or the better\none (better)"),
    KVR_OPTION_COUNT("max-num-batched-tokens", "N", &s.budget, 512, 131072,
                     "of a step (the usual one that fits best)"),
    KVR_OPTION_COUNT("max-num-seqs", "N", &s.max_num_seqs, 1, 8192,
                     "requests in a batch; cannot be timed (256)"),
    KVR_OPTION_COUNT("blocks", "N", &s.blocks, 1, 1e8,
                     "of the KV cache; cannot be timed (as its metrics page says,\nor 8192)"),
    KVR_OPTION_NUMBER("time-scale", "X", &s.time_scale, 1e-3, 1e4,
                      "engine seconds a second, of an emulated engine (1)"),
    KVR_OPTION_NUMBER("timeout", "SECONDS", &s.timeout_s, 1, 1e6, "of one request (120)"),
    {0},
};

static const struct kvr_usage usage = {
    "calibrate", "URL [OPTION...]",
    "Times an OpenAI endpoint that serves nobody else and fits the profile of its engine, for\n"
    "`kvroute replica --profile FILE`: first tokens of prompts unseen and sent again, gaps "
    "between\n"
    "tokens at several batch sizes, gaps while another request prefills.",
    options};

struct calibration {
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_probe_options options;
    struct kvr_probe_report report;
    struct kvr_profile profile;
    struct kvr_calibration fit;
    const char *url;
    char model[640];
    bool blocks_told; /* by the endpoint */
};

/* ---- what the endpoint says of itself ---- */

struct answer {
    int uv_code;
    uint16_t status;
    struct kvr_buffer body;
};

static void on_answer(void *context, const struct kvr_fetch_result *result)
{
    struct answer *answer = context;
    answer->uv_code = result->uv_code;
    answer->status = result->status;
    kvr_buffer_append_slice(&answer->body, result->body);
    kvr_buffer_append(&answer->body, "", 1);
}

/* The body is terminated, and the caller's to free. */
static struct answer ask(struct calibration *c, const char *path)
{
    struct answer answer = {0};
    char whole[KVR_LOAD_PATH_MAX + 32];
    snprintf(whole, sizeof whole, "%s%s", c->options.target.base, path);
    const struct kvr_fetch_options fetch = {
        .address = (const struct sockaddr *)&c->options.target.address,
        .host = kvr_slice_of(c->options.target.authority),
        .path = kvr_slice_of(whole),
        .bearer = kvr_slice_of(c->options.key ? c->options.key : ""),
    };
    kvr_fetch_start(&c->loop, &fetch, &answer, on_answer);
    uv_run(&c->uv, UV_RUN_DEFAULT);
    return answer;
}

static int find_model(struct calibration *c, struct kvr_error *error)
{
    struct answer answer = ask(c, "/v1/models");
    struct kvr_slice body = {answer.body.data, answer.body.len - 1};
    struct kvr_walk walk;
    snprintf(c->model, sizeof c->model, "%s", s.model ? s.model : "");
    if (answer.uv_code == 0 && answer.status == 200) {
        for (kvr_walk_start(&walk, body, "data"); kvr_walk_next(&walk);) {
            struct kvr_picked id = kvr_pick_text(walk.item, "id");
            if (c->model[0] && strcmp(c->model, id.text) != 0)
                continue;
            snprintf(c->model, sizeof c->model, "%s", id.text);
            double most = kvr_pick_number(walk.item, "max_model_len");
            if (most > 0 && most < 1e9)
                c->profile.max_model_len = (uint32_t)most;
            break;
        }
    }
    kvr_buffer_deinit(&answer.body);
    if (answer.uv_code)
        return kvr_error_set(error, KVR_E_IO, "no answer from %s: %s", c->url,
                             uv_strerror(answer.uv_code));
    if (!c->model[0])
        return kvr_error_set(error, KVR_E_IO, "%s lists no models: name one by --model", c->url);
    return KVR_OK;
}

/* vLLM's metrics page has the size of its cache in a label. */
static void find_blocks(struct calibration *c)
{
    static const char label[] = "num_gpu_blocks=\"";
    struct answer answer = ask(c, "/metrics");
    const char *at = answer.status == 200 ? strstr(answer.body.data, label) : NULL;
    unsigned long blocks = at ? strtoul(at + sizeof label - 1, NULL, 10) : 0;
    c->blocks_told = blocks > 0 && blocks <= 100000000;
    if (c->blocks_told)
        c->profile.blocks = (uint32_t)blocks;
    kvr_buffer_deinit(&answer.body);
}

/* ---- what comes of it ---- */

static double percent(double share)
{
    return 100 * share;
}

static void put_report(const struct calibration *c, struct kvr_buffer *out)
{
    static const char *const kinds[] = {"first tokens", "gaps", "gaps during a prefill"};
    kvr_buffer_printf(out,
                      "-- %s as timed from outside; %zu timings, of which the profile misses\n",
                      c->model, c->report.len);
    for (int kind = 0; kind < 3; kind++)
        kvr_buffer_printf(out, "--   %-22s median %.1f %%, p90 %.1f %%, worst %.1f %%\n",
                          kinds[kind], percent(c->fit.kinds[kind].median),
                          percent(c->fit.kinds[kind].p90), percent(c->fit.kinds[kind].worst));
    kvr_buffer_printf(out, "-- Not timed: max_num_seqs, startup_ms, blocks (%s).\n",
                      s.blocks         ? "as given"
                      : c->blocks_told ? "as its metrics say"
                                       : "a guess");
}

static void settle_profile(struct calibration *c)
{
    struct kvr_profile *profile = &c->profile;
    double head = c->options.completions ? 0 : round(c->report.head_tokens) - MESSAGE_TOKENS;
    snprintf(profile->name, sizeof profile->name, "%s", s.name);
    profile->jitter = fmin(round(c->report.jitter * 1e4) / 1e4, 1);
    profile->bytes_per_token = fmin(fmax(round(c->report.bytes_per_token * 1e3) / 1e3, 1), 64);
    profile->chat_head_tokens = (uint32_t)fmin(fmax(head, 0), HEAD_TOKENS_MAX);
    profile->chat_system_head_tokens = profile->chat_head_tokens;
    profile->max_num_seqs = (uint32_t)s.max_num_seqs;
    if (profile->max_num_seqs > profile->max_num_batched_tokens)
        profile->max_num_seqs = profile->max_num_batched_tokens;
}

/* Digits that no timing could tell apart. */
static void shorten(struct kvr_profile *profile)
{
    double *const constants[] = {
        &profile->step_floor_ms,         &profile->weights_ms,         &profile->prefill_step_ms,
        &profile->prefill_token_ms,      &profile->prefill_context_ms, &profile->decode_seq_ms,
        &profile->decode_seq_squared_ms, &profile->decode_context_ms,  &profile->overhead_ms,
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.4g", *constants[i]);
        *constants[i] = strtod(text, NULL);
    }
}

static int write_profile(const struct calibration *c, struct kvr_error *error)
{
    struct kvr_buffer text = {0};
    put_report(c, &text);
    fwrite(text.data, 1, s.out ? text.len : 0, stderr);
    kvr_profile_text_write(&c->profile, &text);
    FILE *file = s.out ? fopen(s.out, "w") : stdout;
    bool written = file && fwrite(text.data, 1, text.len, file) == text.len && fflush(file) == 0;
    if (s.out && file)
        written = fclose(file) == 0 && written;
    kvr_buffer_deinit(&text);
    return written
               ? KVR_OK
               : kvr_error_set(error, KVR_E_IO, "%s cannot be written", s.out ? s.out : "stdout");
}

/* ---- the whole ---- */

static int measure(struct calibration *c, struct kvr_error *error)
{
    struct kvr_probe probe;
    int code = find_model(c, error);
    if (code)
        return code;
    find_blocks(c);
    if (s.blocks)
        c->profile.blocks = (uint32_t)s.blocks;
    uint32_t room = c->profile.max_model_len;
    if (c->options.prompt_max > room - room / 16)
        c->options.prompt_max = room - room / 16; /* words are not exact */
    c->options.model = c->model;
    code = kvr_probe_open(&probe, &c->loop, &c->options, error);
    if (code)
        return code;
    code = kvr_probe_measure(&probe, &c->report, error);
    kvr_probe_close(&probe);
    return code;
}

static int calibrate(struct calibration *c, struct kvr_error *error)
{
    const struct kvr_calibration_options fit = {
        .budget = (uint32_t)s.budget,
        .form_given = s.form > 0,
        .form = s.form == 2 ? KVR_STEP_ROOFLINE : KVR_STEP_LINEAR,
    };
    int code = measure(c, error);
    if (code == 0)
        code = kvr_calibrate(c->report.timings, c->report.len, &fit, &c->profile, &c->fit, error);
    if (code)
        return code;
    settle_profile(c);
    shorten(&c->profile);
    code = kvr_profile_check(&c->profile, error);
    return code ? code : write_profile(c, error);
}

static int run_calibrate(int argc, char **argv)
{
    static struct calibration c;
    struct kvr_operands operands;
    struct kvr_error error = {0};
    int status = kvr_options_parse(&usage, argc, argv, &operands);
    if (status != KVR_OPTIONS_GO_ON)
        return status;
    if (operands.len != 1)
        return kvr_usage_error(&usage, operands.len ? "one URL at a time"
                                                    : "whose URL? Such as http://127.0.0.1:8000");
    if (strlen(s.name) >= KVR_PROFILE_NAME_MAX)
        return kvr_usage_error(&usage, "--name is of at most %d characters",
                               KVR_PROFILE_NAME_MAX - 1);
    c = (struct calibration){
        .url = operands.items[0],
        .profile = {.blocks = GUESSED_BLOCKS,
                    .max_model_len = GUESSED_LEN,
                    .replicas = 1,
                    .cache_generated = true},
        .options = {.key = s.key_env ? getenv(s.key_env) : NULL,
                    .completions = s.api == 1,
                    .time_scale = s.time_scale,
                    .prompt_max = (uint32_t)s.prompt_max,
                    .batch_max = (uint32_t)s.batch_max,
                    .repeats = (uint32_t)s.repeats,
                    .timeout_ns = (uint64_t)(s.timeout_s * 1e9)},
    };
    if (s.key_env && !c.options.key)
        return kvr_usage_error(&usage, "the variable %s holds no key", s.key_env);
    signal(SIGPIPE, SIG_IGN);
    kvr_descriptors_raise();
    KVR_CHECK(uv_loop_init(&c.uv) == 0);
    kvr_loop_init(&c.loop, &c.uv);
    int code = kvr_load_target_find(&c.options.target, &c.loop, c.url, &error);
    bool asked_wrongly = code != 0;
    if (code == 0)
        code = calibrate(&c, &error);
    kvr_loop_deinit(&c.loop);
    uv_run(&c.uv, UV_RUN_NOWAIT);
    if (asked_wrongly)
        return kvr_usage_error(&usage, "%s", error.text);
    if (code)
        fprintf(stderr, "kvroute calibrate: %s\n", error.text);
    return code ? KVR_EXIT_FAILED : KVR_EXIT_OK;
}

const struct kvr_command kvr_command_calibrate = {
    "calibrate", "fits the profile of a real engine from its timings", run_calibrate};
