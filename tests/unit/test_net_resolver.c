/* Names of replicas that lead elsewhere after a while: the look-ups themselves, against answers
 * that the test gives, and an ingress whose replica moves. */
#include "net_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "fetch.h"
#include "ingress.h"
#include "unit.h"

#define MS 1000000ull
#define S  1000000000ull

/* ---- look-ups that the test answers ---- */

struct pending {
    uv_getaddrinfo_t *request;
    uv_getaddrinfo_cb on_done;
    char host[64];
};

static struct {
    struct pending pending[32];
    int count;            /* asked so far */
    const char *leads_to; /* addresses of every name, for answer_all and the waiting kind */
} dns;

/* One block a node, which is how glibc frees them. */
static struct addrinfo *make_answer(const char *addresses, const char *port)
{
    struct addrinfo *first = NULL, **next = &first;
    char text[256];
    snprintf(text, sizeof text, "%s", addresses);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char whole[96];
        snprintf(whole, sizeof whole, strchr(word, ':') ? "[%s]:%s" : "%s:%s", word, port);
        struct sockaddr_storage address = net_address(whole);
        struct addrinfo *node = calloc(1, sizeof *node + sizeof address);
        node->ai_family = address.ss_family;
        node->ai_addrlen = sizeof address;
        node->ai_addr = (struct sockaddr *)(node + 1);
        memcpy(node->ai_addr, &address, sizeof address);
        *next = node;
        next = &node->ai_next;
    }
    return first;
}

static int fake_look_up(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb on_done,
                        const char *host, const char *port, const struct addrinfo *hints)
{
    (void)loop;
    assert_int_equal(hints->ai_socktype, SOCK_STREAM);
    dns.count++;
    if (!on_done) {
        request->addrinfo = dns.leads_to ? make_answer(dns.leads_to, port) : NULL;
        return dns.leads_to ? 0 : UV_EAI_NONAME;
    }
    struct pending *slot = dns.pending;
    while (slot->request)
        slot++;
    *slot = (struct pending){.request = request, .on_done = on_done};
    snprintf(slot->host, sizeof slot->host, "%s:%s", host, port);
    return 0;
}

static int waiting(void)
{
    int count = 0;
    for (size_t i = 0; i < sizeof dns.pending / sizeof dns.pending[0]; i++)
        count += dns.pending[i].request != NULL;
    return count;
}

/* Answers the look-up of that name; NULL: with a failure. */
static void answer(const char *host, const char *addresses)
{
    for (size_t i = 0; i < sizeof dns.pending / sizeof dns.pending[0]; i++) {
        struct pending one = dns.pending[i];
        if (!one.request || strcmp(one.host, host) != 0)
            continue;
        dns.pending[i].request = NULL;
        one.on_done(one.request, addresses ? 0 : UV_EAI_AGAIN,
                    addresses ? make_answer(addresses, strchr(host, ':') + 1) : NULL);
        return;
    }
    fail_msg("%s was not asked for", host);
}

static void answer_all(void)
{
    for (size_t i = 0; i < sizeof dns.pending / sizeof dns.pending[0]; i++)
        if (dns.pending[i].request)
            answer(dns.pending[i].host, dns.leads_to);
}

/* ---- the resolver alone ---- */

struct fixture {
    struct net_fixture net;
    struct kvr_resolver resolver;
    char moved[64]; /* the last: slot and address */
    int moves;
    int closed;
};

static struct fixture f;

static void on_moved(void *context, uint32_t slot, const struct sockaddr *address)
{
    char text[46];
    (void)context;
    uv_ip_name(address, text, sizeof text);
    snprintf(f.moved, sizeof f.moved, "%u %s", slot, text);
    f.moves++;
}

static void on_closed(void *context)
{
    (void)context;
    f.closed++;
}

