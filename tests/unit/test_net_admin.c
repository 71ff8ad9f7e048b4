/* The admin interface over real sockets, in front of an ingress without traffic. */
#include "net_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "admin.h"
#include "admin_body.h"
#include "fetch.h"
#include "json_reader.h"
#include "log.h"
#include "metrics_text.h"
#include "rejection.h"
#include "rng.h"

#define TOKEN "correct-horse-battery"
#define KEY   "sk-secret-of-a-replica"

struct fixture {
    struct net_fixture net;
    struct kvr_ingress ingress;
    struct kvr_admin admin;
    char policies[64];
    int closed;
    /* of the last answer */
    int answered;
    unsigned status;
    char *headers;
    char *body;
};

static struct fixture f;

/* ---- a folder of scripts ---- */

static const char good[] = "return { api = 1, name = 'good', params = { spill = 'stay', n = 3 },\n"
                           "  pick = function() return kvr.least(), 'good', true end }\n";
static const char broken[] = "return { api = 1,\n  name = = }\n";

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f.policies, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_policies(void)
{
    char spill[96];
    strcpy(f.policies, "/tmp/kvroute-test-admin-XXXXXX");
    assert_non_null(mkdtemp(f.policies));
    snprintf(spill, sizeof spill, "%s/spill", f.policies);
    assert_int_equal(mkdir(spill, 0755), 0);
    write_file("good.lua", good);
    write_file("other.lua", "return { api = 1, name = 'other', pick = function()\n"
                            "  return kvr.least(), 'other' end }\n");
    write_file("broken.lua", broken);
    write_file("spill/stay.lua", "return { api = 1, name = 'stay', params = { factor = 2 },\n"
                                 "  spill = function(_, _, preferred) return preferred end }\n");
}

static void remove_policies(void)
{
    static const char *const names[] = {"good.lua",       "other.lua", "broken.lua",
                                        "spill/stay.lua", "spill",     ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", f.policies, names[i]);
        remove(path);
    }
}

/* ---- the fixture ---- */

static void start(const char *token)
{
    memset(&f, 0, sizeof f);
    net_fixture_init(&f.net);
    make_policies();
    struct kvr_error error = {0};
    struct kvr_ingress_options options = {.listen = {"127.0.0.1:0"},
                                          .listen_count = 1,
                                          .policies_dir = f.policies,
                                          .router = {.replicas_max = 4, .requests_max = 64},
                                          .script_budget_ms = 5000};
    kvr_ingress_init(&f.ingress, &f.net.loop, &options);
    assert_int_equal(kvr_script_store_choose(&f.ingress.scripts, KVR_ROLE_POLICY,
                                             kvr_slice_of("good"), NULL, 0, &error),
                     0);
    assert_int_equal(kvr_ingress_start(&f.ingress, &error), 0);
    struct kvr_admin_options admin = {.listen = "127.0.0.1:0", .token = token};
    assert_int_equal(kvr_admin_start(&f.admin, &f.net.loop, &f.ingress, &admin, &error), 0);
}

static void on_ingress_closed(void *context)
{
    (void)context;
    f.closed = 1;
}

static void stop(void)
{
    kvr_admin_close(&f.admin);
    kvr_ingress_close(&f.ingress, NULL, on_ingress_closed);
    assert_true(net_run_until(&f.net, &f.closed, 1, 3000));
    net_fixture_deinit(&f.net);
    kvr_ingress_deinit(&f.ingress);
    remove_policies();
    free(f.headers);
    free(f.body);
}

static void on_done(void *context, const struct kvr_fetch_result *result)
{
    (void)context;
    assert_int_equal(result->uv_code, 0);
    f.status = result->status;
    free(f.body);
    free(f.headers);
    f.body = strndup(result->body.data ? result->body.data : "", result->body.len);
    struct kvr_buffer headers = {0};
    for (uint32_t i = 0; i < result->head->count; i++)
        kvr_buffer_printf(&headers, "%.*s: %.*s\n", (int)result->head->headers[i].name.len,
                          result->head->headers[i].name.data,
                          (int)result->head->headers[i].value.len,
                          result->head->headers[i].value.data);
    kvr_buffer_append(&headers, "", 1);
    f.headers = headers.data;
    f.answered = 1;
}

