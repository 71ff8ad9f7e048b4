/* Configuration files: what is read, what is refused, and that the refusal names key, value and
 * line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config.h"

static struct kvr_config *read_well(const char *text)
{
    struct kvr_error error = {0};
    struct kvr_config *config = kvr_config_read("kvroute.lua", kvr_slice_of(text), &error);
    if (!config)
        fail_msg("%s", error.text);
    return config;
}

static void defaults_need_no_file(void **state)
{
    (void)state;
    struct kvr_config *config = read_well(NULL);
    assert_string_equal(kvr_config_text(config, "listen"), "127.0.0.1:8080");
    assert_int_equal(kvr_config_count(config, "listen"), 1);
    assert_string_equal(kvr_config_text(config, "policy"), "prefix_affinity");
    assert_null(kvr_config_text(config, "spill"));
    assert_null(kvr_config_text(config, "admin.token"));
    assert_int_equal(kvr_config_count(config, "replicas"), 0);
    assert_int_equal(kvr_config_count(config, "params"), 0);
    assert_null(kvr_config_key(config, "params", 0));
    assert_true(kvr_config_number(config, "health.interval_ms") == 1000.0);
    assert_true(kvr_config_number(config, "canary.share") == 0.0);
    assert_true(kvr_config_bool(config, "scrape.enabled"));
    assert_false(kvr_config_bool(config, "rows.blocks"));
    kvr_config_destroy(config);
}

static void a_file_is_read(void **state)
{
    (void)state;
    struct kvr_config *config = read_well(
        "-- a comment\n"
        "local base = 8001\n"
        "listen = { '127.0.0.1:80', '[::1]:80' }\n"
        "admin = { listen = '0.0.0.0:9000', token = 'secret' }\n"
        "for i = 0, 2 do\n"
        "  replicas[#replicas + 1] = { url = 'http://127.0.0.1:' .. base + i, weight = i + 1 }\n"
        "end\n"
        "replicas[2].models = { 'a', 'b' }\n"
        "replicas[3].models = 'c'\n"
        "policy = 'p2c'\n"
        "params = { factor = 2.5, name = 'x', on = true }\n"
        "params.more = 0.1\n"
        "health.interval_ms = 500\n"
        "rows.blocks = true\n"
        "canary = { policy = 'p2c', share = 0.25 }\n");
    assert_int_equal(kvr_config_count(config, "listen"), 2);
    assert_string_equal(kvr_config_text(config, "listen"), "127.0.0.1:80");
    assert_string_equal(kvr_config_text(config, "listen.2"), "[::1]:80");
    assert_string_equal(kvr_config_text(config, "admin.token"), "secret");
    assert_int_equal(kvr_config_count(config, "replicas"), 3);
    assert_string_equal(kvr_config_text(config, "replicas.3.url"), "http://127.0.0.1:8003");
    assert_true(kvr_config_number(config, "replicas.3.weight") == 3.0);
    assert_true(kvr_config_number(config, "replicas.1.rank") == -1.0);
    assert_int_equal(kvr_config_count(config, "replicas.1.models"), 0);
    assert_int_equal(kvr_config_count(config, "replicas.2.models"), 2);
    assert_string_equal(kvr_config_text(config, "replicas.2.models.2"), "b");
    assert_string_equal(kvr_config_text(config, "replicas.3.models.1"), "c");
    assert_int_equal(kvr_config_count(config, "params"), 4);
    assert_string_equal(kvr_config_key(config, "params", 0), "factor");
    assert_string_equal(kvr_config_key(config, "params", 1), "more");
    assert_string_equal(kvr_config_key(config, "params", 3), "on");
    assert_null(kvr_config_key(config, "params", 4));
    assert_string_equal(kvr_config_text(config, "params.factor"), "2.5");
    assert_string_equal(kvr_config_text(config, "params.more"), "0.1");
    assert_string_equal(kvr_config_text(config, "params.on"), "true");
    assert_true(kvr_config_number(config, "health.interval_ms") == 500.0);
    assert_true(kvr_config_number(config, "health.timeout_ms") == 800.0);
    assert_true(kvr_config_bool(config, "rows.blocks"));
    assert_true(kvr_config_number(config, "canary.share") == 0.25);
    kvr_config_destroy(config);
}

static void secrets_may_come_from_the_environment(void **state)
{
    (void)state;
    setenv("KVR_TEST_KEY", "from outside", 1);
    struct kvr_config *config =
        read_well("replicas = { { url = 'http://h:1', key = env('KVR_TEST_KEY') } }\n"
                  "policies_dir = env('KVR_TEST_ABSENT', '/srv')\n");
    assert_string_equal(kvr_config_text(config, "replicas.1.key"), "from outside");
    assert_string_equal(kvr_config_text(config, "policies_dir"), "/srv");
    kvr_config_destroy(config);
}

struct refusal {
    const char *text;
    const char *answer; /* the whole of it */
};

