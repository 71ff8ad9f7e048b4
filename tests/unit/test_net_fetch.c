/* core/net/fetch: answers in every framing, and every way in which none comes. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fetch.h"
#include "net_fixture.h"

struct outcome {
    int done;
    struct kvr_fetch_result result; /* its pointers are void */
    struct kvr_buffer body;
    char server[32];
};

static void on_done(void *context, const struct kvr_fetch_result *result)
{
    struct outcome *outcome = context;
    outcome->done++;
    outcome->result = *result;
    kvr_buffer_append_slice(&outcome->body, result->body);
    if (result->head) {
        struct kvr_slice server = kvr_http_header(result->head, "server");
        snprintf(outcome->server, sizeof outcome->server, "%.*s", (int)server.len, server.data);
    }
}

struct world {
    struct net_fixture net;
    struct raw_peer peer;
    struct outcome outcome;
};

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    net_fixture_init(&world->net);
    raw_peer_start(&world->peer, &world->net.loop);
}

static void end(struct world *world)
{
    raw_peer_stop(&world->peer);
    kvr_buffer_deinit(&world->outcome.body);
    net_fixture_deinit(&world->net);
    assert_int_equal(world->peer.open, 0);
}

static struct kvr_fetch_options options_for(const struct sockaddr_storage *address)
{
    return (struct kvr_fetch_options){
        .address = (const struct sockaddr *)address,
        .host = kvr_slice_of("replica-a:8000"),
        .path = kvr_slice_of("/health?deep=1"),
        .timeout_ns = 20000000000u,
    };
}

/* Fetches from the peer, which answers with `answer`, and waits for the outcome. */
static void fetch(struct world *world, const char *answer, enum raw_manner manner,
                  enum raw_after after, struct kvr_fetch_options *changed)
{
    world->peer.answer = kvr_slice_of(answer);
    world->peer.manner = manner;
    world->peer.after = after;
    world->peer.seen.len = 0;
    world->outcome.done = 0;
    world->outcome.body.len = 0;
    struct sockaddr_storage address = net_address(world->peer.address);
    struct kvr_fetch_options options = changed ? *changed : options_for(&address);
    options.address = (struct sockaddr *)&address;
    kvr_fetch_start(&world->net.loop, &options, &world->outcome, on_done);
    assert_int_equal(world->outcome.done, 0); /* never from inside start */
    assert_true(net_run_until(&world->net, &world->outcome.done, 1, 4000));
    assert_int_equal(world->outcome.done, 1);
}

static void assert_answer(const struct world *world, uint16_t status, const char *body)
{
    assert_int_equal(world->outcome.result.uv_code, 0);
    assert_int_equal(world->outcome.result.status, status);
    assert_int_equal(world->outcome.body.len, strlen(body));
    assert_memory_equal(world->outcome.body.data ? world->outcome.body.data : "", body,
                        strlen(body));
    assert_false(world->outcome.result.timed_out);
    assert_false(world->outcome.result.connect_failed);
    assert_false(world->outcome.result.own_fault);
}

static void assert_failure(const struct world *world, int uv_code)
{
    assert_int_equal(world->outcome.result.uv_code, uv_code);
    assert_int_equal(world->outcome.result.status, 0);
    assert_null(world->outcome.result.head);
    assert_int_equal(world->outcome.body.len, 0);
}