static int setup(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    memset(&dns, 0, sizeof dns);
    net_fixture_init(&f.net);
    struct kvr_resolver_options options = {
        .refresh_ns = 30 * S, .hurry_ns = S, .look_up = fake_look_up};
    kvr_resolver_start(&f.resolver, &f.net.loop, 16, &options, NULL, on_moved);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (!f.closed) {
        kvr_resolver_close(&f.resolver, NULL, on_closed);
        assert_int_equal(f.closed, 1);
    }
    net_fixture_deinit(&f.net);
    return 0;
}

static void follow(uint32_t slot, const char *host, const char *address)
{
    struct sockaddr_storage where;
    char whole[64];
    if (address) {
        snprintf(whole, sizeof whole, "%s:80", address);
        where = net_address(whole);
    }
    kvr_resolver_follow(&f.resolver, slot, host, "80",
                        address ? (const struct sockaddr *)&where : NULL);
}

static void test_an_address_stays_while_the_name_has_it(void **state)
{
    (void)state;
    uint64_t now = kvr_loop_now();
    follow(3, "engine", "10.0.0.1");
    kvr_resolver_tick(&f.resolver, now + 29 * S);
    assert_int_equal(dns.count, 0);
    kvr_resolver_tick(&f.resolver, now + 31 * S);
    assert_int_equal(waiting(), 1);
    kvr_resolver_tick(&f.resolver, now + 90 * S); /* one at a time for one name */
    assert_int_equal(waiting(), 1);
    answer("engine:80", "10.0.0.9 10.0.0.1");
    assert_int_equal(f.moves, 0);
    kvr_resolver_tick(&f.resolver, now + 90 * S);
    answer("engine:80", NULL);
    assert_int_equal(f.moves, 0);
    assert_int_equal(f.resolver.counters.failures, 1);
    kvr_resolver_tick(&f.resolver, now + 130 * S);
    answer("engine:80", "10.0.0.7 10.0.0.8");
    assert_string_equal(f.moved, "3 10.0.0.7");
    assert_int_equal(f.resolver.counters.moves, 1);
    assert_int_equal(f.resolver.counters.lookups, 3);
    kvr_resolver_forget(&f.resolver, 3);
    kvr_resolver_tick(&f.resolver, now + 1000 * S);
    assert_int_equal(waiting(), 0);
}

static void test_one_that_cannot_be_reached_is_left_for_the_next(void **state)
{
    (void)state;
    uint64_t now = kvr_loop_now();
    follow(0, "engine", "10.0.0.1");
    kvr_resolver_doubt(&f.resolver, 0, true);
    kvr_resolver_tick(&f.resolver, now);
    assert_int_equal(waiting(), 0); /* it was looked up just now */
    kvr_resolver_tick(&f.resolver, now + 2 * S);
    answer("engine:80", "10.0.0.1 10.0.0.2 fd00::3");
    assert_string_equal(f.moved, "0 10.0.0.2");
    kvr_resolver_doubt(&f.resolver, 0, true);
    kvr_resolver_doubt(&f.resolver, 0, true);
    kvr_resolver_tick(&f.resolver, now + 4 * S);
    answer("engine:80", "10.0.0.1 10.0.0.2 fd00::3");
    assert_string_equal(f.moved, "0 fd00::3");
    kvr_resolver_doubt(&f.resolver, 0, true);
    kvr_resolver_tick(&f.resolver, now + 6 * S);
    answer("engine:80", "10.0.0.1 10.0.0.2 fd00::3");
    assert_string_equal(f.moved, "0 10.0.0.1");
    kvr_resolver_doubt(&f.resolver, 0, true);
    kvr_resolver_tick(&f.resolver, now + 8 * S);
    answer("engine:80", "10.0.0.1"); /* there is no other */
    assert_int_equal(f.moves, 3);
    /* A probe without an answer asks again, and leaves a busy engine where it is. */
    kvr_resolver_doubt(&f.resolver, 0, false);
    kvr_resolver_tick(&f.resolver, now + 10 * S);
    answer("engine:80", "10.0.0.2 10.0.0.1");
    assert_int_equal(f.moves, 3);
    kvr_resolver_doubt(&f.resolver, 7, true); /* nobody's */
}