static void ask_with(const char *method, const char *path, const char *headers, const char *body)
{
    struct sockaddr_storage address = net_address(kvr_admin_address(&f.admin));
    struct kvr_fetch_options options = {.address = (const struct sockaddr *)&address,
                                        .host = kvr_slice_of("admin"),
                                        .method = kvr_slice_of(method),
                                        .path = kvr_slice_of(path),
                                        .headers = kvr_slice_of(headers),
                                        .body = kvr_slice_of(body)};
    f.answered = 0;
    kvr_fetch_start(&f.net.loop, &options, NULL, on_done);
    assert_true(net_run_until(&f.net, &f.answered, 1, 5000));
    /* Whatever is asked, secrets stay inside. */
    assert_null(strstr(f.body, KEY));
    assert_null(strstr(f.body, TOKEN));
}

static void get(const char *path)
{
    ask_with("GET", path, "", "");
}

static void post(const char *path, const char *body)
{
    ask_with("POST", path, "", body);
}

static void assert_json(void)
{
    struct kvr_json_reader json;
    kvr_json_reader_init(&json, kvr_slice_of(f.body));
    kvr_json_skip(&json, NULL);
    if (!kvr_json_finish(&json))
        fail_msg("no JSON: %s at %zu in %s", json.reason, kvr_json_offset(&json), f.body);
}

static void assert_body_has(const char *text)
{
    if (!strstr(f.body, text))
        fail_msg("\"%s\" is not in %s", text, f.body);
}

static void assert_ok(void)
{
    if (f.status != 200)
        fail_msg("status %u: %s", f.status, f.body);
    assert_json();
}

/* An error of the API's shape: its code, its param and a part of its message. */
static void assert_error(unsigned status, const char *code, const char *param, const char *message)
{
    char expected[128];
    if (f.status != status)
        fail_msg("status %u, not %u: %s", f.status, status, f.body);
    assert_json();
    assert_memory_equal(f.body, "{\"error\":{\"message\":", 20);
    snprintf(expected, sizeof expected, "\"code\":\"%s\"", code);
    assert_body_has(expected);
    if (param)
        snprintf(expected, sizeof expected, "\"param\":\"%s\"", param);
    else
        snprintf(expected, sizeof expected, "\"param\":null");
    assert_body_has(expected);
    assert_body_has(message);
}

/* ---- what there is ---- */

static void every_path_answers(void **state)
{
    (void)state;
    static const char *const paths[] = {"/admin",         "/admin/status", "/admin/replicas",
                                        "/admin/scripts", "/admin/index",  "/admin/requests",
                                        "/admin/shadow"};
    start(NULL);
    post("/admin/replicas", "{\"url\":\"http://127.0.0.1:1\",\"key\":\"" KEY "\"}");
    assert_ok();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        get(paths[i]);
        assert_ok();
        assert_non_null(strstr(f.headers, "application/json"));
        ask_with("HEAD", paths[i], "", "");
        assert_int_equal(f.status, 200);
        assert_string_equal(f.body, "");
    }
    get("/admin/status?verbose=1");
    assert_ok();
    assert_body_has("\"policy\":{\"name\":\"good\",\"generation\":1");
    stop();
}

static void other_paths_and_methods_are_refused(void **state)
{
    (void)state;
    start(NULL);
    get("/admin/nothing");
    assert_error(404, "unknown_path", NULL, "/admin/nothing");
    get("/");
    assert_error(404, "unknown_path", NULL, "GET /admin");
    get("/admin/replicas/drain");
    assert_error(405, "method_not_allowed", NULL, "GET");
    assert_non_null(strstr(f.headers, "Allow: POST\n"));
    ask_with("DELETE", "/admin/replicas", "", "");
    assert_error(405, "method_not_allowed", NULL, "DELETE");
    assert_non_null(strstr(f.headers, "Allow: GET, POST\n"));
    ask_with("OPTIONS", "/admin/status", "", "");
    assert_error(405, "method_not_allowed", NULL, "OPTIONS");
    stop();
}

static void promtool_accepts_the_page(void **state)
{
    (void)state;
    start(NULL);
    post("/admin/replicas", "{\"url\":\"http://127.0.0.1:1\",\"models\":[\"a \\\"b\\\"\\n\"]}");
    assert_ok();
    get("/metrics");
    assert_int_equal(f.status, 200);
    assert_non_null(strstr(f.headers, "text/plain; version=0.0.4"));
    assert_body_has("\nkvroute_build_info{version=\"" KVR_VERSION "\"} 1\n");
    assert_body_has("\nkvroute_client_connections{listener=\"admin\"} 1\n");
    assert_body_has("\nkvroute_replica_connections{replica=\"127.0.0.1:1\"} 0\n");
    assert_body_has("\nprocess_resident_memory_bytes ");
    bool present = system("command -v promtool >/dev/null 2>&1") == 0;
    if (present) {
        FILE *tool = popen("promtool check metrics", "w");
        assert_non_null(tool);
        fputs(f.body, tool);
        assert_int_equal(pclose(tool), 0);
    }
    stop();
    if (!present) {
        print_message("promtool is not installed (Debian: prometheus): not checked\n");
        skip();
    }
}