static void answers_in_every_framing(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        enum raw_after after;
        uint16_t status;
        const char *body;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello", RAW_HOLD, 200, "hello"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", RAW_HOLD, 200, ""},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n"
         "T: 1\r\n\r\n",
         RAW_HOLD, 200, "hello"},
        {"HTTP/1.1 200 OK\r\n\r\nto the end", RAW_CLOSE, 200, "to the end"},
        {"HTTP/1.0 503 Busy\r\n\r\n", RAW_CLOSE, 503, ""},
        {"HTTP/1.1 204 No Content\r\n\r\n", RAW_HOLD, 204, ""},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
         "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno",
         RAW_HOLD, 401, "no"},
        /* What follows the answer is not ours. */
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 X\r\n\r\n", RAW_HOLD, 200,
         "ok"},
    };
    struct world world;
    begin(&world);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int manner = RAW_WHOLE; manner <= RAW_BYTEWISE; manner++) {
            fetch(&world, cases[i].answer, (enum raw_manner)manner, cases[i].after, NULL);
            assert_answer(&world, cases[i].status, cases[i].body);
        }
    }
    end(&world);
}

static void request_is_as_asked(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    fetch(&world, "HTTP/1.1 200 OK\r\nServer: emu\r\nContent-Length: 0\r\n\r\n", RAW_WHOLE,
          RAW_HOLD, NULL);
    assert_string_equal(world.outcome.server, "emu");
    kvr_buffer_append(&world.peer.seen, "", 1);
    const char *get = "GET /health?deep=1 HTTP/1.1\r\nHost: replica-a:8000\r\n";
    assert_memory_equal(world.peer.seen.data, get, strlen(get));
    assert_non_null(strstr(world.peer.seen.data, "Connection: close\r\n"));
    assert_null(strstr(world.peer.seen.data, "Authorization"));
    assert_null(strstr(world.peer.seen.data, "Content-Length"));

    struct kvr_fetch_options post = {
        .host = kvr_slice_of("r"),
        .method = kvr_slice_of("POST"),
        .bearer = kvr_slice_of("sk-1"),
        .headers = kvr_slice_of("Content-Type: application/json\r\n"),
        .body = kvr_slice_of("{}"),
    };
    fetch(&world, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", RAW_WHOLE, RAW_HOLD, &post);
    net_run_for(&world.net, 20);
    kvr_buffer_append(&world.peer.seen, "", 1);
    assert_memory_equal(world.peer.seen.data, "POST / HTTP/1.1\r\nHost: r\r\n", 26);
    assert_non_null(strstr(world.peer.seen.data, "Authorization: Bearer sk-1\r\n"));
    assert_non_null(strstr(world.peer.seen.data,
                           "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"));

    post.body = kvr_slice_of("");
    fetch(&world, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", RAW_WHOLE, RAW_HOLD, &post);
    kvr_buffer_append(&world.peer.seen, "", 1);
    assert_non_null(strstr(world.peer.seen.data, "Content-Length: 0\r\n\r\n"));

    struct kvr_fetch_options head = {.host = kvr_slice_of("r"), .method = kvr_slice_of("HEAD")};
    fetch(&world, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", RAW_WHOLE, RAW_HOLD, &head);
    assert_answer(&world, 200, "");
    end(&world);
}

static void broken_answers_are_no_answers(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        enum raw_after after;
        int uv_code;
    } cases[] = {
        {"", RAW_CLOSE, UV_EOF},
        {"HTTP/1.1 200 OK\r\nContent-", RAW_CLOSE, UV_EOF},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", RAW_CLOSE, UV_EOF},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", RAW_CLOSE, UV_EOF},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", RAW_RESET, UV_ECONNRESET},
        {"HTTP/1.1 200 OK\r\n\r\nhel", RAW_RESET, UV_ECONNRESET},
        {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", RAW_HOLD, UV_EPROTO},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", RAW_HOLD, UV_EPROTO},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", RAW_HOLD,
         UV_EPROTO},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", RAW_HOLD, UV_EPROTO},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", RAW_HOLD,
         UV_EPROTO},
    };
    struct world world;
    begin(&world);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fetch(&world, cases[i].answer, RAW_WHOLE, cases[i].after, NULL);
        assert_failure(&world, cases[i].uv_code);
        assert_false(world.outcome.result.timed_out);
        assert_false(world.outcome.result.connect_failed);
    }
    end(&world);
}