static void refused(const struct refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct kvr_error error = {0};
        struct kvr_config *config =
            kvr_config_read("kvroute.lua", kvr_slice_of(refusals[i].text), &error);
        if (config || strcmp(error.text, refusals[i].answer) != 0)
            fail_msg("%s:\n  %s\nnot\n  %s", refusals[i].text, error.text, refusals[i].answer);
        assert_int_equal(error.code, KVR_E_INVALID);
    }
}

static void refusals_name_key_value_and_line(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {"-- one\nhealth = {\n  path = '/health',\n  interval_ms = 'fast',\n}",
         "kvroute.lua:4: health.interval_ms: must be an integer between 10 and 3600000, got "
         "\"fast\""},
        {"\n\nhealth.interval_ms = 5",
         "kvroute.lua:3: health.interval_ms: must be an integer between 10 and 3600000, got 5"},
        {"health = { interval_ms = 10.5 }",
         "kvroute.lua:1: health.interval_ms: must be an integer between 10 and 3600000, got 10.5"},
        {"health = {}\nhealth.failures = 0/0",
         "kvroute.lua:2: health.failures: must be an integer between 1 and 100, got nan"},
        {"canary = { policy = 'x',\n share = 2 }",
         "kvroute.lua:2: canary.share: must be a number between 0 and 1, got 2"},
        {"health = {\n intervall_ms = 5 }",
         "kvroute.lua:2: health.intervall_ms: no such setting; did you mean interval_ms?"},
        {"ring = {\n points = 5 }", "kvroute.lua:2: ring.points: no such setting; known: vnodes"},
        {"listen = 'x:1'\nlisten_on = 5\n",
         "kvroute.lua:2: listen_on: no such setting; known: listen, admin, replicas, policy, "
         "params, spill, spill_params, canary, gate, shadow, policies_dir, scripts, session, "
         "tenant, routing, keys, plan, index, ring, health, scrape, models, dns, preserve_host, "
         "strip_headers, client_keys, moves, limits, streams, queue, timeouts, rows, headers, "
         "seed, log_level"},
        {"polcy = 'p2c'", "kvroute.lua:1: polcy: no such setting; did you mean policy?"},
        {"health = 5", "kvroute.lua:1: health: must be a table, got 5"},
        {"replicas = 'http://h:1'", "kvroute.lua:1: replicas: must be a list, got \"http://h:1\""},
        {"replicas = { url = 'http://h:1' }",
         "kvroute.lua:1: replicas: must be a list, has the key url"},
        {"replicas = {\n  { url = 'http://h:1' },\n  { weight = 1 },\n}",
         "kvroute.lua:3: replicas.2.url: is missing"},
        {"replicas = {\n  { url = 'http://h:1' },\n  {\n    url = 'h:1' },\n}",
         "kvroute.lua:4: replicas.2.url: must be such as http://127.0.0.1:8000, got \"h:1\""},
        {"replicas = {\n  { url = 'http://h:1',\n    weight = 0 } }",
         "kvroute.lua:3: replicas.1.weight: must be a number between 0.001 and 1000, got 0"},
        {"replicas = {\n  { url = 'http://h:1',\n    models = {\n 'a',\n 5 } } }",
         "kvroute.lua:5: replicas.1.models.2: must be a text, got 5"},
        {"for i = 1, 3 do\n  replicas[i] = { url = 'http://h:1', capacity = i - 3 }\nend",
         "kvroute.lua:2: replicas.1.capacity: must be an integer between 0 and 1000000, got -2"},
        {"replicas = {}\nreplicas[1] = {\n url = 'ftp://h' }",
         "kvroute.lua:3: replicas.1.url: must be such as http://127.0.0.1:8000, got \"ftp://h\""},
        {"\n\nreplicas = { { url = 'https://h' } }",
         "kvroute.lua:3: replicas.1.url: must be such as http://127.0.0.1:8000, without TLS, got "
         "\"https://h\""},
        {"listen = 8080", "kvroute.lua:1: listen: must be a text or a list of texts, got 8080"},
        {"listen = 'localhost'",
         "kvroute.lua:1: listen: must be an address such as 127.0.0.1:8080, got \"localhost\""},
        {"listen = 'h:99999'",
         "kvroute.lua:1: listen: must have a port below 65536, got \"h:99999\""},
        {"listen = {}", "kvroute.lua:1: listen: must have an address"},
        {"listen = { 'localhost' }",
         "kvroute.lua:1: listen.1: must be an address such as 127.0.0.1:8080, got \"localhost\""},
        {"headers = 'yes'", "kvroute.lua:1: headers: must be true or false, got \"yes\""},
        {"log_level = 'loud'",
         "kvroute.lua:1: log_level: must be one of error, warn, info, debug, got \"loud\""},
        {"policy = 'a b'",
         "kvroute.lua:1: policy: must be a name of letters, digits and _, or a path, got \"a b\""},
        {"params = {\n  a = 1,\n  b = {} }",
         "kvroute.lua:3: params.b: must be a boolean, a number or a text, got a table"},
        {"params = { 5 }", "kvroute.lua:1: params: must have names for keys, has 1"},
        {"health = { path = 'health' }",
         "kvroute.lua:1: health.path: must be a path that begins with /, got \"health\""},
        {"admin = {\n  listen = '0.0.0.0:8081' }",
         "kvroute.lua:1: admin.token: is needed when admin.listen is not a loopback address"},
        {"admin = {\n  listen = '0.0.0.0:8081',\n  token = 5 }",
         "kvroute.lua:3: admin.token: must be a text, got something else"},
        {"plan.interval_s = 0.001",
         "kvroute.lua:1: plan.interval_s: must be 0 or at least 0.01, got 0.001"},
        {"plan = { handover_every = 1 }",
         "kvroute.lua:1: plan.handover_every: must be 0 or at least 2, got 1"},
        {"routing.by = 'key'", "kvroute.lua:1: routing.key: is needed when routing.by is \"key\""},
        {"routing = { by = 'tenant' }",
         "kvroute.lua: tenant.key: is needed when routing.by is \"tenant\""},
        {"canary = { share = 0.5 }", "kvroute.lua:1: canary.policy: is needed when canary.share is "
                                     "above 0"},
        {"shadow = { { params = { a = 1 } } }", "kvroute.lua:1: shadow.1.policy: is missing"},
        {"shadow = { 'p2c',\n '' }", "kvroute.lua:2: shadow.2.policy: is missing"},
        {"shadow = { 'a b' }", "kvroute.lua:1: shadow.1.policy: must be a name of letters, digits "
                               "and _, or a path, got \"a b\""},
        {"shadow = { { policy = 'p2c', share = 1 } }",
         "kvroute.lua:1: shadow.1.share: no such setting; known: policy, params, spill_params"},
        {"shadow = { 'a', 'b', 'c', 'd', 'e' }",
         "kvroute.lua:1: shadow: must have at most 4 items, has 5"},
        {"shadow = 5", "kvroute.lua:1: shadow: must be a list, got 5"},
        {"shadow = { policy = 'p2c' }",
         "kvroute.lua:1: shadow: must be a list, has the key policy"},
        {"x = = 5", "kvroute.lua:1: unexpected symbol near '='"},
        {"\nlisten = nothing", "kvroute.lua:2: no setting or function named nothing"},
        {"\npolicy = os.date()", "kvroute.lua:2: no setting or function named os"},
        {"\npolicy = env('KVR_TEST_ABSENT')", "kvroute.lua:2: env: KVR_TEST_ABSENT is not set"},
        {"index.block_bytes = 512", "kvroute.lua:1: index.block_bytes: must be an integer between "
                                    "16 and 256, got 512"},
        {"replicas[2] = { url = 'http://a:1' } replicas[3] = { url = 'http://b:1' }",
         "kvroute.lua:1: replicas: must be a list, has the key 3"},
        {"listen = { nil, nil, 'a:1' }", "kvroute.lua:1: listen: must be a list, has the key 3"},
        {"\nwhile true do end", "kvroute.lua:2: does not end"},
        {"local t = {}\nfor i = 1, 1e9 do table.insert(t, 1, i) end",
         "kvroute.lua:2: does not end"},
        {"local t = {} for i = 1, 1e7 do t[i] = { i } end", "the file takes too much memory"},
        {"\nhealth.interval.ms = 5",
         "kvroute.lua:2: attempt to index field 'interval' (a nil value)"},
        {"\n\nerror({})", "kvroute.lua:3: error() with a table, not a text"},
        {"\nlocal function f() error(nil) end\nf()",
         "kvroute.lua:2: error() with a nil, not a text"},
        {"('x'):rep(1e9)", "kvroute.lua:1: attempt to call method 'rep' (a nil value)"},
    };
    refused(refusals, sizeof refusals / sizeof refusals[0]);
}