static void test_a_name_that_leads_nowhere_is_tried_again(void **state)
{
    (void)state;
    uint64_t now = kvr_loop_now();
    follow(1, "new", NULL);
    kvr_resolver_tick(&f.resolver, now + S);
    answer("new:80", NULL);
    kvr_resolver_tick(&f.resolver, now + S + 500 * MS);
    assert_int_equal(waiting(), 0);
    kvr_resolver_tick(&f.resolver, now + 3 * S);
    answer("new:80", "10.0.0.5");
    assert_string_equal(f.moved, "1 10.0.0.5");
}

static void test_a_late_answer_is_for_nobody(void **state)
{
    (void)state;
    uint64_t now = kvr_loop_now();
    follow(2, "old", NULL);
    kvr_resolver_tick(&f.resolver, now + S);
    kvr_resolver_forget(&f.resolver, 2);
    follow(2, "other", "10.0.0.2");
    answer("old:80", "10.0.0.1");
    assert_int_equal(f.moves, 0);
    kvr_resolver_tick(&f.resolver, now + 60 * S);
    answer("other:80", "10.0.0.3");
    assert_string_equal(f.moved, "2 10.0.0.3");
}

static void test_few_are_asked_for_at_once_and_closing_waits(void **state)
{
    (void)state;
    char name[16];
    uint64_t now = kvr_loop_now();
    for (uint32_t i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "n%u", i);
        follow(i, name, NULL);
    }
    kvr_resolver_tick(&f.resolver, now + S);
    assert_int_equal(waiting(), KVR_RESOLVER_OPEN_MAX);
    answer("n3:80", "10.0.0.3");
    kvr_resolver_tick(&f.resolver, now + S);
    assert_int_equal(waiting(), KVR_RESOLVER_OPEN_MAX);
    kvr_resolver_close(&f.resolver, NULL, on_closed);
    kvr_resolver_doubt(&f.resolver, 0, true);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(f.closed, 0);
        if (i == 3)
            continue;
        snprintf(name, sizeof name, "n%u:80", i);
        answer(name, "10.0.0.1");
    }
    assert_int_equal(f.closed, 1);
    assert_int_equal(f.moves, 1);
}

static void test_authorities_are_split(void **state)
{
    (void)state;
    char host[KVR_HOST_MAX], port[8];
    struct kvr_error error;
    static const char *const bad[] = {
        "",           "host",     ":80",      "host:",    "host:123456",  "host:0",
        "host:99999", "host:+80", "host: 80", "host:8o",  "a@b:80",       "a b:80",
        "a%2e:80",    "[::1:80",  "[]:80",    "[a/b]:80", "h\xc3\xb6:80", "a:b:80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(kvr_resolver_split(kvr_slice_of(bad[i]), host, port, &error),
                         KVR_E_INVALID);
    assert_int_equal(kvr_resolver_split(kvr_slice_of("a.b.example:8000"), host, port, &error), 0);
    assert_string_equal(host, "a.b.example");
    assert_string_equal(port, "8000");
    assert_int_equal(kvr_resolver_split(kvr_slice_of("[fe80::1%eth0]:65535"), host, port, &error),
                     0);
    assert_int_equal(kvr_resolver_split(kvr_slice_of("my_host-1:1"), host, port, &error), 0);
}

/* ---- an ingress whose replica moves ---- */

/* An engine that keeps each request until the test answers it. */
struct engine {
    struct kvr_listener listener;
    struct kvr_client *asked[4];
    int count;
    int gone;
};

static void engine_on_request(void *context, struct kvr_client *client,
                              const struct kvr_request *request)
{
    struct engine *engine = context;
    if (!kvr_slice_is(request->head->method, "POST")) {
        kvr_client_reply(client, 200, kvr_slice_of(""), kvr_slice_of("text/plain"),
                         kvr_slice_of(""));
        return;
    }
    assert_true(kvr_slice_is(request->head->host, "engine.test:80") ||
                strncmp(request->head->host.data, "engine.test:", 12) == 0);
    engine->asked[engine->count++] = client;
}