static void codes_are_those_that_clients_get(void **state)
{
    (void)state;
    for (int i = 0; i < KVR_REJECTIONS; i++)
        assert_string_equal(kvr_metrics_rejection_name((enum kvr_rejection)i),
                            kvr_rejection_answer((enum kvr_rejection)i)->error.code);
}

/* ---- who may ---- */

static void a_token_is_needed_where_there_is_one(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer correct-horse-batterY\r\n",
        "Authorization: Bearer correct-horse-batter\r\n",
        "Authorization: Bearer correct-horse-battery2\r\n",
        "Authorization: Basic correct-horse-battery\r\n",
        "Authorization: correct-horse-battery\r\n",
    };
    start(TOKEN);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ask_with("GET", "/metrics", wrong[i], "");
        assert_error(401, "invalid_token", NULL, "bearer token");
        assert_non_null(strstr(f.headers, "WWW-Authenticate: Bearer\n"));
        ask_with("POST", "/admin/reload", wrong[i], "");
        assert_int_equal(f.status, 401);
        ask_with("GET", "/nowhere", wrong[i], "");
        assert_int_equal(f.status, 401);
    }
    ask_with("GET", "/admin/status", "Authorization: Bearer " TOKEN "\r\n", "");
    assert_ok();
    ask_with("GET", "/admin/status", "authorization:  bearer  " TOKEN " \r\nOrigin: http://x\r\n",
             "");
    assert_ok();
    assert_int_equal(f.admin.counters.denied, 3 * sizeof wrong / sizeof wrong[0]);
    stop();
}

static void pages_in_a_browser_may_not(void **state)
{
    (void)state;
    start(NULL);
    post("/admin/replicas", "{\"url\":\"127.0.0.1:1\"}");
    ask_with("POST", "/admin/replicas/drain", "Origin: http://evil.example\r\n",
             "{\"replica\":\"127.0.0.1:1\"}");
    assert_error(403, "origin_refused", NULL, "admin.token");
    assert_int_equal(f.ingress.router.replicas.slots[0].administrative, KVR_READY);
    stop();
}

static void beyond_loopback_a_token_is_a_must(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        const char *token;
        int code;
    } cases[] = {
        {"0.0.0.0:0", NULL, KVR_E_DENIED}, {"0.0.0.0:0", "", KVR_E_DENIED},
        {":0", NULL, KVR_E_DENIED},        {"10.0.0.1:0", NULL, KVR_E_DENIED},
        {"[::]:0", NULL, KVR_E_DENIED},    {"[::ffff:10.0.0.1]:0", NULL, KVR_E_DENIED},
        {"nonsense", NULL, KVR_E_INVALID}, {"127.0.0.2:0", NULL, 0},
        {"[::ffff:127.0.0.1]:0", NULL, 0}, {"localhost:0", NULL, 0},
        {"0.0.0.0:0", TOKEN, 0},
    };
    start(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kvr_admin admin;
        struct kvr_error error = {0};
        struct kvr_admin_options options = {.listen = cases[i].listen, .token = cases[i].token};
        int rc = kvr_admin_start(&admin, &f.net.loop, &f.ingress, &options, &error);
        if (rc != cases[i].code)
            fail_msg("%s: %d %s", cases[i].listen, rc, error.text);
        if (rc == 0)
            kvr_admin_close(&admin);
        net_run_for(&f.net, 10);
    }
    stop();
}

/* ---- replicas ---- */