/* Lines are found in the text, past whatever Lua allows there. */
static void lines_are_right_in_odd_texts(void **state)
{
    (void)state;
#define MESSAGE "health.failures: must be an integer between 1 and 100, got 0"
    static const struct refusal refusals[] = {
        {"--[[ health = {\n failures = 0 } ]]\n\nhealth = {\n failures = 0 }",
         "kvroute.lua:5: " MESSAGE},
        {"--[==[\n]]\n]==]\nhealth.failures = 0", "kvroute.lua:4: " MESSAGE},
        {"local s = [[\nhealth = {\n]]\nhealth = { failures = 0 }", "kvroute.lua:4: " MESSAGE},
        {"local s = 'health = { \\' failures = 0'\nhealth = { failures = 0 }",
         "kvroute.lua:2: " MESSAGE},
        {"local s = 'a\\\nb'\nhealth = { failures = 0 }", "kvroute.lua:3: " MESSAGE},
        {"health = { passes = 1, -- }\n  ['failures'] = 0 }", "kvroute.lua:2: " MESSAGE},
        {"health = { passes = math.max(1,\n 2), failures\n = 0 }", "kvroute.lua:2: " MESSAGE},
        {"health = { passes = (function() if true then return 1 end end)();\n failures = 0 }",
         "kvroute.lua:2: " MESSAGE},
        {"health = { failures = 3 }\nif health == nil then end\nhealth = { failures = 0 }",
         "kvroute.lua:3: " MESSAGE},
        {"local health_too = { failures = 1 }\nlocal h = { failures = 0 }\nhealth = h",
         "kvroute.lua:3: " MESSAGE},
        {"local function set(t)\n  t.failures = 0\nend\nset(health)", "kvroute.lua:4: " MESSAGE},
        {"health\n=\n{\nfailures\n=\n0}", "kvroute.lua:4: " MESSAGE},
        {"\r\nhealth = {\r\n failures = 0 }\r\n", "kvroute.lua:3: " MESSAGE},
        {"health = { failures = 0 -- the end", "kvroute.lua:1: '}' expected near '<eof>'"},
    };
    refused(refusals, sizeof refusals / sizeof refusals[0]);
    /* Unfinished texts must not trip the finder: the parser refuses them first. */
    static const char *const unfinished[] = {
        "health = {", "x = [[", "--[[", "x = '", "x = {{{",    "a.b[",
        "\xff\xfe",   "[",      "]]",   "= =",   "replicas[1", "health[\"x\"]="};
    for (size_t i = 0; i < sizeof unfinished / sizeof unfinished[0]; i++)
        assert_null(kvr_config_read("kvroute.lua", kvr_slice_of(unfinished[i]), NULL));
}