static void answers_over_the_limit_are_cut(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n123456789",
    };
    struct world world;
    begin(&world);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct sockaddr_storage address = net_address(world.peer.address);
        struct kvr_fetch_options options = options_for(&address);
        options.max_bytes = 8;
        fetch(&world, answers[i], RAW_WHOLE, RAW_HOLD, &options);
        assert_failure(&world, UV_EMSGSIZE);
    }
    struct kvr_buffer big = {0};
    kvr_buffer_append_text(&big, "HTTP/1.1 200 OK\r\nX: ");
    memset(kvr_buffer_reserve(&big, 70000), 'x', 70000);
    big.len += 70000;
    kvr_buffer_append(&big, "", 1);
    fetch(&world, big.data, RAW_WHOLE, RAW_HOLD, NULL);
    assert_failure(&world, UV_EMSGSIZE);
    kvr_buffer_deinit(&big);
    end(&world);
}

static void silence_ends_in_time(void **state)
{
    (void)state;
    static const char *const answers[] = {"", "HTTP/1.1 200 OK\r\n",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"};
    struct world world;
    begin(&world);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct sockaddr_storage address = net_address(world.peer.address);
        struct kvr_fetch_options options = options_for(&address);
        options.timeout_ns = 80000000;
        uint64_t ran_from = world.net.ran_ns;
        fetch(&world, answers[i], RAW_BYTEWISE, RAW_HOLD, &options);
        assert_failure(&world, UV_ETIMEDOUT);
        assert_true(world.outcome.result.timed_out);
        assert_false(world.outcome.result.connect_failed);
        assert_true(world.outcome.result.duration_ns >= 80000000);
        assert_true(world.net.ran_ns - ran_from <= 400000000);
    }
    end(&world);
}

static atomic_bool peer_answered;

/* A peer that answers after 50 ms, whatever the loop is doing. */
static void *answer_once(void *context)
{
    int server = *(int *)context;
    int fd = accept(server, NULL, NULL);
    char request[4096];
    const char *answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    ssize_t len = read(fd, request, sizeof request);
    usleep(50000);
    bool sent = len > 0 && write(fd, answer, strlen(answer)) > 0;
    atomic_store(&peer_answered, true);
    if (sent)
        (void)read(fd, request, sizeof request);
    close(fd);
    return NULL;
}

static void hold_up_loop(uv_timer_t *timer)
{
    uint64_t from = kvr_loop_now();
    usleep(250000);
    for (int ms = 0; ms < 2000 && !atomic_load(&peer_answered); ms++)
        usleep(1000);
    if (atomic_load(&peer_answered)) /* else it had not been asked yet */
        *(uint64_t *)timer->data = from;
}

static bool try_held_up(void)
{
    struct world world;
    begin(&world);
    struct sockaddr_storage address = net_address("127.0.0.1:0");
    socklen_t len = sizeof(struct sockaddr_in);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(server, 1), 0);
    getsockname(server, (struct sockaddr *)&address, &len);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer_once, &server), 0);
    struct kvr_fetch_options options = options_for(&address);
    options.timeout_ns = 100000000;
    uint64_t from = kvr_loop_now(), held_from = 0;
    atomic_store(&peer_answered, false);
    kvr_fetch_start(&world.net.loop, &options, &world.outcome, on_done);
    uv_timer_t timer;
    uv_timer_init(&world.net.uv, &timer);
    timer.data = &held_from;
    uv_timer_start(&timer, hold_up_loop, 20, 0);
    assert_true(net_run_until(&world.net, &world.outcome.done, 1, 2000));
    bool calm = held_from && held_from - from < 60000000; /* before its time was over */
    if (calm) {
        assert_answer(&world, 200, "ok");
        assert_true(world.outcome.result.duration_ns > 200000000);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    shutdown(server, SHUT_RDWR); /* it may still wait for a connection */
    pthread_join(thread, NULL);
    close(server);
    end(&world);
    return calm;
}

