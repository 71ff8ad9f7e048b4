/* From a request body to engine requests: the model is looked up, each prompt becomes tokens, and
 * what an output will say and how long it will be is settled here. */
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "answer.h"
#include "emu_call.h"
#include "memory.h"
#include "replica_server.h"
#include "rng.h"

/* ---- who and what ---- */

static const char *prefix_of(enum kvr_api api)
{
    switch (api) {
    case KVR_API_CHAT:
        return "chatcmpl-";
    case KVR_API_COMPLETIONS:
        return "cmpl-";
    case KVR_API_RESPONSES:
        return "resp_";
    case KVR_API_MESSAGES:
        return "msg_";
    case KVR_API_EMBEDDINGS:
        return "embd-";
    default:
        return "";
    }
}

static void name_answer(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                        struct kvr_emu_answer *answer)
{
    struct kvr_slice given = kvr_http_header(visit->request->head, "x-request-id");
    uint64_t serial = ++server->serial;
    if (given.len && given.len < sizeof answer->request_id)
        snprintf(answer->request_id, sizeof answer->request_id, "%.*s", (int)given.len, given.data);
    else
        snprintf(answer->request_id, sizeof answer->request_id, "%016llx%016llx",
                 (unsigned long long)kvr_mix64(server->created_s + server->options.index),
                 (unsigned long long)kvr_mix64(serial));
    snprintf(answer->id, sizeof answer->id, "%s%s", prefix_of(answer->api), answer->request_id);
}

static bool settle_model(const struct kvr_replica_server *server, const struct kvr_emu_ask *ask,
                         struct kvr_emu_answer *answer, uint64_t *salt,
                         struct kvr_emu_problem *problem)
{
    const char *name = ask->model[0] ? ask->model : server->options.models[0];
    bool lora = false;
    bool served = kvr_replica_server_serves(server, name, &lora);
    /* llama.cpp with one model does not look at the name. */
    if (!served && server->options.flavour != KVR_EMU_LLAMACPP)
        return kvr_emu_refuse(problem, KVR_EMU_UNKNOWN_MODEL, "model",
                              "The model `%s` does not exist.", name);
    snprintf(answer->model, sizeof answer->model, "%s", name);
    *salt = ask->salt;
    if (lora)
        *salt = kvr_mix64(*salt ^ XXH64(name, strlen(name), 1));
    return true;
}

static struct kvr_emu_answer describe(const struct kvr_replica_server *server, enum kvr_api api,
                                      const struct kvr_emu_ask *ask)
{
    const struct kvr_replica_server_options *options = &server->options;
    struct kvr_emu_answer answer = {
        .api = api,
        .flavour = options->flavour,
        .details = options->details,
        .alphabet = options->alphabet,
        .stream = ask->stream && api != KVR_API_EMBEDDINGS,
        .include_usage = ask->include_usage,
        .continuous_usage = ask->continuous_usage,
        .base64 = ask->base64,
        .embedding_size = options->embedding_size,
    };
    uv_timeval64_t now;
    uv_gettimeofday(&now);
    answer.created_s = (uint64_t)now.tv_sec;
    memcpy(answer.previous, ask->previous, sizeof answer.previous);
    return answer;
}

/* ---- one prompt and its outputs ---- */

/* Most tokens of an output; 0: the prompt leaves no room, and the problem says so. */
static uint32_t room_for_output(const struct kvr_replica_server *server,
                                const struct kvr_emu_ask *ask, struct kvr_emu_problem *problem)
{
    uint32_t most = server->profile.max_model_len;
    uint32_t prompt = server->tokens.count;
    bool embeds = ask->api == KVR_API_EMBEDDINGS;
    uint64_t wanted = ask->max_tokens >= 0 && !embeds ? (uint64_t)ask->max_tokens : 1;
    if (prompt + wanted > most) {
        kvr_emu_refuse(problem, KVR_EMU_TOO_LONG, embeds ? "input" : "max_tokens",
                       "This model's maximum context length is %u tokens. However, you requested "
                       "%" PRIu64 " tokens (%u in the prompt, %" PRIu64 " in the completion).",
                       most, prompt + wanted, prompt, wanted);
        return 0;
    }
    if (ask->max_tokens >= 0 || embeds)
        return (uint32_t)wanted;
    uint32_t left = most - prompt;
    return left < server->options.default_max_tokens ? left : server->options.default_max_tokens;
}

/* Goes on after the prompt with what the output will say, so that its blocks can be cached, copies
 * all hashes for the engine, and takes the tokenizer back to the end of the prompt. */
static void take_blocks(struct kvr_replica_server *server, const struct kvr_emu_choice *choice,
                        enum kvr_emu_alphabet alphabet, struct kvr_emu_job *job)
{
    struct kvr_tokens *tokens = &server->tokens;
    struct kvr_tokens mark = *tokens;
    if (server->profile.cache_generated) {
        size_t len =
            kvr_emu_text_cut(alphabet, choice->seed, kvr_tokens_cut(tokens, choice->output_tokens));
        server->scratch.len = 0;
        char *text = kvr_buffer_reserve(&server->scratch, len);
        kvr_emu_text_bytes(alphabet, choice->seed, 0, len, text);
        kvr_tokens_text(tokens, kvr_slice_make(text, len));
    }
    size_t bytes = tokens->blocks_len * sizeof *tokens->blocks;
    job->blocks = kvr_alloc(bytes ? bytes : 1);
    if (bytes)
        memcpy(job->blocks, tokens->blocks, bytes);
    job->live.engine.blocks = job->blocks;
    job->live.engine.blocks_len = tokens->blocks_len;
    tokens->count = mark.count;
    tokens->chain = mark.chain;
    tokens->blocks_len = mark.blocks_len;
}