/* A file that would start with the defaults, as if it were not there. */
static void a_file_that_sets_nothing_is_refused(void **state)
{
    (void)state;
#define WRITE ": settings are plain assignments, such as policy = \"p2c\", without local and return"
#define LOCAL "is a local, which sets nothing: leave out local, or name it otherwise"
    static const struct refusal refusals[] = {
        {"return { policy = 'p2c' }", "kvroute.lua:1: returns a value, which sets nothing" WRITE},
        {"local function f()\n  return 1\nend\n\nreturn {\n  listen = f,\n}",
         "kvroute.lua:5: returns a value, which sets nothing" WRITE},
        {"policy = 'p2c'\nif policy then return nil end",
         "kvroute.lua:2: returns a value, which sets nothing" WRITE},
        {"local name = 'p2c'\n\n", "kvroute.lua:1: sets nothing" WRITE},
        {"local policy = 'p2c'\n\n", "kvroute.lua:1: policy: " LOCAL},
        {"listen = 'h:1'\nlocal a,\n seed = 1, 2\nseed = 3\n", "kvroute.lua:3: seed: " LOCAL},
        {"listen = 'h:1'\nlocal function rows() end\n", "kvroute.lua:2: rows: " LOCAL},
        {"do\nlocal a = 1\nend", "kvroute.lua:3: sets nothing" WRITE},
    };
    refused(refusals, sizeof refusals / sizeof refusals[0]);
    kvr_config_destroy(read_well(""));
    kvr_config_destroy(read_well("-- policy = 'p2c'\n"));
    kvr_config_destroy(read_well("local p = 'p2c'\npolicy = p\nreturn\n"));
    kvr_config_destroy(read_well("local health = health\nhealth.failures = 3\n"));
    kvr_config_destroy(read_well("do local seed = 3 moves = seed end\n"
                                 "local function f() local policy = 'a' return policy end\n"
                                 "spill = f()\n"));
    struct kvr_error error = {0};
    assert_null(kvr_config_read_clients("keys.lua", kvr_slice_of("return {}"), &error));
    assert_non_null(strstr(error.text, "such as keys = { ... }"));
}

