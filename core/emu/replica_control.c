/* Orders to the emulator itself, which no engine has: its faults and its log. On the port of every
 * replica, and on a listener of their own that no fault touches.
 *
 *   POST   /fault   a fault as one line, a JSON object ({"kind":"stall","after":3}), or a list
 *   DELETE /fault   take all back
 *   GET    /fault   what is set, one a line
 *   GET    /log     requests as JSON lines (?last=N), DELETE: forget them
 *   GET    /replicas   the replicas of this process
 *
 * `?replica=N` names another replica than the one that is asked; `all` means every one. */
#include <stdlib.h>
#include <string.h>

#include "json_reader.h"
#include "replica_server.h"

struct order {
    struct kvr_replica_server *const *replicas;
    uint32_t replicas_len;
    uint32_t first; /* replicas that are meant: first..last-1 */
    uint32_t last;
    struct kvr_client *client;
    const struct kvr_request *request;
};

static void reply(const struct order *order, uint16_t status, const char *type,
                  const struct kvr_buffer *body)
{
    kvr_client_reply(order->client, status, kvr_slice_of(""), kvr_slice_of(type),
                     body ? kvr_buffer_slice(body) : kvr_slice_of(""));
}

static void refuse(const struct order *order, uint16_t status, const char *reason)
{
    kvr_client_error(
        order->client,
        &(struct kvr_api_error){status, "invalid_request_error", "invalid_order", NULL, 0},
        kvr_slice_of(""), reason);
}

/* The value of `name` in the query; empty: there is none. */
static struct kvr_slice query_value(const struct kvr_http_head *head, const char *name)
{
    const char *at = head->target.len ? memchr(head->target.data, '?', head->target.len) : NULL;
    const char *end = head->target.data + head->target.len;
    size_t len = strlen(name);
    while (at) {
        at++;
        const char *next = memchr(at, '&', (size_t)(end - at));
        size_t part = (size_t)((next ? next : end) - at);
        if (part > len && memcmp(at, name, len) == 0 && at[len] == '=')
            return kvr_slice_make(at + len + 1, part - len - 1);
        at = next;
    }
    return (struct kvr_slice){0};
}

static bool read_count(struct kvr_slice text, uint32_t *value)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || number > UINT32_MAX / 10)
            return false;
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    *value = (uint32_t)number;
    return text.len > 0;
}

/* ---- faults ---- */

/* A JSON object as the line that it stands for: kind first, then key=value. */
static bool object_to_line(struct kvr_json_reader *json, struct kvr_buffer *line)
{
    struct kvr_buffer rest = {0};
    struct kvr_buffer text = {0};
    struct kvr_json_span key;
    line->len = 0;
    if (!kvr_json_enter_object(json))
        return false;
    while (kvr_json_next_key(json, &key)) {
        struct kvr_slice value = {0};
        if (!kvr_json_skip(json, &value))
            break;
        if (value.len > 1 && value.data[0] == '"') {
            text.len = 0;
            char *out = kvr_buffer_reserve(&text, value.len + KVR_JSON_SLACK);
            size_t len =
                kvr_json_string_unescape(kvr_slice_make(value.data + 1, value.len - 2), out);
            value = kvr_slice_make(out, len);
        }
        if (kvr_slice_is(key.raw, "kind") || kvr_slice_is(key.raw, "fault"))
            kvr_buffer_append_slice(line, value);
        else
            kvr_buffer_printf(&rest, ";%.*s=%.*s", (int)key.raw.len, key.raw.data, (int)value.len,
                              value.data);
    }
    kvr_buffer_append_slice(line, kvr_buffer_slice(&rest));
    kvr_buffer_deinit(&rest);
    kvr_buffer_deinit(&text);
    return json->code == 0;
}

static int commit(const struct order *order, struct kvr_slice line, struct kvr_error *error)
{
    struct kvr_emu_fault fault;
    int code = kvr_emu_fault_parse(line, &fault, error);
    for (uint32_t i = order->first; code == 0 && i < order->last; i++)
        code = kvr_replica_server_fault(order->replicas[i], &fault, error);
    return code;
}

static int commit_json(const struct order *order, struct kvr_slice body, struct kvr_error *error)
{
    struct kvr_json_reader json;
    struct kvr_buffer line = {0};
    int code = 0;
    kvr_json_reader_init(&json, body);
    bool list = kvr_json_enter_array(&json);
    while (code == 0 && (!list || kvr_json_next_item(&json))) {
        if (!object_to_line(&json, &line))
            code = kvr_error_set(error, KVR_E_INVALID, "a fault is an object, with its kind");
        else
            code = commit(order, kvr_buffer_slice(&line), error);
        if (!list)
            break;
    }
    if (code == 0 && !kvr_json_finish(&json))
        code = kvr_error_set(error, KVR_E_INVALID, "%s", json.reason);
    kvr_buffer_deinit(&line);
    return code;
}

