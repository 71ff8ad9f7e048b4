/* A request from its head to whoever answers it: the fault that is meant for it, who may ask, and
 * whether it is for the engine, a page or nobody. */
#include <strings.h>

#include "replica_server.h"

static bool has_key(const struct kvr_replica_server *server, const struct kvr_http_head *head)
{
    const char *key = server->options.key;
    struct kvr_slice given = kvr_http_header(head, "authorization");
    if (given.len > 7 && strncasecmp(given.data, "bearer ", 7) == 0)
        return kvr_slice_is(kvr_slice_trim(kvr_slice_make(given.data + 7, given.len - 7)), key);
    return kvr_slice_is(kvr_http_header(head, "x-api-key"), key); /* as Anthropic's clients do */
}

/* The fault that this request asks for by itself, or else the first that is set for it. */
static bool choose_fault(struct kvr_replica_server *server, const struct kvr_request *request,
                         uint32_t nth, struct kvr_emu_fault *fault, struct kvr_error *error)
{
    const struct kvr_http_head *head = request->head;
    struct kvr_slice asked = kvr_http_header(head, "x-kvroute-fault");
    if (asked.len) {
        if (kvr_emu_fault_parse(asked, fault, error))
            return false;
        if (kvr_emu_fault_is_standing(fault->kind)) {
            kvr_error_set(error, KVR_E_INVALID, "this fault is of the replica: POST /fault");
            return false;
        }
        return true;
    }
    bool generates = kvr_api_of(head->path) != KVR_API_OPAQUE;
    if (!kvr_emu_faults_take(&server->faults, head->path, request->body, generates, nth > 1, fault))
        fault->kind = KVR_EMU_FAULT_NONE;
    return true;
}

/* Refusals that come before any path is looked at. False: it has been answered. */
static bool admit(struct kvr_replica_server *server, const struct kvr_emu_visit *visit,
                  const struct kvr_error *bad_fault)
{
    const struct kvr_http_head *head = visit->request->head;
    struct kvr_emu_problem problem = {0};
    bool fine = true;
    if (bad_fault->code)
        fine =
            kvr_emu_refuse(&problem, KVR_EMU_BAD_VALUE, "x-kvroute-fault", "%s", bad_fault->text);
    else if (server->options.host && !kvr_slice_is_nocase(head->host, server->options.host))
        fine = kvr_emu_refuse(&problem, KVR_EMU_UNKNOWN_PATH, NULL, "no such host: %.*s",
                              (int)head->host.len, head->host.data);
    else if (server->options.key && !has_key(server, head))
        fine = kvr_emu_refuse(&problem, KVR_EMU_UNAUTHORIZED, NULL, "Unauthorized");
    if (!fine)
        kvr_emu_call_problem(server, visit, kvr_api_of(head->path), &problem);
    return fine;
}

/* Faults that take the place of an answer. False: there is none of them. */
static bool commit_instead(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    struct kvr_emu_problem problem = {0};
    struct kvr_client *client = visit->client;
    if (!visit->fault)
        return false;
    switch (visit->fault->kind) {
    case KVR_EMU_FAULT_STATUS:
        kvr_emu_refuse(&problem, KVR_EMU_ORDERED, NULL, "as ordered");
        problem.status = visit->fault->status;
        kvr_emu_call_problem(server, visit, kvr_api_of(visit->request->head->path), &problem);
        return true;
    case KVR_EMU_FAULT_HUGE:
        kvr_emu_call_huge(server, visit);
        return true;
    case KVR_EMU_FAULT_RACE:
        kvr_emu_log_close(
            server->options.log, visit->entry,
            &(struct kvr_emu_close){.outcome = "broken", .fault = kvr_slice_of("race")});
        if (visit->fault->orderly)
            kvr_client_relayed(client, false);
        else
            kvr_client_abort(client);
        return true;
    default:
        return false;
    }
}

static void answer(struct kvr_replica_server *server, const struct kvr_emu_visit *visit)
{
    const struct kvr_http_head *head = visit->request->head;
    enum kvr_api api = kvr_api_of(head->path);
    if (commit_instead(server, visit))
        return;
    if (api != KVR_API_OPAQUE && kvr_slice_is(head->method, "POST")) {
        kvr_emu_call_generate(server, visit, api);
        return;
    }
    if (kvr_replica_server_page(server, visit))
        return;
    struct kvr_emu_problem problem = {0};
    kvr_emu_refuse(&problem, KVR_EMU_UNKNOWN_PATH, NULL, "Not Found");
    kvr_emu_call_problem(server, visit, KVR_API_OPAQUE, &problem);
}

static void on_request(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    struct kvr_replica_server *server = context;
    const struct kvr_emu_connection *connection =
        kvr_emu_connections_count(&server->connections, client);
    uint32_t index = server->options.index;
    if (kvr_replica_server_control(server->options.fleet, server->options.fleet_len, index, client,
                                   request))
        return;
    struct kvr_error error = {0};
    struct kvr_emu_fault fault;
    bool chosen = choose_fault(server, request, connection->requests, &fault, &error);
    struct kvr_emu_visit visit = {
        .client = client,
        .request = request,
        .nth = connection->requests,
        .fault = chosen && fault.kind ? &fault : NULL,
        .entry = kvr_emu_log_open(
            server->options.log,
            &(struct kvr_emu_origin){index, connection->number, connection->requests}, request),
    };
    if (admit(server, &visit, &error))
        answer(server, &visit);
}

static void on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    struct kvr_emu_call *call = client->user;
    client->user = NULL;
    if (call)
        kvr_emu_call_drop(call, "aborted");
}

static void on_drained(void *context, struct kvr_client *client)
{
    (void)context;
    if (client->user)
        kvr_emu_call_drained(client->user);
}

const struct kvr_handler kvr_replica_requests = {
    .on_request = on_request,
    .on_gone = on_gone,
    .on_drained = on_drained,
};