static void replicas_come_and_go(void **state)
{
    (void)state;
    start(NULL);
    post("/admin/replicas", "{\"url\":\"http://127.0.0.1:7001/\",\"weight\":2.5,\"capacity\":9,"
                            "\"key\":\"" KEY "\",\"rank\":3,\"any_model\":true,"
                            "\"models\":[\"m1\",\"m2\"]}");
    assert_ok();
    assert_body_has("\"name\":\"127.0.0.1:7001#3\"");
    assert_body_has("\"weight\":2.5");
    assert_body_has("\"capacity\":9");
    assert_body_has("\"models\":2");
    assert_body_has("\"has_key\":true");
    assert_string_equal(f.ingress.replicas[0].key, KEY);
    post("/admin/replicas", "{\"url\":\"127.0.0.1:7002\"}");
    assert_ok();
    assert_body_has("\"capacity\":null");
    assert_body_has("\"rank\":null");

    post("/admin/replicas/drain", "{\"replica\":\"127.0.0.1:7001#3\"}");
    assert_ok();
    assert_body_has("\"administrative\":\"draining\"");
    post("/admin/replicas/drain", "{\"replica\":\"127.0.0.1:7001#3\"}");
    assert_ok();
    get("/admin/replicas");
    assert_body_has("\"administrative\":\"draining\",\"in_rotation\":false");
    char by_id[64];
    snprintf(by_id, sizeof by_id, "{\"replica\":\"%016llX\"}",
             (unsigned long long)f.ingress.router.replicas.slots[0].id);
    post("/admin/replicas/restore", by_id);
    assert_ok();
    assert_body_has("\"administrative\":\"ready\"");
    post("/admin/replicas/weight", "{\"replica\":\"http://127.0.0.1:7002/\",\"weight\":0.5}");
    assert_ok();
    assert_body_has("\"weight\":0.5");
    assert_true(f.ingress.router.replicas.slots[1].weight == 0.5);

    post("/admin/replicas/remove", "{\"replica\":\"127.0.0.1:7001#3\"}");
    assert_ok();
    assert_body_has("\"administrative\":\"removed\"");
    get("/admin/replicas");
    assert_ok();
    assert_null(strstr(f.body, "7001"));
    assert_body_has("127.0.0.1:7002");
    post("/admin/replicas/drain", "{\"replica\":\"127.0.0.1:7001#3\"}");
    assert_error(404, "not_found", "replica", "\\\"127.0.0.1:7001#3\\\" is no member");
    stop();
}

static void a_fleet_has_limits(void **state)
{
    (void)state;
    start(NULL);
    for (int i = 0; i < 4; i++) {
        char body[64];
        snprintf(body, sizeof body, "{\"url\":\"127.0.0.1:%d\"}", 7100 + i);
        post("/admin/replicas", body);
        assert_ok();
    }
    post("/admin/replicas", "{\"url\":\"127.0.0.1:7100\"}");
    assert_int_equal(f.status, 409);
    post("/admin/replicas", "{\"url\":\"127.0.0.1:7200\"}");
    assert_error(409, "limit_reached", "url", "limits.replicas (4)");
    post("/admin/replicas/remove", "{\"replica\":\"127.0.0.1:7100\"}");
    assert_ok();
    post("/admin/replicas", "{\"url\":\"127.0.0.1:7101\"}");
    assert_error(409, "exists", "url", "127.0.0.1:7101");
    assert_int_equal(f.ingress.router.replicas.count, 3);
    stop();
}

/* ---- bodies ---- */