static void engine_on_gone(void *context, struct kvr_client *client)
{
    (void)client;
    ((struct engine *)context)->gone++;
}

static void engine_start(struct engine *engine, const char *address)
{
    struct kvr_handler handler = {
        .context = engine, .on_request = engine_on_request, .on_gone = engine_on_gone};
    struct kvr_error error = {0};
    memset(engine, 0, sizeof *engine);
    if (kvr_listener_start(&engine->listener, &f.net.loop, address, &handler, NULL, &error))
        fail_msg("%s", error.text);
}

static void engine_answer(struct engine *engine, int i)
{
    kvr_client_reply(engine->asked[i], 200, kvr_slice_of(""), kvr_slice_of("application/json"),
                     kvr_slice_of("{}"));
}

static struct kvr_ingress ingress;
static char policies[64];
static int answered;
static bool lost; /* what answers goes */

static void on_fetched(void *context, const struct kvr_fetch_result *result)
{
    (void)context;
    assert_int_equal(result->uv_code, 0);
    assert_int_equal(result->status / 100, lost ? 5 : 2);
    answered++;
}

static void ask(void)
{
    struct sockaddr_storage address = net_address(ingress.listeners[0].address);
    struct kvr_fetch_options options = {
        .address = (const struct sockaddr *)&address,
        .host = kvr_slice_of("router"),
        .method = kvr_slice_of("POST"),
        .path = kvr_slice_of("/v1/chat/completions"),
        .body = kvr_slice_of("{\"model\":\"m\",\"messages\":[]}"),
        .timeout_ns = 10 * S,
    };
    kvr_fetch_start(&f.net.loop, &options, NULL, on_fetched);
}

static bool run_until_up(void)
{
    for (int i = 0; i < 500; i++) {
        if (kvr_replica_in_rotation(&ingress.router.replicas.slots[0]))
            return true;
        net_run_for(&f.net, 10);
        answer_all();
    }
    return false;
}

static void start_ingress(void)
{
    struct kvr_error error = {0};
    struct kvr_ingress_options options = {
        .listen = {"127.0.0.1:0"},
        .listen_count = 1,
        .policies_dir = policies,
        .router = {.replicas_max = 4,
                   .requests_max = 64,
                   .health = {.interval_ns = 100 * MS, .timeout_ns = 2 * S}},
        .resolver = {.refresh_ns = 100 * MS, .hurry_ns = 50 * MS, .look_up = fake_look_up},
        .script_budget_ms = 5000,
    };
    strcpy(policies, "/tmp/kvroute-test-resolver-XXXXXX");
    assert_non_null(mkdtemp(policies));
    kvr_ingress_init(&ingress, &f.net.loop, &options);
    assert_int_equal(kvr_ingress_start(&ingress, &error), 0);
}

static void stop_ingress(void)
{
    kvr_ingress_close(&ingress, NULL, on_closed);
    answer_all();                                           /* it waits for its look-ups */
    assert_true(net_run_until(&f.net, &f.closed, 2, 3000)); /* the resolver's was the first */
    kvr_ingress_deinit(&ingress);
    rmdir(policies);
}