static int set(struct kvr_config *config, const char *name, const char *value,
               struct kvr_error *error)
{
    return kvr_config_set(config, name, kvr_slice_of(value), error);
}

static void places_are_told(void **state)
{
    (void)state;
    struct kvr_error error = {0};
    struct kvr_config *config = read_well("replicas = {\n"
                                          "  { url = 'http://h:1' },\n"
                                          "  { url = 'http://h:2' },\n"
                                          "}\n"
                                          "replicas = { {\n"
                                          "    url = 'http://h:3' } }\n"
                                          "replicas[2] = {}\n"
                                          "replicas[2].url = 'http://h:4'\n"
                                          "params = {\n"
                                          "  by = 'load' }\n"
                                          "spill = 'off'\n");
    assert_string_equal(kvr_config_text(config, "@replicas.1.url"),
                        "kvroute.lua:6: replicas.1.url: ");
    assert_string_equal(kvr_config_text(config, "@replicas.1.weight"),
                        "kvroute.lua:5: replicas.1.weight: ");
    assert_string_equal(kvr_config_text(config, "@replicas.2.url"),
                        "kvroute.lua:8: replicas.2.url: ");
    assert_string_equal(kvr_config_text(config, "@params.by"), "kvroute.lua:10: params.by: ");
    assert_string_equal(kvr_config_text(config, "@policy"), "kvroute.lua: policy: ");
    assert_int_equal(set(config, "spill", "load_min", &error), 0);
    assert_int_equal(set(config, "seed", "x", &error), KVR_E_INVALID);
    assert_string_equal(kvr_config_text(config, "@spill"), "spill: ");
    assert_string_equal(kvr_config_text(config, "@params.by"), "kvroute.lua:10: params.by: ");
    kvr_config_destroy(config);
    config = read_well(NULL);
    assert_string_equal(kvr_config_text(config, "@policy"), "policy: ");
    kvr_config_destroy(config);
}