static void loop_that_was_held_up_is_no_timeout(void **state)
{
    (void)state;
    net_when_calm(try_held_up);
}

static void nobody_listens(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    uv_close((uv_handle_t *)&world.peer.tcp, NULL);
    net_run_for(&world.net, 10);
    fetch(&world, "", RAW_WHOLE, RAW_HOLD, NULL);
    assert_failure(&world, UV_ECONNREFUSED);
    assert_true(world.outcome.result.connect_failed);
    assert_false(world.outcome.result.own_fault);
    end(&world);
}

static void want_of_descriptors_is_our_own_fault(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = {0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    fetch(&world, "", RAW_WHOLE, RAW_HOLD, NULL);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_failure(&world, UV_EMFILE);
    assert_true(world.outcome.result.own_fault);
    assert_false(world.outcome.result.connect_failed);
    end(&world);
}

static void requests_that_are_no_http_are_not_sent(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    struct kvr_fetch_options good = {.host = kvr_slice_of("r")};
    struct kvr_fetch_options cases[] = {good, good, good, good, good};
    cases[0].bearer = kvr_slice_of("sk-1\r\nX: y");
    cases[1].host = kvr_slice_of("r\r\n");
    cases[2].path = kvr_slice_of("/ HTTP/1.1\r\n");
    cases[3].path = kvr_slice_of("/a b");
    cases[4].method = kvr_slice_of("AVERYLONGMETHODNAME");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fetch(&world, "", RAW_WHOLE, RAW_HOLD, &cases[i]);
        assert_failure(&world, UV_EINVAL);
        assert_false(world.outcome.result.connect_failed);
    }
    net_run_for(&world.net, 20);
    assert_int_equal(world.peer.accepted, 0);
    end(&world);
}

static void cancelled_fetches_say_nothing(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    world.peer.answer = kvr_slice_of("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nslow");
    world.peer.manner = RAW_BYTEWISE;
    struct sockaddr_storage address = net_address(world.peer.address);
    struct kvr_fetch_options options = options_for(&address);
    for (unsigned ms = 0; ms < 40; ms += 3) {
        struct kvr_fetch *fetch =
            kvr_fetch_start(&world.net.loop, &options, &world.outcome, on_done);
        if (ms)
            net_run_for(&world.net, ms);
        kvr_fetch_cancel(fetch);
    }
    net_run_for(&world.net, 50);
    assert_int_equal(world.outcome.done, 0);
    assert_int_equal(world.peer.open, 0);
    end(&world);
}

static void many_leave_no_descriptor_behind(void **state)
{
    (void)state;
    struct world world;
    begin(&world);
    world.peer.answer = kvr_slice_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    struct sockaddr_storage address = net_address(world.peer.address);
    struct kvr_fetch_options options = options_for(&address);
    net_run_for(&world.net, 10);
    int before = net_open_descriptors();
    for (int round = 1; round <= 10; round++) {
        for (int i = 0; i < 50; i++)
            kvr_fetch_start(&world.net.loop, &options, &world.outcome, on_done);
        assert_true(net_run_until(&world.net, &world.outcome.done, round * 50, 4000));
        assert_int_equal(world.outcome.result.status, 200);
    }
    net_run_for(&world.net, 20);
    assert_int_equal(net_open_descriptors(), before);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_in_every_framing),
        cmocka_unit_test(request_is_as_asked),
        cmocka_unit_test(broken_answers_are_no_answers),
        cmocka_unit_test(answers_over_the_limit_are_cut),
        cmocka_unit_test(silence_ends_in_time),
        cmocka_unit_test(loop_that_was_held_up_is_no_timeout),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(want_of_descriptors_is_our_own_fault),
        cmocka_unit_test(requests_that_are_no_http_are_not_sent),
        cmocka_unit_test(cancelled_fetches_say_nothing),
        cmocka_unit_test(many_leave_no_descriptor_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
