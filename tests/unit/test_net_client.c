/* core/net/client and listener in a busy loop, where a client's bytes may have been read and not
 * yet looked at while others are served: its state may be another by then, and whoever closes idle
 * clients must not take it for one.
 *
 * The rig's one stream, the driver, is found readable before the clients: what it does when it is
 * served happens while their bytes are in the inbox. */
#include "stream_fixture.h"

#include <netinet/tcp.h>

struct server {
    struct rig *rig;
    struct kvr_listener listener;
    struct kvr_client *waiting[4]; /* their requests are taken and not answered */
    int waits;
    int answered_at_once; /* answers given while more of that client was in the inbox */
    struct kvr_buffer seen;
};

static struct server server;

static void on_request(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    (void)context;
    kvr_buffer_append_slice(&server.seen, request->head->target);
    kvr_buffer_printf(&server.seen, " %zu ", request->body.len);
    kvr_buffer_append_slice(&server.seen, request->body);
    kvr_buffer_append_text(&server.seen, "\n");
    assert_true(server.waits < 4);
    server.waiting[server.waits++] = client;
}

static void on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    for (int i = 0; i < server.waits; i++)
        if (server.waiting[i] == client)
            server.waiting[i] = server.waiting[--server.waits];
}

static void answer_all(struct owner *driver)
{
    (void)driver;
    for (int waits = server.waits; waits > 0; waits--) {
        struct kvr_client *client = server.waiting[0];
        memmove(server.waiting, server.waiting + 1, sizeof server.waiting - sizeof(void *));
        server.waits--;
        server.answered_at_once += client->stream.read;
        kvr_client_reply(client, 200, kvr_slice_of(""), kvr_slice_of("text/plain"),
                         kvr_slice_of("good"));
    }
}

static void new_server(const struct kvr_listener_options *options)
{
    struct rig *rig = new_rig(1);
    struct kvr_handler handler = {.on_request = on_request, .on_gone = on_gone};
    struct kvr_error error = {0};
    server = (struct server){.rig = rig};
    assert_int_equal(kvr_listener_start(&server.listener, &rig->net.loop, "127.0.0.1:0", &handler,
                                        options, &error),
                     0);
}

static void end_server(void)
{
    kvr_listener_close(&server.listener);
    run_until(server.rig, kvr_listener_closed(&server.listener));
    assert_int_equal(server.listener.held_bytes, 0);
    kvr_buffer_deinit(&server.seen);
    end_rig(server.rig);
}

static int connect_client(void)
{
    struct sockaddr_storage address = net_address(server.listener.address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int room = 1 << 20, at_once = 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(struct sockaddr_in)), 0);
    return fd;
}

static void accept_all(uint32_t count)
{
    run_until(server.rig, server.listener.connections == count);
    busy_turn(server.rig);
}

static void say(int fd, const char *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), len);
}

/* Answers what waits, in a turn that has read these bytes of the client by then. */
static void answer_behind(int fd, const char *bytes, size_t len)
{
    struct owner *driver = &server.rig->owners[0];
    driver->on_data = answer_all;
    busy_turn(server.rig); /* nothing is ready: the driver will be the first */
    peer_says(driver, "go");
    if (len) {
        say(fd, bytes, len);
        wait_readable(server.waiting[0]->stream.fd);
    }
    busy_turn(server.rig);
}

static void wait_for_requests(int count)
{
    run_until(server.rig, server.waits >= count);
    assert_int_equal(server.waits, count);
}

/* So many whole answers come, and no more of them. */
static void expect_answers(int fd, int count)
{
    char bytes[4096];
    size_t len = 0;
    busy_turn(server.rig); /* it sends what the turn before has written */
    for (const char *at = bytes; count > 0;) {
        wait_readable(fd);
        ssize_t more = recv(fd, bytes + len, sizeof bytes - 1 - len, 0);
        assert_true(more > 0);
        len += (size_t)more;
        bytes[len] = '\0';
        for (const char *end; (end = strstr(at, "\r\n\r\ngood")); at = end + 8)
            count--;
    }
    assert_int_equal(count, 0);
}

/* ---- pipelined requests ---- */

/* Three requests, the later two of them cut where the first one's answer is given: what is behind
 * the cut was read while that one was answered, and is served in the state that came of it. */
static void cut_pipeline(int fd, const char *first, const char *rest, size_t cut)
{
    size_t len = strlen(rest);
    server.answered_at_once = 0;
    say(fd, first, strlen(first));
    say(fd, rest, cut);
    wait_for_requests(1);
    answer_behind(fd, rest + cut, len - cut);
    assert_int_equal(server.answered_at_once, cut < len);
    for (int i = 1; i < 3; i++) {
        wait_for_requests(1);
        answer_behind(fd, NULL, 0);
    }
    assert_int_equal(server.waits, 0);
    expect_answers(fd, 3);
}