static void list_faults(const struct order *order)
{
    struct kvr_buffer body = {0};
    for (uint32_t i = order->first; i < order->last; i++) {
        const struct kvr_emu_faults *faults = &order->replicas[i]->faults;
        for (uint32_t k = 0; k < faults->len; k++) {
            kvr_emu_fault_write(&faults->items[k], &body);
            kvr_buffer_append(&body, "\n", 1);
        }
    }
    reply(order, 200, "text/plain", &body);
    kvr_buffer_deinit(&body);
}

static void order_fault(const struct order *order)
{
    struct kvr_slice method = order->request->head->method;
    struct kvr_slice body = order->request->body;
    struct kvr_error error = {0};
    if (kvr_slice_is(method, "GET")) {
        list_faults(order);
        return;
    }
    if (kvr_slice_is(method, "DELETE")) {
        for (uint32_t i = order->first; i < order->last; i++)
            kvr_replica_server_heal(order->replicas[i]);
        reply(order, 204, "", NULL);
        return;
    }
    if (!kvr_slice_is(method, "POST")) {
        refuse(order, 405, "faults take GET, POST and DELETE");
        return;
    }
    while (body.len && (body.data[body.len - 1] == '\n' || body.data[body.len - 1] == '\r'))
        body.len--;
    bool is_json = body.len && (body.data[0] == '{' || body.data[0] == '[');
    struct kvr_client *client = order->client;
    int code = is_json ? commit_json(order, body, &error) : commit(order, body, &error);
    if (client->stream.closing)
        return; /* the order took its own connection with it */
    if (code)
        refuse(order, 400, error.text);
    else
        reply(order, 204, "", NULL);
}

/* ---- the log, and who is there ---- */

static void order_log(const struct order *order)
{
    struct kvr_emu_log *log = order->replicas[0]->options.log;
    if (kvr_slice_is(order->request->head->method, "DELETE")) {
        kvr_emu_log_clear(log);
        reply(order, 204, "", NULL);
        return;
    }
    uint32_t last = UINT32_MAX;
    struct kvr_slice given = query_value(order->request->head, "last");
    if (given.len && !read_count(given, &last)) {
        refuse(order, 400, "last is a number");
        return;
    }
    struct kvr_buffer body = {0};
    bool all = order->last - order->first > 1;
    kvr_emu_log_write(log, all ? UINT32_MAX : order->first, last, &body);
    reply(order, 200, "application/x-ndjson", &body);
    kvr_buffer_deinit(&body);
}

static void order_replicas(const struct order *order)
{
    struct kvr_buffer body = {0};
    struct kvr_json_writer json = {.out = &body};
    kvr_json_array_begin(&json, NULL);
    for (uint32_t i = 0; i < order->replicas_len; i++) {
        const struct kvr_replica_server *server = order->replicas[i];
        struct kvr_engine_gauges gauges = kvr_engine_gauges(&server->live.engine);
        kvr_json_object_begin(&json, NULL);
        kvr_json_uint(&json, "replica", i);
        kvr_json_text(&json, "address", server->door.address);
        kvr_json_bool(&json, "listening", server->door.listener != NULL);
        kvr_json_uint(&json, "answering", server->calls_len);
        kvr_json_uint(&json, "running", gauges.running);
        kvr_json_uint(&json, "waiting", gauges.waiting);
        kvr_json_uint(&json, "blocks_used", gauges.blocks_used);
        kvr_json_uint(&json, "blocks_cached", gauges.blocks_cached);
        kvr_json_uint(&json, "events", server->live.delivered);
        kvr_json_double(&json, "late_p50_us",
                        (double)kvr_histogram_quantile(&server->live.late_ns, 0.5) / 1e3);
        kvr_json_double(&json, "late_p99_us",
                        (double)kvr_histogram_quantile(&server->live.late_ns, 0.99) / 1e3);
        kvr_json_double(&json, "late_max_us", (double)server->live.late_ns.max / 1e3);
        kvr_json_object_end(&json);
    }
    kvr_json_array_end(&json);
    reply(order, 200, "application/json", &body);
    kvr_buffer_deinit(&body);
}

bool kvr_replica_server_control(struct kvr_replica_server *const *replicas, uint32_t replicas_len,
                                uint32_t self, struct kvr_client *client,
                                const struct kvr_request *request)
{
    struct order order = {replicas, replicas_len, self, self + 1, client, request};
    struct kvr_slice path = request->head->path;
    void (*obey)(const struct order *) = kvr_slice_is(path, "/fault")      ? order_fault
                                         : kvr_slice_is(path, "/log")      ? order_log
                                         : kvr_slice_is(path, "/replicas") ? order_replicas
                                                                           : NULL;
    if (!obey)
        return false;
    struct kvr_slice named = query_value(request->head, "replica");
    if (kvr_slice_is(named, "all")) {
        order.first = 0;
        order.last = replicas_len;
    } else if (named.len) {
        if (!read_count(named, &order.first) || order.first >= replicas_len) {
            refuse(&order, 404, "there is no replica of that number");
            return true;
        }
        order.last = order.first + 1;
    }
    obey(&order);
    return true;
}