static void secrets_are_not_shown(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {"replicas = { { url = 'http://h:1', key = { 'sk-very-secret' } } }",
         "kvroute.lua:1: replicas.1.key: must be a text, got something else"},
        {"admin.token = 12345678",
         "kvroute.lua:1: admin.token: must be a text, got something else"},
    };
    refused(refusals, sizeof refusals / sizeof refusals[0]);
}

static void a_text_stands_for_a_shadow(void **state)
{
    (void)state;
    struct kvr_error error = {0};
    struct kvr_config *config =
        read_well("shadow = { 'p2c', { policy = 'mine', params = { spill = 'off', n = 2 } } }\n");
    assert_int_equal(kvr_config_count(config, "shadow"), 2);
    assert_string_equal(kvr_config_text(config, "shadow.1.policy"), "p2c");
    assert_int_equal(kvr_config_count(config, "shadow.1.params"), 0);
    assert_string_equal(kvr_config_text(config, "shadow.2.policy"), "mine");
    assert_string_equal(kvr_config_key(config, "shadow.2.params", 0), "n");
    assert_string_equal(kvr_config_text(config, "shadow.2.params.spill"), "off");
    assert_int_equal(set(config, "shadow.1.params.a", "1", &error), 0);
    assert_int_equal(set(config, "shadow.3.policy", "third", &error), 0);
    assert_int_equal(set(config, "shadow.2.spill_params.factor", "3", &error), 0);
    assert_string_equal(kvr_config_text(config, "shadow.1.policy"), "p2c");
    assert_string_equal(kvr_config_text(config, "shadow.1.params.a"), "1");
    assert_string_equal(kvr_config_text(config, "shadow.2.spill_params.factor"), "3");
    assert_string_equal(kvr_config_text(config, "shadow.3.policy"), "third");
    kvr_config_destroy(config);
    config = read_well("shadow = 'p2c'\n");
    assert_string_equal(kvr_config_text(config, "shadow.1.policy"), "p2c");
    assert_int_equal(set(config, "shadow.2.policy", "b", &error), 0);
    assert_string_equal(kvr_config_text(config, "shadow.1.policy"), "p2c");
    kvr_config_destroy(config);
    config = read_well("");
    assert_int_equal(kvr_config_count(config, "shadow"), 0);
    assert_int_equal(set(config, "shadow.1.policy", "b", &error), 0);
    assert_string_equal(kvr_config_text(config, "shadow.1.policy"), "b");
    kvr_config_destroy(config);
}

