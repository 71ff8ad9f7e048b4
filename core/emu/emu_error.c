#include "emu_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "http.h"
#include "json_writer.h"

struct wording {
    uint16_t status;
    const char *type;
};

static const struct wording vllm[] = {
    [KVR_EMU_BAD_JSON] = {400, "Bad Request"},
    [KVR_EMU_BAD_FIELD] = {400, "Bad Request"},
    [KVR_EMU_BAD_VALUE] = {400, "BadRequestError"},
    [KVR_EMU_TOO_LONG] = {400, "BadRequestError"},
    [KVR_EMU_UNAUTHORIZED] = {401, "Unauthorized"},
    [KVR_EMU_UNKNOWN_MODEL] = {404, "NotFoundError"},
    [KVR_EMU_UNKNOWN_RESPONSE] = {404, "NotFoundError"},
    [KVR_EMU_UNKNOWN_PATH] = {404, "Not Found"},
    [KVR_EMU_WRONG_METHOD] = {405, "Method Not Allowed"},
    [KVR_EMU_FULL] = {503, "ServiceUnavailableError"},
    [KVR_EMU_NOT_READY] = {503, "ServiceUnavailableError"},
    [KVR_EMU_DIED] = {500, "InternalServerError"},
    [KVR_EMU_ORDERED] = {500, "InternalServerError"},
};

/* llama.cpp answers text that is no JSON with 500: a client's fault that looks like its own. */
static const struct wording llamacpp[] = {
    [KVR_EMU_BAD_JSON] = {500, "server_error"},
    [KVR_EMU_BAD_FIELD] = {400, "invalid_request_error"},
    [KVR_EMU_BAD_VALUE] = {400, "invalid_request_error"},
    [KVR_EMU_TOO_LONG] = {400, "exceed_context_size_error"},
    [KVR_EMU_UNAUTHORIZED] = {401, "authentication_error"},
    [KVR_EMU_UNKNOWN_MODEL] = {404, "not_found_error"},
    [KVR_EMU_UNKNOWN_RESPONSE] = {404, "not_found_error"},
    [KVR_EMU_UNKNOWN_PATH] = {404, "not_found_error"},
    [KVR_EMU_WRONG_METHOD] = {404, "not_found_error"},
    [KVR_EMU_FULL] = {503, "unavailable_error"},
    [KVR_EMU_NOT_READY] = {503, "unavailable_error"},
    [KVR_EMU_DIED] = {500, "server_error"},
    [KVR_EMU_ORDERED] = {500, "server_error"},
};

bool kvr_emu_refuse(struct kvr_emu_problem *problem, enum kvr_emu_refusal refusal,
                    const char *param, const char *format, ...)
{
    problem->refusal = refusal;
    problem->status = 0;
    snprintf(problem->param, sizeof problem->param, "%s", param ? param : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->message, sizeof problem->message, format, arguments);
    va_end(arguments);
    return false;
}

static const struct wording *wording_of(enum kvr_emu_flavour flavour, enum kvr_emu_refusal refusal)
{
    KVR_CHECK(refusal > KVR_EMU_FINE && refusal <= KVR_EMU_ORDERED);
    return flavour == KVR_EMU_LLAMACPP ? &llamacpp[refusal] : &vllm[refusal];
}

uint16_t kvr_emu_error_status(enum kvr_emu_flavour flavour, const struct kvr_emu_problem *problem)
{
    return problem->status ? problem->status : wording_of(flavour, problem->refusal)->status;
}

static const char *type_of(enum kvr_emu_flavour flavour, const struct kvr_emu_problem *problem)
{
    if (problem->status && problem->status < 500)
        return flavour == KVR_EMU_LLAMACPP ? "invalid_request_error"
                                           : kvr_http_phrase(problem->status);
    return wording_of(flavour, problem->refusal)->type;
}

/* vLLM and SGLang: both name the field, SGLang puts everything at the top. */
static void put_fields(struct kvr_json_writer *json, const char *type, uint16_t status,
                       const struct kvr_emu_problem *problem)
{
    kvr_json_text(json, "message", problem->message);
    kvr_json_text(json, "type", type);
    if (problem->param[0])
        kvr_json_text(json, "param", problem->param);
    else
        kvr_json_null(json, "param");
    kvr_json_uint(json, "code", status);
}

static void put_anthropic(struct kvr_json_writer *json, uint16_t status,
                          const struct kvr_emu_problem *problem)
{
    const char *type = status == 404   ? "not_found_error"
                       : status == 401 ? "authentication_error"
                       : status < 500  ? "invalid_request_error"
                                       : "api_error";
    kvr_json_text(json, "type", "error");
    kvr_json_object_begin(json, "error");
    kvr_json_text(json, "type", type);
    kvr_json_text(json, "message", problem->message);
    kvr_json_object_end(json);
}

void kvr_emu_error_body(enum kvr_emu_flavour flavour, enum kvr_api api,
                        const struct kvr_emu_problem *problem, struct kvr_buffer *out)
{
    struct kvr_json_writer json = {.out = out};
    uint16_t status = kvr_emu_error_status(flavour, problem);
    const char *type = type_of(flavour, problem);
    kvr_json_object_begin(&json, NULL);
    if (problem->refusal == KVR_EMU_UNAUTHORIZED && flavour == KVR_EMU_VLLM) {
        kvr_json_text(&json, "error", "Unauthorized");
    } else if (api == KVR_API_MESSAGES) {
        put_anthropic(&json, status, problem);
    } else if (flavour == KVR_EMU_SGLANG) {
        kvr_json_text(&json, "object", "error");
        put_fields(&json, type, status, problem);
    } else if (flavour == KVR_EMU_LLAMACPP) {
        kvr_json_object_begin(&json, "error");
        kvr_json_uint(&json, "code", status);
        kvr_json_text(&json, "message", problem->message);
        kvr_json_text(&json, "type", type);
        kvr_json_object_end(&json);
    } else {
        kvr_json_object_begin(&json, "error");
        put_fields(&json, type, status, problem);
        kvr_json_object_end(&json);
    }
    kvr_json_object_end(&json);
}