static void bad_bodies_name_the_field_and_the_value(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *body;
        const char *param; /* NULL: the body as a whole */
        const char *message;
    } cases[] = {
        {"/admin/replicas", "", "url", "url: is needed"},
        {"/admin/replicas", " ", NULL, "no JSON"},
        {"/admin/replicas", "[]", NULL, "no JSON object"},
        {"/admin/replicas", "{\"url\":\"a:1\"", NULL, "no JSON"},
        {"/admin/replicas", "{\"url\":\"a:1\"} {}", NULL, "more text"},
        {"/admin/replicas", "{\"url\":null}", "url", "url: is needed"},
        {"/admin/replicas", "{\"url\":17}", "url", "text is expected, not 17"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"url\":\"b:1\"}", "url", "given twice"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"colour\":1}", NULL, "\\\"colour\\\" is not known"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"weight\":\"2\"}", "weight", "not \\\"2\\\""},
        {"/admin/replicas", "{\"url\":\"a:1\",\"weight\":0}", "weight", "from 0.001 to 1000"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"weight\":1e999}", "weight", "1e999"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"capacity\":1.5}", "capacity", "whole number"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"capacity\":-1}", "capacity", "not -1"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"rank\":-2}", "rank", "not -2"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"any_model\":1}", "any_model", "true or false"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"models\":\"m\"}", "models", "a list of names"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"models\":[1]}", "models", "a list of names"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"models\":[\"\"]}", "models", "empty"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"key\":[\"" KEY "\"]}", "key", "text is expected"},
        {"/admin/replicas", "{\"url\":\"a:1\",\"key\":\"a\\nb\"}", "key", "visible ASCII"},
        {"/admin/replicas", "{\"url\":\"https://a:1\"}", "url", "https://a:1"},
        {"/admin/replicas", "{\"url\":\"127.0.0.1\"}", "url", "127.0.0.1"},
        {"/admin/replicas/weight", "{\"replica\":\"a:1\"}", "weight", "weight: is needed"},
        {"/admin/replicas/drain", "{\"replica\":7}", "replica", "text is expected"},
        {"/admin/policy", "{\"name\":\"\"}", "name", "a policy is expected"},
        {"/admin/policy", "{\"name\":\"../good\",\"share\":1}", NULL, "name, params"},
        {"/admin/policy", "{\"name\":\"a b\"}", "name", "a b"},
        {"/admin/policy", "{\"name\":\"good\",\"params\":[]}", "params", "an object"},
        {"/admin/policy", "{\"name\":\"good\",\"params\":{\"n\":null}}", "params",
         "text, a number"},
        {"/admin/params", "{\"role\":\"king\",\"params\":{}}", "role", "king"},
        {"/admin/canary", "{}", "name", "or share"},
        {"/admin/canary", "{\"name\":\"good\"}", "share", "above 0"},
        {"/admin/canary", "{\"name\":\"good\",\"share\":1.01}", "share", "from 0 to 1"},
        {"/admin/log", "{\"level\":\"loud\"}", "level", "loud"},
        {"/admin/reload", "{\"name\":\"x\"}", NULL, "no fields"},
        {"/admin/shadow", "{}", "shadows", "shadows: is needed"},
        {"/admin/shadow", "{\"shadows\":\"other\"}", "shadows", "a list of names"},
        {"/admin/shadow", "{\"shadows\":[7]}", "shadows", "a list of names"},
        {"/admin/shadow", "{\"shadows\":[{\"name\":7}]}", "shadows", "{name, params}"},
        {"/admin/shadow", "{\"shadows\":[{\"role\":\"x\"}]}", "shadows", "{name, params}"},
        {"/admin/shadow", "{\"shadows\":[{\"name\":\"other\",\"params\":[]}]}", "shadows",
         "an object"},
        {"/admin/shadow", "{\"shadows\":[\"other\",\"\"]}", "shadows", "needs a name"},
        {"/admin/shadow", "{\"shadows\":[{}]}", "shadows", "needs a name"},
        {"/admin/shadow", "{\"shadows\":[\"a b\"]}", "shadows", "a b"},
        {"/admin/shadow", "{\"shadows\":[\"other\",\"other\",\"other\",\"other\",\"other\"]}",
         "shadows", "at most 4"},
        {"/admin/explain", "{\"path\":\"/v1/completions\"}", "body", "body: is needed"},
        {"/admin/explain", "{\"body\":{},\"headers\":[]}", "headers", "an object of texts"},
        {"/admin/explain", "{\"body\":{},\"headers\":{\"a\":1}}", "headers", "an object of texts"},
        {"/admin/explain", "{\"body\":[1]}", "body", "body: "},
        {"/admin/explain", "{\"body\":{}} x", NULL, "more text"},
    };
    start(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        post(cases[i].path, cases[i].body);
        assert_error(400, "invalid_value", cases[i].param, cases[i].message);
    }
    assert_int_equal(f.ingress.router.replicas.count, 0);
    assert_int_equal(kvr_slot_info(f.ingress.router.slots[KVR_ROLE_POLICY])->generation, 1);
    stop();
}

static void long_values_are_cut_in_messages(void **state)
{
    (void)state;
    start(NULL);
    char body[2000];
    size_t len = (size_t)snprintf(body, sizeof body, "{\"replica\":\"");
    while (len < sizeof body - 100)
        len += (size_t)snprintf(body + len, sizeof body - len, "\xc3\xa9\\n\\u0000x");
    snprintf(body + len, sizeof body - len, "\"}");
    post("/admin/replicas/drain", body);
    assert_error(404, "not_found", "replica", "is no member");
    assert_true(strlen(f.body) < 1000);
    char big[70000];
    memset(big, ' ', sizeof big);
    big[sizeof big - 1] = '\0';
    post("/admin/reload", big);
    assert_int_equal(f.status, 413);
    stop();
}

/* Any damage to a body is found or harmless: what is read lies in the body's own text, and what is
 * refused has a reason. The sanitizers watch. */
