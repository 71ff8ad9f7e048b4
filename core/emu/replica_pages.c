/* What an emulated replica answers besides generating: models, tokens, health, metrics. */
#include <string.h>

#include "replica_server.h"

#define VERSION "0.24.0+emulated" /* of the vLLM whose shapes these are */

struct page {
    const char *path;
    const char *methods; /* that it takes, as in Allow */
    void (*answer)(struct kvr_replica_server *server, const struct kvr_emu_visit *visit);
};

static void reply_json(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                       struct kvr_buffer *body)
{
    kvr_emu_call_page(server, visit, 200, kvr_slice_of(""), kvr_slice_of("application/json"),
                      kvr_buffer_slice(body));
    kvr_buffer_deinit(body);
}

static void reply_empty(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                        uint16_t status)
{
    kvr_emu_call_page(server, visit, status, kvr_slice_of(""), kvr_slice_of(""), kvr_slice_of(""));
}

/* ---- health ---- */

static void answer_health(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    bool ready = kvr_live_engine_ready(&server->live);
    struct kvr_buffer body = {0};
    if (server->options.flavour != KVR_EMU_LLAMACPP) {
        reply_empty(server, visit, ready ? 200 : 503);
    } else if (ready) {
        kvr_buffer_append_text(&body, "{\"status\":\"ok\"}");
        reply_json(server, visit, &body);
    } else {
        struct kvr_emu_problem problem = {0};
        kvr_emu_refuse(&problem, KVR_EMU_NOT_READY, NULL, "Loading model");
        kvr_emu_call_problem(server, visit, KVR_API_OPAQUE, &problem);
    }
}

static void answer_version(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_buffer body = {0};
    kvr_buffer_append_text(&body, "{\"version\":\"" VERSION "\"}");
    reply_json(server, visit, &body);
}

static void answer_load(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_buffer body = {0};
    kvr_buffer_printf(&body, "{\"server_load\":%u}", server->calls_len);
    reply_json(server, visit, &body);
}

static void answer_props(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_buffer body = {0};
    kvr_buffer_printf(&body, "{\"total_slots\":%u,\"is_sleeping\":false}",
                      server->profile.max_num_seqs);
    reply_json(server, visit, &body);
}

static void answer_metrics(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_buffer body = {0};
    struct kvr_emu_page page = {
        .flavour = server->options.flavour,
        .model = server->options.models[0],
        .engine = &server->live.engine,
        .now_ns = kvr_live_engine_now(&server->live),
        .started_ns = server->live.started_ns,
        .late_ns = &server->live.late_ns,
    };
    kvr_emu_metrics_write(&server->metrics, &page, &body);
    kvr_emu_call_page(server, visit, 200, kvr_slice_of(""),
                      kvr_slice_of("text/plain; version=0.0.4; charset=utf-8"),
                      kvr_buffer_slice(&body));
    kvr_buffer_deinit(&body);
}

static void answer_reset(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    if (kvr_live_engine_reset_cache(&server->live) == 0) {
        reply_empty(server, visit, 200);
        return;
    }
    struct kvr_emu_problem problem = {0};
    kvr_emu_refuse(&problem, KVR_EMU_ORDERED, NULL, "requests hold blocks of the cache");
    problem.status = 409;
    kvr_emu_call_problem(server, visit, KVR_API_OPAQUE, &problem);
}

/* ---- models ---- */

static void put_model(struct kvr_json_writer *json, const struct kvr_replica_server *server,
                      const char *name, const char *parent)
{
    char permission[64];
    snprintf(permission, sizeof permission, "modelperm-%016llx",
             (unsigned long long)server->created_s);
    kvr_json_object_begin(json, NULL);
    kvr_json_text(json, "id", name);
    kvr_json_text(json, "object", "model");
    kvr_json_uint(json, "created", server->created_s);
    kvr_json_text(json, "owned_by",
                  server->options.flavour == KVR_EMU_VLLM     ? "vllm"
                  : server->options.flavour == KVR_EMU_SGLANG ? "sglang"
                                                              : "llamacpp");
    kvr_json_text(json, "root", parent ? name : server->options.models[0]);
    if (parent)
        kvr_json_text(json, "parent", parent);
    else
        kvr_json_null(json, "parent");
    if (parent)
        kvr_json_null(json, "max_model_len");
    else
        kvr_json_uint(json, "max_model_len", server->profile.max_model_len);
    kvr_json_array_begin(json, "permission");
    kvr_json_object_begin(json, NULL);
    kvr_json_text(json, "id", permission);
    kvr_json_text(json, "object", "model_permission");
    kvr_json_uint(json, "created", server->created_s);
    kvr_json_bool(json, "allow_sampling", true);
    kvr_json_bool(json, "allow_logprobs", true);
    kvr_json_text(json, "organization", "*");
    kvr_json_object_end(json);
    kvr_json_array_end(json);
    kvr_json_object_end(json);
}

static void answer_models(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    const struct kvr_replica_server_options *options = &server->options;
    struct kvr_buffer body = {0};
    struct kvr_json_writer json = {.out = &body};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "object", "list");
    kvr_json_array_begin(&json, "data");
    for (uint32_t i = 0; i < options->models_len; i++)
        put_model(&json, server, options->models[i], NULL);
    for (uint32_t i = 0; i < options->loras_len; i++)
        put_model(&json, server, options->loras[i], options->models[0]);
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    reply_json(server, visit, &body);
}

