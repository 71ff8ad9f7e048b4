#include "admin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "admin_call.h"
#include "check.h"
#include "memory.h"

#define JSON_TYPE       "application/json"
#define CONNECTIONS_MAX 128
#define HEADERS_MAX     (16u << 10)
#define BODY_MAX        (64u << 10) /* where it does not hold a client's */
#define BODIES_MAX      (4u << 20)  /* beside one of those */
#define CLIENT_BODY_MAX (32u << 20) /* unless limits.body_bytes says otherwise */

/* ---- answers ---- */

void kvr_admin_answer_as(struct kvr_admin_call *call, const char *content_type,
                         const struct kvr_buffer *text)
{
    kvr_client_reply(call->client, 200, kvr_slice_of("Cache-Control: no-store\r\n"),
                     kvr_slice_of(content_type), kvr_buffer_slice(text));
}

void kvr_admin_answer(struct kvr_admin_call *call, const struct kvr_buffer *json)
{
    kvr_admin_answer_as(call, JSON_TYPE, json);
}

static void refuse(struct kvr_client *client, const struct kvr_api_error *error,
                   const char *headers, const char *message)
{
    kvr_client_error(client, error, kvr_slice_of(headers), message);
}

void kvr_admin_refuse(struct kvr_admin_call *call, uint16_t status, const char *code,
                      const char *param, const char *format, ...)
{
    char message[KVR_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    refuse(call->client,
           &(struct kvr_api_error){.status = status,
                                   .type = status < 500 ? "invalid_request_error" : "server_error",
                                   .code = code,
                                   .param = param},
           "", message);
}

void kvr_admin_refuse_error(struct kvr_admin_call *call, const char *param,
                            const struct kvr_error *error)
{
    static const struct {
        int code;
        uint16_t status;
        const char *name;
    } answers[] = {
        {KVR_E_INVALID, 400, "invalid_value"},  {KVR_E_LIMIT, 409, "limit_reached"},
        {KVR_E_NOT_FOUND, 404, "not_found"},    {KVR_E_EXISTS, 409, "exists"},
        {KVR_E_SCRIPT, 422, "script_refused"},  {KVR_E_RUNAWAY, 422, "script_refused"},
        {KVR_E_STATE, 409, "not_possible_now"}, {KVR_E_IO, 500, "io_error"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        if (answers[i].code != error->code)
            continue;
        kvr_admin_refuse(call, answers[i].status, answers[i].name, param, "%s", error->text);
        return;
    }
    kvr_admin_refuse(call, 500, kvr_error_name(error->code), param, "%s", error->text);
}

/* ---- who may ---- */

/* In a time that does not tell how much of the token was right. */
static bool is_token(const char *token, struct kvr_slice given)
{
    size_t len = strlen(token);
    unsigned char differ = given.len != len;
    for (size_t i = 0; i < given.len; i++)
        differ |= (unsigned char)(given.data[i] ^ token[i % len]);
    return differ == 0;
}

static struct kvr_slice bearer(const struct kvr_http_head *head)
{
    static const char scheme[] = "bearer ";
    struct kvr_slice value = kvr_http_header(head, "authorization");
    if (value.len < sizeof scheme - 1 || strncasecmp(value.data, scheme, sizeof scheme - 1) != 0)
        return kvr_slice_make("", 0);
    return kvr_slice_trim(
        kvr_slice_make(value.data + sizeof scheme - 1, value.len - (sizeof scheme - 1)));
}

/* True: answered, with a refusal. */
static bool deny(struct kvr_admin *admin, struct kvr_client *client,
                 const struct kvr_http_head *head)
{
    struct kvr_slice given = bearer(head);
    if (admin->token && given.len && is_token(admin->token, given))
        return false;
    if (!admin->token && !kvr_http_header(head, "origin").len)
        return false;
    admin->counters.denied++;
    if (admin->token)
        refuse(client,
               &(struct kvr_api_error){
                   .status = 401, .type = "invalid_request_error", .code = "invalid_token"},
               "WWW-Authenticate: Bearer\r\n",
               given.len ? "the bearer token is not the one of admin.token"
                         : "a bearer token is needed: Authorization: Bearer TOKEN");
    else
        refuse(client,
               &(struct kvr_api_error){
                   .status = 403, .type = "invalid_request_error", .code = "origin_refused"},
               "", "requests with an Origin are refused while admin.token is not set");
    return true;
}

/* ---- what there is ---- */

struct route {
    const char *method;
    const char *path;
    void (*serve)(struct kvr_admin_call *call);
    uint32_t allowed;
    uint32_t required;
};

static void serve_paths(struct kvr_admin_call *call);

#define URL_FIELDS                                                                                 \
    (KVR_FIELD_URL | KVR_FIELD_WEIGHT | KVR_FIELD_CAPACITY | KVR_FIELD_KEY | KVR_FIELD_RANK |      \
     KVR_FIELD_ANY_MODEL | KVR_FIELD_MODELS)
#define NAME_AND_PARAMS (KVR_FIELD_NAME | KVR_FIELD_PARAMS)
#define ROLE_AND_PARAMS (KVR_FIELD_ROLE | KVR_FIELD_PARAMS)
#define REQUEST_FIELDS  (KVR_FIELD_PATH | KVR_FIELD_HEADERS | KVR_FIELD_BODY)

static const struct route routes[] = {
    {"GET", "/metrics", kvr_admin_metrics, 0, 0},
    {"GET", "/admin", serve_paths, 0, 0},
    {"GET", "/admin/status", kvr_admin_status, 0, 0},
    {"GET", "/admin/replicas", kvr_admin_replicas, 0, 0},
    {"POST", "/admin/replicas", kvr_admin_add, URL_FIELDS, KVR_FIELD_URL},
    {"POST", "/admin/replicas/remove", kvr_admin_remove, KVR_FIELD_REPLICA, KVR_FIELD_REPLICA},
    {"POST", "/admin/replicas/drain", kvr_admin_drain, KVR_FIELD_REPLICA, KVR_FIELD_REPLICA},
    {"POST", "/admin/replicas/restore", kvr_admin_restore, KVR_FIELD_REPLICA, KVR_FIELD_REPLICA},
    {"POST", "/admin/replicas/weight", kvr_admin_weight, KVR_FIELD_REPLICA | KVR_FIELD_WEIGHT,
     KVR_FIELD_REPLICA | KVR_FIELD_WEIGHT},
    {"GET", "/admin/scripts", kvr_admin_scripts, 0, 0},
    {"POST", "/admin/policy", kvr_admin_policy, NAME_AND_PARAMS, KVR_FIELD_NAME},
    {"POST", "/admin/spill", kvr_admin_spill, NAME_AND_PARAMS, KVR_FIELD_NAME},
    {"POST", "/admin/canary", kvr_admin_canary, NAME_AND_PARAMS | KVR_FIELD_SHARE, 0},
    {"POST", "/admin/params", kvr_admin_params, ROLE_AND_PARAMS, ROLE_AND_PARAMS},
    {"POST", "/admin/reload", kvr_admin_reload, 0, 0},
    {"GET", "/admin/shadow", kvr_admin_shadow, 0, 0},
    {"POST", "/admin/shadow", kvr_admin_set_shadow, KVR_FIELD_SHADOWS, KVR_FIELD_SHADOWS},
    {"GET", "/admin/gate", kvr_admin_gate, 0, 0},
    {"POST", "/admin/gate", kvr_admin_load_gate, KVR_FIELD_FILE, KVR_FIELD_FILE},
    {"POST", "/admin/gate/off", kvr_admin_gate_off, 0, 0},
    {"POST", "/admin/explain", kvr_admin_explain, REQUEST_FIELDS, KVR_FIELD_BODY},
    {"GET", "/admin/plan", kvr_admin_plan, 0, 0},
    {"POST", "/admin/plan", kvr_admin_load_plan, KVR_FIELD_FILE, KVR_FIELD_FILE},
    {"POST", "/admin/plan/now", kvr_admin_plan_now, 0, 0},
    {"POST", "/admin/plan/off", kvr_admin_plan_off, KVR_FIELD_WHY, 0},
    {"POST", "/admin/plan/on", kvr_admin_plan_on, 0, 0},
    {"POST", "/admin/log", kvr_admin_log, KVR_FIELD_LEVEL, KVR_FIELD_LEVEL},
    {"GET", "/admin/index", kvr_admin_index, 0, 0},
    {"GET", "/admin/requests", kvr_admin_requests, 0, 0},
};

#define ROUTES (sizeof routes / sizeof routes[0])

static void serve_paths(struct kvr_admin_call *call)
{
    struct kvr_buffer out = {0};
    struct kvr_json_writer json = {.out = &out};
    kvr_json_object_begin(&json, NULL);
    kvr_json_array_begin(&json, "paths");
    for (size_t i = 0; i < ROUTES; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s %s", routes[i].method, routes[i].path);
        kvr_json_text(&json, NULL, line);
    }
    kvr_json_array_end(&json);
    kvr_json_object_end(&json);
    kvr_admin_answer(call, &out);
    kvr_buffer_deinit(&out);
}

/* HEAD is GET whose body the client does not get. */
static bool is_method(struct kvr_slice method, const char *wanted)
{
    return kvr_slice_is(method, wanted) ||
           (kvr_slice_is(method, "HEAD") && strcmp(wanted, "GET") == 0);
}

/* NULL after an answer of 404 or 405. */
static const struct route *find_route(struct kvr_client *client, const struct kvr_http_head *head)
{
    char allow[64] = "";
    char message[256];
    for (size_t i = 0; i < ROUTES; i++) {
        if (!kvr_slice_is(head->path, routes[i].path))
            continue;
        if (is_method(head->method, routes[i].method))
            return &routes[i];
        size_t len = strlen(allow);
        snprintf(allow + len, sizeof allow - len, "%s%s", len ? ", " : "Allow: ", routes[i].method);
    }
    int path_len = head->path.len < 120 ? (int)head->path.len : 120;
    struct kvr_api_error error = {.type = "invalid_request_error"};
    if (*allow) {
        error.status = 405;
        error.code = "method_not_allowed";
        snprintf(message, sizeof message, "%.*s is not possible on %.*s; %s",
                 head->method.len < 20 ? (int)head->method.len : 20, head->method.data, path_len,
                 head->path.data, allow);
        size_t len = strlen(allow);
        snprintf(allow + len, sizeof allow - len, "\r\n");
    } else {
        error.status = 404;
        error.code = "unknown_path";
        snprintf(message, sizeof message, "there is no %.*s here; GET /admin lists what there is",
                 path_len, head->path.data);
    }
    refuse(client, &error, allow, message);
    return NULL;
}

static void on_request(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    struct kvr_admin *admin = context;
    admin->counters.requests++;
    if (deny(admin, client, request->head))
        return;
    const struct route *route = find_route(client, request->head);
    if (!route)
        return;
    struct kvr_admin_body body;
    struct kvr_admin_call call = {.admin = admin,
                                  .ingress = admin->ingress,
                                  .client = client,
                                  .body = &body,
                                  .now_ns = kvr_loop_now()};
    if (request->body.len > BODY_MAX && !(route->allowed & KVR_FIELD_BODY)) {
        kvr_admin_refuse(&call, 413, "body_too_large", NULL, "the body is over %u bytes", BODY_MAX);
        return;
    }
    struct kvr_error error = {0};
    const char *field;
    struct kvr_slice json =
        kvr_slice_is(request->head->method, "POST") ? request->body : kvr_slice_of("");
    if (kvr_admin_body_read(&body, json, route->allowed, route->required, &field, &error))
        kvr_admin_refuse(&call, 400, "invalid_value", field, "%s", error.text);
    else
        route->serve(&call);
    kvr_admin_body_deinit(&body);
}

/* All answers but those about a plan or a gate that is read are made at once. */
static void on_gone(void *context, struct kvr_client *client)
{
    struct kvr_admin *admin = context;
    kvr_planner_forget(&admin->ingress->planner, client->user);
    kvr_gate_forget(admin->ingress, client->user);
    kvr_free(client->user);
    client->user = NULL;
}

struct kvr_admin_waiter {
    struct kvr_admin *admin;
    struct kvr_client *client; /* its `user` is this */
};

struct kvr_admin_waiter *kvr_admin_wait(struct kvr_admin_call *call)
{
    struct kvr_admin_waiter *waiter = kvr_alloc_zero(1, sizeof *waiter);
    *waiter = (struct kvr_admin_waiter){call->admin, call->client};
    KVR_CHECK(!call->client->user);
    call->client->user = waiter;
    return waiter;
}

struct kvr_admin_call kvr_admin_resume(struct kvr_admin_waiter *waiter)
{
    struct kvr_admin_call call = {.admin = waiter->admin,
                                  .ingress = waiter->admin->ingress,
                                  .client = waiter->client,
                                  .now_ns = kvr_loop_now()};
    waiter->client->user = NULL;
    kvr_free(waiter);
    return call;
}

/* ---- the life of it ---- */

static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

int kvr_admin_start(struct kvr_admin *admin, struct kvr_loop *loop, struct kvr_ingress *ingress,
                    const struct kvr_admin_options *options, struct kvr_error *error)
{
    const char *listen =
        options->listen && *options->listen ? options->listen : KVR_ADMIN_LISTEN_DEFAULT;
    bool has_token = options->token && *options->token;
    struct sockaddr_storage address;
    int rc = kvr_address_parse(listen, &address, error);
    if (rc)
        return rc;
    if (!has_token && !is_loopback(&address))
        return kvr_error_set(error, KVR_E_DENIED,
                             "admin.listen %s is not a loopback address: admin.token is needed",
                             listen);
    memset(admin, 0, sizeof *admin);
    admin->ingress = ingress;
    struct kvr_handler handler = {.context = admin, .on_request = on_request, .on_gone = on_gone};
    size_t client_body = ingress->options.listener.body_bytes_max;
    client_body = client_body ? client_body : CLIENT_BODY_MAX;
    struct kvr_listener_options limits = {.connections_max = CONNECTIONS_MAX,
                                          .header_bytes_max = HEADERS_MAX,
                                          .body_bytes_max = client_body + BODY_MAX,
                                          .bodies_total_max = client_body + BODIES_MAX,
                                          .headers = KVR_ADMIN_MARK ": " KVR_VERSION "\r\n"};
    rc = kvr_listener_start(&admin->listener, loop, listen, &handler, &limits, error);
    if (rc)
        return rc;
    if (has_token)
        admin->token = kvr_strndup(options->token, strlen(options->token));
    return 0;
}

const char *kvr_admin_address(const struct kvr_admin *admin)
{
    return admin->listener.address;
}

void kvr_admin_hand_over(struct kvr_admin *admin)
{
    if (admin->listener.handed)
        kvr_listener_stop(&admin->listener);
}

void kvr_admin_close(struct kvr_admin *admin)
{
    kvr_listener_close(&admin->listener);
    kvr_free(admin->token);
    admin->token = NULL;
}