static void damaged_bodies_are_read_or_refused(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"url\":\"http://"
        "a\\u00e9\\ud83d\\ude00:1\",\"key\":\"k\\n\",\"replica\":\"r#1\",\"name\":\"n\","
        "\"role\":null,\"weight\":2.5e0,\"share\":0.5,\"capacity\":3,\"rank\":-1,\"any_model\":"
        "true,"
        "\"models\":[\"a\",\"b\\\"c\"],\"params\":{\"x\":1,\"y\":\"z\",\"w\\t\":false},"
        "\"shadows\":[\"s\\u0031\",{\"params\":{\"k\\n\":2},\"name\":\"s2\"}],\"path\":\"/\","
        "\"headers\":{\"a\\u0062\":\"c\"},\"body\":{\"d\":[{}]}}";
    struct kvr_rng rng;
    kvr_rng_init(&rng, 11);
    unsigned taken = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        size_t len = round == 0 ? sizeof whole - 1 : 1 + kvr_rng_below(&rng, sizeof whole - 1);
        char *text = malloc(len); /* of its exact size, so that a byte too far is noticed */
        memcpy(text, whole, len);
        for (uint64_t i = kvr_rng_below(&rng, 3); round && i; i--)
            text[kvr_rng_below(&rng, len)] = (char)kvr_rng_below(&rng, 256);
        struct kvr_admin_body body;
        struct kvr_error error = {0};
        const char *field;
        int rc =
            kvr_admin_body_read(&body, kvr_slice_make(text, len), UINT32_MAX, 0, &field, &error);
        free(text);
        assert_int_equal(rc, error.code);
        assert_true(rc == 0 || error.text[0]);
        for (uint32_t i = 0; rc == 0 && i < body.models_count; i++)
            assert_true(body.models[i].data >= body.text.data &&
                        body.models[i].data < body.text.data + body.text.capacity);
        if (round == 0) {
            assert_int_equal(body.given, 0x1ffdf & ~KVR_FIELD_ROLE & ~KVR_FIELD_LEVEL);
            assert_int_equal(body.params_count, 3);
            assert_int_equal(body.shadows_count, 2);
            assert_true(kvr_slice_is(body.shadows[0].name, "s1"));
            assert_true(kvr_slice_is(body.shadows[1].params[0].key, "k\n"));
            assert_true(kvr_slice_is(body.headers[0].name, "ab"));
            assert_int_equal(body.body.len, 10);
            assert_true(kvr_slice_is(body.url, "http://a\xc3\xa9\xf0\x9f\x98\x80:1"));
        }
        taken += rc == 0;
        refused += rc != 0;
        kvr_admin_body_deinit(&body);
    }
    assert_true(taken > 10 && refused > 1000);
}

/* ---- scripts ---- */

static void scripts_are_switched_one_by_one(void **state)
{
    (void)state;
    start(NULL);
    get("/admin/scripts");
    assert_ok();
    assert_body_has("\"role\":\"spill\",\"in_force\":true,\"name\":\"stay\"");
    assert_body_has("\"chosen\":false");
    post("/admin/policy", "{\"name\":\"good\",\"params\":{\"n\":4}}");
    assert_ok();
    assert_body_has("\"loaded_s\":0"); /* just now, however long the load took */
    assert_body_has("\"set\":{\"n\":\"4\"}");
    assert_body_has("n=4");
    post("/admin/params", "{\"role\":\"policy\",\"params\":{\"n\":\"5\"}}");
    assert_ok();
    assert_body_has("n=5");
    post("/admin/spill", "{\"name\":\"stay\",\"params\":{\"factor\":3}}");
    assert_ok();
    assert_body_has("factor=3");
    assert_body_has("\"chosen\":true");
    post("/admin/policy", "{\"name\":\"other\"}");
    assert_ok();
    assert_body_has("\"name\":\"other\"");
    assert_body_has("factor=3"); /* the operator's choice stays */
    post("/admin/spill", "{\"name\":\"\"}");
    assert_ok();
    assert_body_has("\"role\":\"spill\",\"in_force\":false"); /* other names none */
    post("/admin/reload", "");
    assert_ok();
    stop();
}