/* ---- tokens ---- */

/* Reads the body and leaves its tokens in the scratch; false after answering with a refusal. */
static bool tokenize(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                     enum kvr_api api)
{
    struct kvr_emu_problem problem = {0};
    struct kvr_emu_ask ask;
    bool lora = false;
    bool ok = kvr_emu_ask_read(&ask, api, visit->request->body, &problem);
    if (ok && ask.model[0] && server->options.flavour != KVR_EMU_LLAMACPP &&
        !kvr_replica_server_serves(server, ask.model, &lora))
        ok = kvr_emu_refuse(&problem, KVR_EMU_UNKNOWN_MODEL, "model",
                            "The model `%s` does not exist.", ask.model);
    ok = ok && kvr_emu_prompt_write(&ask, 0, &server->profile, 0, true, &server->tokens,
                                    &server->scratch, &problem);
    if (!ok)
        kvr_emu_call_problem(server, visit, api, &problem);
    return ok;
}

static void answer_tokenize(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    if (!tokenize(server, visit, KVR_API_OPAQUE))
        return;
    const struct kvr_tokens *tokens = &server->tokens;
    struct kvr_buffer body = {0};
    struct kvr_json_writer json = {.out = &body};
    bool llamacpp = server->options.flavour == KVR_EMU_LLAMACPP;
    kvr_json_object_begin(&json, NULL);
    if (!llamacpp) {
        kvr_json_uint(&json, "count", tokens->count);
        kvr_json_uint(&json, "max_model_len", server->profile.max_model_len);
    }
    kvr_json_array_begin(&json, "tokens");
    for (uint32_t i = 0; i < tokens->count; i++)
        kvr_json_uint(&json, NULL, tokens->ids[i]);
    kvr_json_array_end(&json);
    if (!llamacpp)
        kvr_json_null(&json, "token_strs");
    kvr_json_object_end(&json);
    reply_json(server, visit, &body);
}

static void answer_count(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    if (!tokenize(server, visit, KVR_API_MESSAGES))
        return;
    struct kvr_buffer body = {0};
    kvr_buffer_printf(&body, "{\"input_tokens\":%u}", server->tokens.count);
    reply_json(server, visit, &body);
}

/* ---- which ---- */

static const struct page pages[] = {
    {"/health", "GET", answer_health},
    {"/ping", "GET, POST", answer_health},
    {"/v1/models", "GET", answer_models},
    {"/metrics", "GET", answer_metrics},
    {"/version", "GET", answer_version},
    {"/load", "GET", answer_load},
    {"/tokenize", "POST", answer_tokenize},
    {"/v1/messages/count_tokens", "POST", answer_count},
    {"/reset_prefix_cache", "POST", answer_reset},
};

static const struct page sglang_pages[] = {
    {"/health_generate", "GET", answer_health},
    {"/flush_cache", "GET, POST", answer_reset},
};

static const struct page llamacpp_pages[] = {
    {"/v1/health", "GET", answer_health},
    {"/props", "GET", answer_props},
};

static const struct page *find(const struct page *from, size_t count, struct kvr_slice path)
{
    for (size_t i = 0; i < count; i++)
        if (kvr_slice_is(path, from[i].path))
            return &from[i];
    return NULL;
}

#define FIND(from, path) find(from, sizeof(from) / sizeof((from)[0]), path)

/* Whether `methods`, as in Allow, holds this one. */
static bool takes(const char *methods, struct kvr_slice method)
{
    const char *at = memmem(methods, strlen(methods), method.data, method.len);
    return at && (at[method.len] == '\0' || at[method.len] == ',');
}

bool kvr_replica_server_page(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_slice path = visit->request->head->path;
    const struct page *page = FIND(pages, path);
    if (!page && server->options.flavour == KVR_EMU_SGLANG)
        page = FIND(sglang_pages, path);
    if (!page && server->options.flavour == KVR_EMU_LLAMACPP)
        page = FIND(llamacpp_pages, path);
    const char *methods = page ? page->methods : NULL;
    if (!page && kvr_api_of(path) != KVR_API_OPAQUE)
        methods = "POST"; /* it was not this one, or it would not have come here */
    if (!methods)
        return false;
    if (page && takes(page->methods, visit->request->head->method)) {
        page->answer(server, visit);
        return true;
    }
    struct kvr_emu_problem problem = {0};
    kvr_emu_refuse(&problem, KVR_EMU_WRONG_METHOD, NULL, "Method Not Allowed");
    struct kvr_buffer allow = {0};
    struct kvr_buffer body = {0};
    kvr_buffer_printf(&allow, "Allow: %s\r\n", methods);
    kvr_emu_error_body(server->options.flavour, KVR_API_OPAQUE, &problem, &body);
    kvr_emu_call_page(server, visit, kvr_emu_error_status(server->options.flavour, &problem),
                      kvr_buffer_slice(&allow), kvr_slice_of("application/json"),
                      kvr_buffer_slice(&body));
    kvr_buffer_deinit(&allow);
    kvr_buffer_deinit(&body);
    return true;
}