static void test_a_replica_that_moves(void **state)
{
    (void)state;
    static struct engine old, fresh;
    char url[64], second[64];
    kvr_resolver_close(&f.resolver, NULL, on_closed);
    engine_start(&old, "127.0.0.1:0");
    const char *port = strrchr(old.listener.address, ':') + 1;
    snprintf(second, sizeof second, "127.0.0.2:%s", port);
    engine_start(&fresh, second);
    snprintf(url, sizeof url, "http://engine.test:%s", port);
    dns.leads_to = "127.0.0.1";
    start_ingress();
    struct kvr_slice model = kvr_slice_of("m");
    struct kvr_ingress_replica_spec spec = {
        .url = kvr_slice_of(url), .rank = -1, .models = &model, .models_count = 1};
    struct kvr_error error = {0};
    assert_int_equal(kvr_ingress_add_replica(&ingress, &spec, &error), 0);
    assert_true(run_until_up());
    ask();
    assert_true(net_run_until(&f.net, &old.count, 1, 2000));
    engine_answer(&old, 0);
    assert_true(net_run_until(&f.net, &answered, 1, 2000));
    ask(); /* this one is being answered while the replica moves */
    assert_true(net_run_until(&f.net, &old.count, 2, 2000));
    uint32_t generation = ingress.router.replicas.slots[0].generation;
    dns.leads_to = "127.0.0.2";
    for (int i = 0; i < 200 && ingress.resolver.counters.moves == 0; i++) {
        net_run_for(&f.net, 10);
        answer_all();
    }
    assert_int_equal(ingress.resolver.counters.moves, 1);
    assert_true(ingress.router.replicas.slots[0].generation != generation);
    ask();
    assert_true(net_run_until(&f.net, &fresh.count, 1, 2000));
    engine_answer(&fresh, 0);
    assert_true(net_run_until(&f.net, &answered, 2, 2000));
    assert_int_equal(old.gone, 0);
    engine_answer(&old, 1);
    assert_true(net_run_until(&f.net, &answered, 3, 2000));
    ask(); /* the old one's connection was not kept */
    assert_true(net_run_until(&f.net, &fresh.count, 2, 2000));
    engine_answer(&fresh, 1);
    assert_true(net_run_until(&f.net, &answered, 4, 2000));
    assert_int_equal(old.count, 2);
    ask();
    assert_true(net_run_until(&f.net, &fresh.count, 3, 2000));
    kvr_listener_close(&old.listener);
    kvr_listener_close(&fresh.listener);
    assert_int_equal(fresh.gone, 1); /* whom it had not answered */
    lost = true;
    assert_true(net_run_until(&f.net, &answered, 5, 2000));
    lost = false;
    stop_ingress();
    net_run_for(&f.net, 50);
}

static void test_a_replica_added_while_running_holds_nobody_up(void **state)
{
    (void)state;
    static struct engine engine;
    char url[64], name[64];
    answered = 0;
    kvr_resolver_close(&f.resolver, NULL, on_closed);
    engine_start(&engine, "127.0.0.1:0");
    const char *port = strrchr(engine.listener.address, ':') + 1;
    snprintf(url, sizeof url, "engine.test:%s", port);
    snprintf(name, sizeof name, "%s", url);
    start_ingress();
    struct kvr_slice model = kvr_slice_of("m");
    struct kvr_ingress_replica_spec spec = {
        .url = kvr_slice_of(url), .rank = -1, .running = true, .models = &model, .models_count = 1};
    struct kvr_error error = {0};
    assert_int_equal(kvr_ingress_add_replica(&ingress, &spec, &error), 0);
    assert_int_equal(dns.count, 0); /* not before it returns */
    for (int i = 0; i < 100 && waiting() == 0; i++)
        net_run_for(&f.net, 10);
    net_run_for(&f.net, 150); /* probes go nowhere meanwhile */
    assert_false(kvr_replica_in_rotation(&ingress.router.replicas.slots[0]));
    answer(name, "127.0.0.1");
    dns.leads_to = "127.0.0.1";
    assert_true(run_until_up());
    ask();
    assert_true(net_run_until(&f.net, &engine.count, 1, 2000));
    engine_answer(&engine, 0);
    assert_true(net_run_until(&f.net, &answered, 1, 2000));
    kvr_ingress_remove_replica(&ingress, 0);
    int asked = dns.count;
    net_run_for(&f.net, 300);
    assert_int_equal(dns.count, asked);
    stop_ingress();
    kvr_listener_close(&engine.listener);
    net_run_for(&f.net, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_address_stays_while_the_name_has_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_one_that_cannot_be_reached_is_left_for_the_next, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_name_that_leads_nowhere_is_tried_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_late_answer_is_for_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_few_are_asked_for_at_once_and_closing_waits, setup,
                                        teardown),
        cmocka_unit_test(test_authorities_are_split),
        cmocka_unit_test_setup_teardown(test_a_replica_that_moves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_replica_added_while_running_holds_nobody_up, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