static void shadows_come_and_go(void **state)
{
    (void)state;
    start(NULL);
    get("/admin/shadow");
    assert_ok();
    assert_body_has("\"shadows\":[]");
    post("/admin/shadow", "{\"shadows\":[\"other\",{\"name\":\"good\",\"params\":{\"n\":5}}]}");
    assert_ok();
    assert_body_has("{\"acting\":{\"policy\":{\"name\":\"good\",");
    assert_body_has("\"shadows\":[{\"role\":\"shadow_1\",\"policy\":{\"name\":\"other\",");
    assert_body_has("{\"role\":\"shadow_2\",\"policy\":{\"name\":\"good\",");
    assert_body_has("\"params\":\"n=5 spill=stay\"},\"spill\":{\"name\":\"stay\",");
    assert_body_has("\"since_s\":null,\"evaluated\":0,\"agreed\":0,\"disagreed\":0,");
    get("/admin/scripts");
    assert_body_has("\"role\":\"shadow_1\",\"in_force\":true,\"name\":\"other\"");
    assert_body_has("\"role\":\"shadow_2_spill\",\"in_force\":true,\"name\":\"stay\"");
    assert_null(strstr(f.body, "shadow_1_spill"));
    assert_null(strstr(f.body, "shadow_3"));
    get("/admin/status");
    assert_body_has("\"shadow_2_spill\":{\"name\":\"stay\"");
    post("/admin/params", "{\"role\":\"shadow_2_spill\",\"params\":{\"factor\":7}}");
    assert_ok();
    assert_body_has("factor=7");

    post("/admin/shadow", "{\"shadows\":[\"good\",\"broken\"]}"); /* all or nothing */
    assert_error(422, "script_refused", "shadows", "broken.lua:2:");
    write_file("rules.lua", "return { api = 1, name = 'rules', params = { spill = 'nowhere' },\n"
                            "  pick = function() return kvr.least(), 'rules', true end }\n");
    post("/admin/shadow", "{\"shadows\":[\"good\",\"rules\"]}");
    assert_error(404, "not_found", "shadows", "there is no spill rule nowhere: known: stay");
    post("/admin/shadow", "{\"shadows\":[\"nobody\"]}");
    assert_error(404, "not_found", "shadows", "there is no policy nobody: ");
    get("/admin/shadow");
    assert_body_has("{\"role\":\"shadow_1\",\"policy\":{\"name\":\"other\",");
    assert_body_has("\"generation\":1,\"params\":\"n=5");
    assert_body_has("\"params\":\"factor=7\"");

    post("/admin/shadow", "{\"shadows\":[\"good\"]}");
    assert_ok();
    assert_body_has("{\"role\":\"shadow_1\",\"policy\":{\"name\":\"good\",");
    assert_null(strstr(f.body, "shadow_2"));
    post("/admin/shadow", "{\"shadows\":[]}");
    assert_ok();
    assert_body_has("\"shadows\":[]");
    assert_false(f.ingress.router.shadowing);
    assert_int_equal(kvr_slot_info(f.ingress.router.slots[KVR_ROLE_POLICY])->generation, 1);
    char path[128];
    snprintf(path, sizeof path, "%s/rules.lua", f.policies);
    remove(path);
    stop();
}

static void requests_are_explained(void **state)
{
    (void)state;
    start(NULL);
    post("/admin/replicas", "{\"url\":\"127.0.0.1:1\"}");
    post("/admin/explain", "{\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}}");
    assert_ok();
    assert_body_has("{\"path\":\"/v1/chat/completions\",\"endpoint\":\"chat\",\"routed\":true");
    assert_body_has("\"outcome\":\"reject\",\"rejection\":\"no_replicas\"");
    kvr_router_probed(&f.ingress.router, kvr_loop_now(), 0, KVR_PROBE_PASS, false);
    post("/admin/explain",
         "{\"path\":\"/v1/completions?x=1\",\"headers\":{\"X-Session-Id\":\"a\","
         "\"x-kvroute-slo-ttft-ms\":\"250\"},\"body\":{\"prompt\":\"one\",\"max_tokens\":7}}");
    assert_ok();
    assert_body_has("{\"path\":\"/v1/completions\",\"endpoint\":\"completions\"");
    assert_body_has("\"session_source\":\"x-session-id\"");
    assert_body_has("\"max_tokens\":7,");
    assert_body_has("\"slo_ttft_ms\":250,");
    assert_body_has("\"candidates\":[{\"replica\":\"127.0.0.1:1\",\"weight\":1,");
    assert_body_has("\"outcome\":\"dispatch\",\"rejection\":null,\"replica\":\"127.0.0.1:1\","
                    "\"reason\":\"good\"");
    post("/admin/explain", "{\"path\":\"/version\",\"body\":\"not read\"}");
    assert_ok();
    assert_body_has("\"endpoint\":\"other\",\"routed\":false");
    assert_int_equal(f.ingress.router.metrics.submitted, 0);
    assert_int_equal(f.ingress.router.requests.open, 0);

    enum { LONG = 300000 }; /* longer than any other body may be here */
    char *body = malloc(LONG + 100);
    int len = sprintf(body, "{\"body\":{\"prompt\":\"");
    memset(body + len, 'x', LONG);
    strcpy(body + len + LONG, "\"},\"path\":\"/v1/completions\"}");
    post("/admin/explain", body);
    assert_ok();
    assert_body_has("\"prompt_bytes\":300000,");
    post("/admin/log", body);
    assert_error(413, "body_too_large", NULL, "over 65536 bytes");
    free(body);
    stop();
}