static void settle_choice(struct kvr_emu_call *call, const struct kvr_emu_ask *ask, uint32_t index,
                          uint32_t most)
{
    struct kvr_replica_server *server = call->server;
    struct kvr_emu_choice *choice = &call->answer.choices[index];
    struct kvr_emu_job *job = &call->jobs[index];
    /* Outputs of one prompt differ; that of the first is a function of the prompt alone. */
    uint64_t variant = index % ask->n + (ask->seed << 8);
    choice->index = index;
    choice->seed = kvr_tokens_digest(&server->tokens) ^ (variant ? kvr_mix64(variant) : 0);
    choice->prompt_tokens = server->tokens.count;
    double early = ask->ignore_eos ? 0 : server->options.early_share;
    struct kvr_answer_length length = kvr_answer_length(choice->seed, most, early);
    if (length.tokens < ask->min_tokens) {
        length.tokens = ask->min_tokens < most ? ask->min_tokens : most;
        length.stopped = length.tokens < most;
    }
    choice->output_tokens = length.tokens;
    choice->max_tokens = most;
    choice->siblings = ask->n;
    kvr_live_request_init(&job->live);
    job->call = call;
    job->live.engine.prompt_tokens = choice->prompt_tokens;
    job->live.engine.output_tokens = length.tokens;
    job->live.engine.reason = length.stopped ? KVR_FINISH_STOP : KVR_FINISH_LENGTH;
    take_blocks(server, choice, call->answer.alphabet, job);
}

static bool settle_prompts(struct kvr_emu_call *call, const struct kvr_emu_ask *ask, uint64_t salt,
                           struct kvr_emu_problem *problem)
{
    struct kvr_replica_server *server = call->server;
    for (uint32_t i = 0; i < call->answer.prompts; i++) {
        if (!kvr_emu_prompt_write(ask, i, &server->profile, salt, false, &server->tokens,
                                  &server->scratch, problem))
            return false;
        uint32_t most = room_for_output(server, ask, problem);
        if (most == 0)
            return false;
        for (uint32_t k = 0; k < ask->n; k++)
            settle_choice(call, ask, i * ask->n + k, most);
    }
    return true;
}

/* ---- the whole ---- */

/* Puts the conversation that `previous_response_id` stands for before the input. */
static bool resume_response(struct kvr_replica_server *server, struct kvr_emu_ask *ask,
                            struct kvr_buffer *conversation, struct kvr_emu_problem *problem)
{
    struct kvr_slice before = {0};
    if (ask->previous[0]) {
        before = kvr_emu_store_find(&server->store, ask->previous);
        if (before.len == 0)
            return kvr_emu_refuse(problem, KVR_EMU_UNKNOWN_RESPONSE, "response_id",
                                  "Response with id '%s' not found.", ask->previous);
    }
    if (server->options.stored_responses == 0)
        return true;
    kvr_emu_store_join(before, ask->raw[KVR_EMU_INPUT], (struct kvr_slice){0}, conversation);
    ask->raw[KVR_EMU_INPUT] = kvr_buffer_slice(conversation);
    return true;
}

static bool make_room(struct kvr_emu_call *call, struct kvr_emu_ask *ask,
                      struct kvr_emu_problem *problem)
{
    if (call->answer.api == KVR_API_RESPONSES || call->answer.api == KVR_API_MESSAGES ||
        call->answer.api == KVR_API_EMBEDDINGS)
        ask->n = 1;
    uint64_t prompts = kvr_emu_prompt_count(ask);
    uint64_t choices = prompts * ask->n;
    if (choices == 0)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "prompt",
                              "please provide at least one prompt");
    if (choices > KVR_EMU_CHOICES_MAX)
        return kvr_emu_refuse(problem, KVR_EMU_BAD_VALUE, "n",
                              "%llu outputs were asked for, at most %d are made",
                              (unsigned long long)choices, KVR_EMU_CHOICES_MAX);
    call->answer.prompts = (uint32_t)prompts;
    call->answer.choices_len = (uint32_t)choices;
    call->answer.choices = &call->choice;
    call->jobs = &call->job;
    if (choices > 1) {
        call->answer.choices = kvr_alloc_zero(choices, sizeof *call->answer.choices);
        call->jobs = kvr_alloc_zero(choices, sizeof *call->jobs);
    }
    for (uint32_t i = 0; i < choices; i++)
        kvr_live_request_init(&call->jobs[i].live);
    call->jobs_len = (uint32_t)choices;
    return true;
}

void kvr_emu_call_generate(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                           enum kvr_api api)
{
    struct kvr_emu_problem problem = {0};
    struct kvr_emu_ask ask;
    uint64_t salt = 0;
    if (!kvr_emu_ask_read(&ask, api, visit->request->body, &problem)) {
        kvr_emu_call_problem(server, visit, api, &problem);
        return;
    }
    struct kvr_emu_call *call = kvr_emu_call_new(server, visit);
    call->answer = describe(server, api, &ask);
    call->shape = kvr_emu_shape_of(api);
    name_answer(server, visit, &call->answer);
    bool ok = settle_model(server, &ask, &call->answer, &salt, &problem) &&
              (api != KVR_API_RESPONSES ||
               resume_response(server, &ask, &call->conversation, &problem)) &&
              make_room(call, &ask, &problem) && settle_prompts(call, &ask, salt, &problem);
    if (!ok) {
        kvr_emu_call_fail(call, &problem);
        return;
    }
    for (uint32_t i = 0; i < call->jobs_len; i++) {
        kvr_live_engine_submit(&server->live, &call->jobs[i].live);
        call->answer.choices[i].arrived_ns = call->jobs[i].live.arrived_ns;
    }
    kvr_emu_output_flush(&call->output); /* a fault may act before anything is sent */
}
