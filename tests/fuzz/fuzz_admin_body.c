/* JSON bodies of admin commands. Input: three bytes for the fields that are allowed, three for
 * those that are needed, the body.
 *
 * What is accepted is an object of allowed fields, with all that are needed, each in its range and
 * inside the body's own memory; a refusal says why; a secret is never repeated. */
#include "fuzz.h"

#include "admin_body.h"
#include "naive_json.h"

#define ALL_FIELDS ((KVR_FIELD_BODY << 1) - 1u)

static bool is_inside(const struct kvr_admin_body *body, struct kvr_slice json,
                      struct kvr_slice text)
{
    if (text.len == 0)
        return true;
    const char *end = text.data + text.len;
    return (text.data >= body->text.data && end <= body->text.data + body->text.capacity) ||
           (text.data >= json.data && end <= json.data + json.len);
}

static void check(const struct kvr_admin_body *body, struct kvr_slice json, uint32_t allowed,
                  uint32_t required)
{
    FUZZ_CHECK(json.len == 0 || naive_json(json, true) == NAIVE_GOOD);
    FUZZ_CHECK((body->given & ~allowed) == 0 && (required & ~body->given) == 0);
    const struct kvr_slice texts[] = {body->url,  body->key,   body->replica, body->name,
                                      body->role, body->level, body->path};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        FUZZ_CHECK(is_inside(body, json, texts[i]));
    FUZZ_CHECK(body->models_count <= KVR_REPLICA_MODELS_MAX);
    for (uint32_t i = 0; i < body->models_count; i++)
        FUZZ_CHECK(body->models[i].len && is_inside(body, json, body->models[i]));
    FUZZ_CHECK(body->params_count <= KVR_SCRIPT_PARAMS_LIST);
    for (uint32_t i = 0; i < body->params_count; i++)
        FUZZ_CHECK(is_inside(body, json, body->params[i].key) &&
                   is_inside(body, json, body->params[i].value));
    FUZZ_CHECK(body->headers_count <= KVR_ADMIN_HEADERS_MAX);
    for (uint32_t i = 0; i < body->headers_count; i++)
        FUZZ_CHECK(is_inside(body, json, body->headers[i].name) &&
                   is_inside(body, json, body->headers[i].value));
    FUZZ_CHECK(body->shadows_count <= KVR_SHADOWS_MAX);
    for (uint32_t i = 0; i < body->shadows_count; i++) {
        FUZZ_CHECK(is_inside(body, json, body->shadows[i].name));
        FUZZ_CHECK(body->shadows[i].params_count <= KVR_SCRIPT_PARAMS_LIST);
    }
    if (body->given & KVR_FIELD_BODY)
        FUZZ_CHECK(is_inside(body, json, body->body) &&
                   naive_json(body->body, false) == NAIVE_GOOD);
    if (body->given & KVR_FIELD_WEIGHT)
        FUZZ_CHECK(body->weight > 0 && body->weight <= 1000);
    if (body->given & KVR_FIELD_SHARE)
        FUZZ_CHECK(body->share >= 0 && body->share <= 1);
    if (body->given & KVR_FIELD_CAPACITY)
        FUZZ_CHECK(body->capacity <= 1000000);
    FUZZ_CHECK(body->rank >= -1 && body->rank <= 65535);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint32_t allowed = (uint32_t)fuzz_number(&input, 3) & ALL_FIELDS;
    uint32_t required = (uint32_t)fuzz_number(&input, 3) & ALL_FIELDS & allowed;
    char *bytes = fuzz_rest(&input);
    struct kvr_slice json = {bytes, input.left};
    struct kvr_admin_body *body = malloc(sizeof *body);
    const char *field = "unset";
    struct kvr_error error = {0};
    int rc = kvr_admin_body_read(body, json, allowed, required, &field, &error);
    FUZZ_CHECK((rc == 0) == (error.text[0] == '\0'));
    if (rc == 0)
        check(body, json, allowed, required);
    else
        FUZZ_CHECK(!field || strstr(error.text, field));
    kvr_admin_body_deinit(body);
    free(body);
    free(bytes);
    return 0;
}