static void flags_win_over_the_file(void **state)
{
    (void)state;
    struct kvr_config *config = read_well("replicas = { { url = 'http://h:1', weight = 3 } }\n"
                                          "params = { factor = 2 }\n"
                                          "health.interval_ms = 500\n");
    struct kvr_error error = {0};
    const char *url = kvr_config_text(config, "replicas.1.url");
    assert_int_equal(set(config, "replicas.2.url", "http://h:2", &error), 0);
    assert_int_equal(set(config, "replicas.1.weight", "0.5", &error), 0);
    assert_int_equal(set(config, "replicas.1.models", "m", &error), 0);
    assert_int_equal(set(config, "health.interval_ms", "250", &error), 0);
    assert_int_equal(set(config, "rows.blocks", "true", &error), 0);
    assert_int_equal(set(config, "params.spill", "off", &error), 0);
    assert_int_equal(set(config, "canary.params.a", "1", &error), 0);
    assert_int_equal(set(config, "listen", "127.0.0.1:0", &error), 0);
    assert_string_equal(url, "http://h:1"); /* still there */
    assert_int_equal(kvr_config_count(config, "replicas"), 2);
    assert_string_equal(kvr_config_text(config, "replicas.2.url"), "http://h:2");
    assert_true(kvr_config_number(config, "replicas.1.weight") == 0.5);
    assert_string_equal(kvr_config_text(config, "replicas.1.models.1"), "m");
    assert_true(kvr_config_number(config, "health.interval_ms") == 250.0);
    assert_true(kvr_config_bool(config, "rows.blocks"));
    assert_string_equal(kvr_config_key(config, "params", 1), "spill");
    assert_string_equal(kvr_config_text(config, "params.factor"), "2");
    assert_string_equal(kvr_config_text(config, "canary.params.a"), "1");
    assert_string_equal(kvr_config_text(config, "listen"), "127.0.0.1:0");
    kvr_config_destroy(config);
}

static void flags_that_do_not_fit_change_nothing(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {"health.interval_ms=fast",
         "health.interval_ms: must be an integer between 10 and 3600000, got \"fast\""},
        {"health.intervall_ms=5",
         "health.intervall_ms: no such setting; did you mean interval_ms?"},
        {"healt.interval_ms=5", "healt.interval_ms: no such setting; did you mean health?"},
        {"health=5", "health: is a table: set one of its keys"},
        {"seed.x=5", "seed.x: no such setting; seed has no keys"},
        {"replicas.3.url=http://h:1", "replicas.3.url: must name item 1 to 2 and one of its keys"},
        {"replicas.1=http://h:1", "replicas.1: must name item 1 to 2 and one of its keys"},
        {"replicas.2.weight=1", "replicas.2.url: is missing"},
        {"rows.blocks=yes", "rows.blocks: must be true or false, got \"yes\""},
        {"admin.listen=0.0.0.0:1",
         "admin.token: is needed when admin.listen is not a loopback address"},
        {"=5", "no such setting: \"\""},
    };
    struct kvr_config *config = read_well("replicas = { { url = 'http://h:1' } }");
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct kvr_error error = {0};
        char name[64];
        const char *equals = strchr(refusals[i].text, '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - refusals[i].text), refusals[i].text);
        assert_int_equal(set(config, name, equals + 1, &error), KVR_E_INVALID);
        assert_string_equal(error.text, refusals[i].answer);
    }
    assert_int_equal(kvr_config_count(config, "replicas"), 1);
    assert_true(kvr_config_number(config, "health.interval_ms") == 1000.0);
    kvr_config_destroy(config);
}

static void every_setting_is_described(void **state)
{
    (void)state;
    struct kvr_buffer out = {0};
    kvr_config_describe(&out);
    kvr_buffer_append(&out, "", 1);
    assert_non_null(
        strstr(out.data, "health.interval_ms           1000               between two probes\n"));
    assert_non_null(strstr(out.data, "replicas[i].url              (needed) "));
    assert_non_null(strstr(out.data, "error, warn, info, debug\n"));
    kvr_buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_need_no_file),
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(secrets_may_come_from_the_environment),
        cmocka_unit_test(refusals_name_key_value_and_line),
        cmocka_unit_test(lines_are_right_in_odd_texts),
        cmocka_unit_test(a_file_that_sets_nothing_is_refused),
        cmocka_unit_test(places_are_told),
        cmocka_unit_test(secrets_are_not_shown),
        cmocka_unit_test(a_text_stands_for_a_shadow),
        cmocka_unit_test(flags_win_over_the_file),
        cmocka_unit_test(flags_that_do_not_fit_change_nothing),
        cmocka_unit_test(every_setting_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
