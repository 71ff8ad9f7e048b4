/* core/net/upstream in a busy loop: what an idle connection has sent is known before it is looked
 * at, and what a lost one had answered comes before its loss. */
#include "stream_fixture.h"

#include "upstream.h"

struct call {
    struct kvr_upstream *upstream;
    bool acquired;
    bool ready; /* at once */
    int connected;
    struct kvr_buffer got;
    int failed; /* uv code */
    bool stale;
};

static struct {
    struct rig *rig;
    struct kvr_upstream_pool pool;
    int listening;
    struct call *next; /* the driver acquires for it */
    int idle_fds[4];   /* our ends of idle connections, by when they were opened */
    bool sees_bytes;   /* by then the connection used last has sent something */
    bool closed;
} world;

static void on_ready(void *user)
{
    struct call *call = user;
    call->connected++;
}

static void on_sent(void *user)
{
    (void)user;
}

static void on_bytes(void *user, char *data, size_t len)
{
    struct call *call = user;
    kvr_buffer_append(&call->got, data, len);
}

static void on_failed(void *user, int uv_code, bool stale)
{
    struct call *call = user;
    call->upstream = NULL;
    call->failed = uv_code;
    call->stale = stale;
}

static const struct kvr_upstream_events call_events = {
    .on_ready = on_ready, .on_sent = on_sent, .on_bytes = on_bytes, .on_failed = on_failed};

static void acquire(struct call *call)
{
    int uv_code = 0;
    call->upstream = kvr_upstream_acquire(&world.pool, call, false, &call->ready, &uv_code);
    assert_non_null(call->upstream);
    call->acquired = true;
}

static void acquire_next(struct owner *driver)
{
    (void)driver;
    world.sees_bytes = !kvr_list_empty(&world.pool.idle) &&
                       KVR_LIST_ENTRY(world.pool.idle.next, struct kvr_upstream, link)->stream.read;
    acquire(world.next);
}

static void on_pool_closed(struct kvr_upstream_pool *pool)
{
    (void)pool;
    world.closed = true;
}

static void new_world(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    world.rig = new_rig(1);
    world.rig->owners[0].on_data = acquire_next;
    world.closed = false;
    world.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(world.listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(world.listening, 8), 0);
    assert_int_equal(getsockname(world.listening, (struct sockaddr *)&address, &len), 0);
    kvr_upstream_pool_init(&world.pool, &world.rig->net.loop, &call_events,
                           (struct sockaddr *)&address);
    world.pool.idle_ns = UINT64_MAX;
    world.pool.on_closed = on_pool_closed;
}

static void end_world(void)
{
    kvr_upstream_pool_close(&world.pool);
    run_until(world.rig, world.closed);
    close(world.listening);
    end_rig(world.rig);
}

/* Connects for the call; returns the replica's end. */
static int connected(struct call *call)
{
    run_until(world.rig, call->connected);
    return accept4(world.listening, NULL, NULL, SOCK_CLOEXEC);
}

static void assert_closed(int fd)
{
    char byte;
    wait_readable(fd);
    ssize_t len = recv(fd, &byte, 1, 0);
    assert_true(len == 0 || (len < 0 && errno == ECONNRESET));
    close(fd);
}

/* So many connections, opened and idle; the last is the one used last. */
static void make_idle(int *fds, int count)
{
    struct call calls[4] = {0};
    for (int i = 0; i < count; i++) {
        acquire(&calls[i]);
        fds[i] = connected(&calls[i]);
    }
    for (int i = 0; i < count; i++)
        kvr_upstream_release(calls[i].upstream);
    for (int i = 0; i < count; i++)
        world.idle_fds[i] = calls[i].upstream->stream.fd;
    assert_int_equal(world.pool.idle_count, count);
    busy_turn(world.rig);
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Answers the call, which gets that and nothing else. */
static void answer(int fd, struct call *call)
{
    say(fd, "answer");
    run_until(world.rig, call->got.len > 0);
    assert_true(kvr_slice_is(kvr_buffer_slice(&call->got), "answer"));
}

/* What it has sent answers no request, and would be taken for the answer to the next. */
static void one_that_sent_something_unasked_is_not_handed_out(void **state)
{
    (void)state;
    for (int bytes_first = 0; bytes_first < 2; bytes_first++) {
        int idle, fresh;
        struct call call = {0};
        new_world();
        make_idle(&idle, 1);
        world.next = &call;
        if (!bytes_first)
            peer_says(&world.rig->owners[0], "go");
        say(idle, "HTTP/1.1 408 Request Timeout\r\n\r\n");
        wait_readable(world.idle_fds[0]);
        if (bytes_first)
            peer_says(&world.rig->owners[0], "go");
        busy_turn(world.rig);
        assert_true(call.acquired);
        assert_int_equal(world.sees_bytes, !bytes_first);
        assert_false(call.ready);
        fresh = connected(&call);
        assert_closed(idle);
        answer(fresh, &call);
        assert_int_equal(world.pool.reused, 0);
        kvr_upstream_drop(call.upstream);
        close(fresh);
        kvr_buffer_deinit(&call.got);
        end_world();
    }
}

static void the_next_one_is_handed_out_instead(void **state)
{
    (void)state;
    int idle[3];
    struct call call = {0};
    new_world();
    make_idle(idle, 3); /* the list begins with the third */
    world.next = &call;
    peer_says(&world.rig->owners[0], "go");
    say(idle[2], "unasked");
    say(idle[1], "unasked");
    wait_readable(world.idle_fds[2]);
    wait_readable(world.idle_fds[1]);
    busy_turn(world.rig);
    assert_true(world.sees_bytes && call.ready);
    assert_closed(idle[2]);
    assert_closed(idle[1]);
    answer(idle[0], &call);
    kvr_upstream_drop(call.upstream);
    close(idle[0]);
    kvr_buffer_deinit(&call.got);
    end_world();
}

/* A replica that answers before it has read all of a large request, and closes: in one turn there
 * are bytes to read and a write that fails. Its connection is not one that was dead before, whose
 * request may be sent again. */
static void one_that_has_answered_is_not_stale(void **state)
{
    (void)state;
    int idle;
    struct call call = {0};
    new_world();
    make_idle(&idle, 1);
    acquire(&call);
    assert_true(call.ready);
    uv_buf_t much = uv_buf_init((char *)letters(0, 190000), 190000);
    while (!kvr_stream_unsent(&call.upstream->stream))
        kvr_upstream_write(call.upstream, &much, 1);
    busy_turn(world.rig);
    say(idle, "HTTP/1.1 413 Content Too Large\r\n\r\n");
    struct linger reset = {1, 0};
    setsockopt(idle, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(idle);
    run_until(world.rig, call.failed);
    assert_true(call.failed < 0 && !call.stale);
    assert_true(
        kvr_slice_is(kvr_buffer_slice(&call.got), "HTTP/1.1 413 Content Too Large\r\n\r\n"));
    assert_int_equal(world.pool.stale, 0);
    kvr_buffer_deinit(&call.got);
    end_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_sent_something_unasked_is_not_handed_out),
        cmocka_unit_test(the_next_one_is_handed_out_instead),
        cmocka_unit_test(one_that_has_answered_is_not_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
