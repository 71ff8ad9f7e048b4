/* Ambiguous HTTP messages over a real socket: http_cases.h says what must come of each. Each is
 * sent in one piece, a byte at a time, and in two pieces cut at every place; whatever the handler
 * sees is written towards a replica, and a strict parser must read exactly that one request there.
 */
#include "net_fixture.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "forward.h"
#include "http_cases.h"
#include "strict_http.h"

#define TURNS_MAX 2000 /* of the loop, each at most 5 ms */

struct server {
    struct net_fixture fixture;
    struct kvr_listener listener;
    struct kvr_buffer saw;
    const char *name; /* of the case at hand */
};

/* What a replica would get, read by somebody who is as strict as can be. */
static void check_forwarded(const struct server *server, const struct kvr_request *request)
{
    const struct kvr_http_head *head = request->head;
    struct kvr_buffer out = {0};
    struct strict_message message;
    kvr_forward_request(&out, head,
                        &(struct kvr_forward_request){
                            .authority = kvr_slice_of("replica:8000"),
                            .rank = -1,
                            .request_id = kvr_slice_of("id"),
                            .peer = kvr_slice_of("192.0.2.1"),
                            .body_len = request->body.len,
                            .has_body = head->has_length || head->chunked,
                        });
    kvr_buffer_append_slice(&out, request->body);
    if (strict_request(&message, kvr_buffer_slice(&out)) != STRICT_OK)
        fail_msg("%s: forwarded as something else: %s", server->name, message.fault);
    if (message.size != out.len)
        fail_msg("%s: a replica sees more than one request", server->name);
    assert_true(kvr_slice_equal(message.method, head->method));
    assert_true(kvr_slice_equal(message.target, head->target));
    assert_true(kvr_slice_equal(kvr_buffer_slice(&message.body), request->body));
    assert_false(message.chunked);
    kvr_buffer_deinit(&message.body);
    kvr_buffer_deinit(&out);
}

static void on_request(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    struct server *server = context;
    check_forwarded(server, request);
    if (server->saw.len)
        kvr_buffer_append_text(&server->saw, "|");
    kvr_buffer_append_slice(&server->saw, request->head->method);
    kvr_buffer_append_text(&server->saw, " ");
    kvr_buffer_append_slice(&server->saw, request->head->target);
    kvr_buffer_append_text(&server->saw, " ");
    kvr_buffer_append_slice(&server->saw, request->body);
    kvr_client_reply(client, 200, kvr_slice_of(""), kvr_slice_of("text/plain"), kvr_slice_of("ok"));
}

static void on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    (void)client;
}

static void start(struct server *server)
{
    memset(server, 0, sizeof *server);
    net_fixture_init(&server->fixture);
    struct kvr_handler handler = {.context = server, .on_request = on_request, .on_gone = on_gone};
    struct kvr_listener_options options = {.header_bytes_max = 2048, .body_bytes_max = 1024};
    struct kvr_error error = {0};
    if (kvr_listener_start(&server->listener, &server->fixture.loop, "127.0.0.1:0", &handler,
                           &options, &error) < 0)
        fail_msg("%s", error.text);
}

static void stop(struct server *server)
{
    kvr_listener_close(&server->listener);
    for (int i = 0; i < TURNS_MAX && !kvr_listener_closed(&server->listener); i++)
        uv_run(&server->fixture.uv, UV_RUN_ONCE);
    assert_true(kvr_listener_closed(&server->listener));
    kvr_buffer_deinit(&server->saw);
    net_fixture_deinit(&server->fixture);
}

/* ---- a client without manners ---- */

static int connect_to(const struct server *server)
{
    struct sockaddr_storage address = net_address(server->listener.address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    int rc = connect(fd, (struct sockaddr *)&address, sizeof(struct sockaddr_in));
    assert_true(rc == 0 || errno == EINPROGRESS);
    return fd;
}

/* With a reset: thousands of connections must leave no ports behind that wait. */
static void disconnect(struct server *server, int fd)
{
    struct linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    for (int i = 0; i < TURNS_MAX && server->listener.connections; i++)
        uv_run(&server->fixture.uv, UV_RUN_ONCE);
    assert_int_equal(server->listener.connections, 0);
    assert_int_equal(server->listener.held_bytes, 0);
}

/* Takes what has come. False: the server has ended the connection. */
static bool take(int fd, struct kvr_buffer *out)
{
    for (;;) {
        char bytes[4096];
        ssize_t len = recv(fd, bytes, sizeof bytes, 0);
        if (len > 0)
            kvr_buffer_append(out, bytes, (size_t)len);
        else
            return len < 0 && errno == EAGAIN;
    }
}

static void send_piece(struct server *server, int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return; /* the server has had enough */
        bytes += sent > 0 ? sent : 0;
        len -= sent > 0 ? (size_t)sent : 0;
        uv_run(&server->fixture.uv, UV_RUN_NOWAIT);
    }
    uv_run(&server->fixture.uv, UV_RUN_NOWAIT);
}