static void a_bad_script_changes_nothing(void **state)
{
    (void)state;
    start(NULL);
    post("/admin/policy", "{\"name\":\"broken\"}");
    assert_error(422, "script_refused", "name", "broken.lua:2:");
    assert_body_has("policy good (generation 1) stays in force");
    get("/admin/scripts");
    assert_body_has("\"role\":\"policy\",\"in_force\":true,\"name\":\"good\"");
    assert_body_has("\"error\":\"");
    assert_body_has("broken.lua:2:");
    post("/admin/policy", "{\"name\":\"missing\"}");
    assert_error(404, "not_found", "name", "there is no policy missing: ");
    post("/admin/params", "{\"role\":\"policy\",\"params\":{\"nn\":1}}");
    assert_error(422, "script_refused", "params", "nn");
    post("/admin/params", "{\"role\":\"policy\",\"params\":{\"n\":\"many\"}}");
    assert_error(422, "script_refused", "params", "many");
    post("/admin/params", "{\"role\":\"canary\",\"params\":{\"n\":1}}");
    assert_error(409, "not_possible_now", "params", "no canary");

    /* A file that went bad is refused with its line, and is taken again when it is as it was. */
    write_file("good.lua", broken);
    post("/admin/reload", "");
    assert_error(422, "script_refused", NULL, "good.lua:2:");
    get("/metrics");
    assert_body_has("kvroute_script_generation{role=\"policy\",name=\"good\"} 1\n");
    write_file("good.lua", good);
    post("/admin/reload", "");
    assert_ok();
    get("/admin/status");
    assert_body_has("\"policy\":{\"name\":\"good\",\"generation\":1");
    stop();
}

static void a_canary_gets_a_share_and_is_ended(void **state)
{
    (void)state;
    start(NULL);
    post("/admin/canary", "{\"share\":0.5}");
    assert_error(409, "not_possible_now", "name", "no canary");
    post("/admin/canary", "{\"name\":\"broken\",\"share\":0.5}");
    assert_error(422, "script_refused", "name", "broken.lua:2:");
    assert_true(f.ingress.router.options.canary_share == 0);
    post("/admin/canary", "{\"name\":\"other\",\"share\":0.25}");
    assert_ok();
    assert_body_has("\"role\":\"canary\",\"in_force\":true,\"name\":\"other\"");
    assert_body_has("\"share\":0.25");
    post("/admin/canary", "{\"share\":0.5}");
    assert_ok();
    assert_true(f.ingress.router.options.canary_share == 0.5);
    post("/admin/canary", "{\"name\":\"good\"}"); /* keeps the share */
    assert_ok();
    assert_true(f.ingress.router.options.canary_share == 0.5);
    post("/admin/canary", "{\"name\":\"\"}");
    assert_ok();
    assert_body_has("\"role\":\"canary\",\"in_force\":false");
    assert_true(f.ingress.router.options.canary_share == 0);
    stop();
}

int main(void)
{
    kvr_log_set_level(KVR_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_answers),
        cmocka_unit_test(other_paths_and_methods_are_refused),
        cmocka_unit_test(promtool_accepts_the_page),
        cmocka_unit_test(codes_are_those_that_clients_get),
        cmocka_unit_test(a_token_is_needed_where_there_is_one),
        cmocka_unit_test(pages_in_a_browser_may_not),
        cmocka_unit_test(beyond_loopback_a_token_is_a_must),
        cmocka_unit_test(replicas_come_and_go),
        cmocka_unit_test(a_fleet_has_limits),
        cmocka_unit_test(bad_bodies_name_the_field_and_the_value),
        cmocka_unit_test(long_values_are_cut_in_messages),
        cmocka_unit_test(damaged_bodies_are_read_or_refused),
        cmocka_unit_test(scripts_are_switched_one_by_one),
        cmocka_unit_test(shadows_come_and_go),
        cmocka_unit_test(requests_are_explained),
        cmocka_unit_test(a_bad_script_changes_nothing),
        cmocka_unit_test(a_canary_gets_a_share_and_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