static void pipelines_cut_anywhere(const char *rest, const char *expected, size_t step)
{
    static const char first[] = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    new_server(
        &(struct kvr_listener_options){.header_bytes_max = 1 << 20}); /* it is never paused */
    int fd = connect_client();
    accept_all(1);
    for (size_t cut = 0; cut <= strlen(rest); cut += step) {
        cut_pipeline(fd, first, rest, cut);
        assert_true(kvr_slice_is(kvr_buffer_slice(&server.seen), expected));
        server.seen.len = 0;
    }
    close(fd);
    end_server();
}

static void bodies_of_known_length(void **state)
{
    (void)state;
    pipelines_cut_anywhere("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 26\r\n\r\n"
                           "abcdefghijklmnopqrstuvwxyz"
                           "POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789",
                           "/1 0 \n/2 26 abcdefghijklmnopqrstuvwxyz\n/3 10 0123456789\n", 1);
}

static void chunked_bodies(void **state)
{
    (void)state;
    pipelines_cut_anywhere("POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "3\r\nabc\r\n8\r\ndefghijk\r\n0\r\n\r\n"
                           "POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789",
                           "/1 0 \n/2 11 abcdefghijk\n/3 10 0123456789\n", 1);
}

static void bodies_that_wait_to_be_told(void **state)
{
    (void)state;
    pipelines_cut_anywhere(
        "POST /2 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nabcde"
        "POST /3 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nxyz",
        "/1 0 \n/2 5 abcde\n/3 3 xyz\n", 1);
}

/* More than the inbox takes of one client: the rest goes where the body is. */
static void bodies_larger_than_a_read(void **state)
{
    (void)state;
    size_t size = 3 * KVR_INBOX_ROOM + 7;
    struct kvr_buffer rest = {0}, expected = {0};
    kvr_buffer_append_text(&expected, "/1 0 \n");
    for (int i = 2; i <= 3; i++) {
        kvr_buffer_printf(&rest, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", i,
                          size);
        kvr_buffer_append(&rest, letters(0, size), size);
        kvr_buffer_printf(&expected, "/%d %zu ", i, size);
        kvr_buffer_append(&expected, letters(0, size), size);
        kvr_buffer_append_text(&expected, "\n");
    }
    kvr_buffer_append(&rest, "", 1);
    kvr_buffer_append(&expected, "", 1);
    pipelines_cut_anywhere(rest.data, expected.data, 1999);
    kvr_buffer_deinit(&rest);
    kvr_buffer_deinit(&expected);
}

/* ---- idle clients of which a request has been read ---- */

static const char get[] = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

/* The one idle longest makes room for a new one, but not once its request is here. */
static void room_is_not_made_by_one_that_has_asked(void **state)
{
    (void)state;
    new_server(&(struct kvr_listener_options){.connections_max = 2});
    int first = connect_client();
    accept_all(1);
    int second = connect_client();
    accept_all(2);
    KVR_LIST_FOREACH (link, &server.listener.idle)
        KVR_LIST_ENTRY(link, struct kvr_client, link)->since_ns -= 2000000000u;
    say(first, get, sizeof get - 1);
    wait_readable(KVR_LIST_ENTRY(server.listener.idle.next, struct kvr_client, link)->stream.fd);
    int third = connect_client();
    run_until(server.rig, server.listener.counters.made_room == 1);
    wait_for_requests(1);
    answer_behind(first, NULL, 0);
    expect_answers(first, 1);
    char byte;
    wait_readable(second);
    assert_int_equal(recv(second, &byte, 1, MSG_DONTWAIT), 0); /* closed */
    assert_int_equal(recv(third, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    close(first);
    close(second);
    close(third);
    end_server();
}

static void stop_listening(struct owner *driver)
{
    (void)driver;
    int read = 0;
    KVR_LIST_FOREACH (link, &server.listener.idle)
        read += KVR_LIST_ENTRY(link, struct kvr_client, link)->stream.read;
    assert_int_equal(read, 3);
    kvr_listener_stop(&server.listener);
}

/* A shutdown looks at idle clients one by one; each whose request is here gets its answer. */
static void a_shutdown_answers_what_was_read(void **state)
{
    (void)state;
    new_server(NULL);
    int fds[3];
    for (uint32_t i = 0; i < 3; i++) {
        fds[i] = connect_client();
        accept_all(i + 1);
    }
    server.rig->owners[0].on_data = stop_listening;
    peer_says(&server.rig->owners[0], "stop");
    for (int i = 0; i < 3; i++)
        say(fds[i], get, sizeof get - 1);
    KVR_LIST_FOREACH (link, &server.listener.idle)
        wait_readable(KVR_LIST_ENTRY(link, struct kvr_client, link)->stream.fd);
    busy_turn(server.rig);
    assert_int_equal(server.waits, 3);
    answer_all(NULL);
    for (int i = 0; i < 3; i++) {
        expect_answers(fds[i], 1);
        close(fds[i]);
    }
    end_server();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_of_known_length),
        cmocka_unit_test(chunked_bodies),
        cmocka_unit_test(bodies_that_wait_to_be_told),
        cmocka_unit_test(bodies_larger_than_a_read),
        cmocka_unit_test(room_is_not_made_by_one_that_has_asked),
        cmocka_unit_test(a_shutdown_answers_what_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