/* ---- what came back ---- */

/* The status codes in `out`, as text; interim ones only if `interim`. Reads whole answers only. */
static size_t list_answers(const struct server *server, const struct kvr_buffer *out, bool interim,
                           char *list, size_t room)
{
    size_t at = 0, len = 0, answers = 0;
    list[0] = '\0';
    while (at < out->len) {
        struct strict_message message;
        bool head = server->saw.len > 5 && memcmp(server->saw.data, "HEAD ", 5) == 0;
        struct kvr_slice rest = {out->data + at, out->len - at};
        enum strict_verdict verdict = strict_response(&message, rest, head, false);
        if (verdict == STRICT_BAD)
            fail_msg("%s: an answer is malformed: %s", server->name, message.fault);
        if (verdict == STRICT_MORE)
            break;
        if (message.status >= 400 &&
            !memmem(message.body.data, message.body.len, "{\"error\":{", 10))
            fail_msg("%s: an error in another shape", server->name);
        if (message.status >= 200 || interim)
            len += (size_t)snprintf(list + len, room - len, "%s%u", len ? " " : "", message.status);
        answers += message.status >= 200;
        at += message.size;
        kvr_buffer_deinit(&message.body);
    }
    return answers;
}

static void check(struct server *server, const struct http_case *test, int fd, bool open,
                  struct kvr_buffer *out)
{
    char answers[128];
    bool interim = strncmp(test->answers, "100", 3) == 0;
    for (int i = 0; i < TURNS_MAX; i++) {
        list_answers(server, out, interim, answers, sizeof answers);
        if (strcmp(answers, test->answers) == 0 && (test->end != CLOSES || !open))
            break;
        if (!open)
            break;
        uv_run(&server->fixture.uv, UV_RUN_ONCE);
        open = take(fd, out);
    }
    if (strcmp(answers, test->answers) != 0)
        fail_msg("%s: answered \"%s\", not \"%s\"", test->name, answers, test->answers);
    if (open == (test->end == CLOSES))
        fail_msg("%s: the connection is %s", test->name, open ? "open" : "closed");
    if (!kvr_slice_is(kvr_buffer_slice(&server->saw), test->saw))
        fail_msg("%s: understood as \"%.*s\"", test->name, (int)server->saw.len, server->saw.data);
}

/* One more request, where the connection should take one, and nothing but it. */
static void check_next(struct server *server, const struct http_case *test, int fd)
{
    static const char next[] = "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    const struct http_case expected = {test->name,   next,  sizeof next - 1,
                                       "GET /next ", "200", CLOSES};
    struct kvr_buffer out = {0};
    server->saw.len = 0;
    send_piece(server, fd, next, sizeof next - 1);
    check(server, &expected, fd, take(fd, &out), &out);
    kvr_buffer_deinit(&out);
}

/* Sends the case in pieces of `first` bytes, `step` bytes, `step` bytes, ... */
static void run(struct server *server, const struct http_case *test, size_t first, size_t step)
{
    struct kvr_buffer out = {0};
    int fd = connect_to(server);
    bool open = true;
    server->name = test->name;
    server->saw.len = 0;
    for (size_t at = 0; at < test->len && open;) {
        size_t len = at == 0 ? first : step;
        len = len < test->len - at ? len : test->len - at;
        send_piece(server, fd, test->bytes + at, len);
        at += len;
        open = take(fd, &out);
    }
    check(server, test, fd, open, &out);
    if (test->end == STAYS)
        check_next(server, test, fd);
    kvr_buffer_deinit(&out);
    disconnect(server, fd);
}

#define CASES (sizeof http_cases / sizeof http_cases[0])

static void every_message_has_its_answer(void **state)
{
    (void)state;
    struct server server;
    start(&server);
    assert_true(CASES > 100);
    for (size_t i = 0; i < CASES; i++) {
        run(&server, &http_cases[i], SIZE_MAX, SIZE_MAX);
        assert_int_equal(server.listener.counters.timed_out, 0);
    }
    stop(&server);
}

static void the_same_a_byte_at_a_time(void **state)
{
    (void)state;
    struct server server;
    start(&server);
    for (size_t i = 0; i < CASES; i++)
        run(&server, &http_cases[i], 1, 1);
    stop(&server);
}

static void the_same_cut_in_two_anywhere(void **state)
{
    (void)state;
    struct server server;
    start(&server);
    for (size_t i = 0; i < CASES; i++)
        for (size_t cut = 1; cut < http_cases[i].len && cut < 200; cut++)
            run(&server, &http_cases[i], cut, SIZE_MAX);
    stop(&server);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_its_answer),
        cmocka_unit_test(the_same_a_byte_at_a_time),
        cmocka_unit_test(the_same_cut_in_two_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
