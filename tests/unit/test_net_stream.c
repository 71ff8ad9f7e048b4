/* core/net/stream, inbox and outbox: whatever a busy loop reads together and writes together, each
 * stream's bytes come whole, once and in order, before its end, and to nobody after it has closed.
 *
 * The other end of each stream is a plain descriptor. All of them are written to, then the loop
 * makes one turn, which finds them readable in that order. */
#include "net_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rng.h"
#include "stream.h"

#define OWNERS_MAX 80

struct owner {
    struct kvr_stream stream;
    struct rig *rig;
    int peer;
    struct kvr_buffer got;
    struct kvr_buffer sent; /* by the peer; or to it, where a test is about writing */
    size_t pieces;          /* calls of on_data */
    int end_code;           /* 0: open */
    bool closed;
    char *own;    /* memory for its next bytes, or NULL */
    size_t room;  /* there */
    size_t owned; /* bytes that came there */
    void (*on_data)(struct owner *owner);
};

struct rig {
    struct net_fixture net;
    struct owner owners[OWNERS_MAX];
    int count;
    char order[64]; /* who was given data, as letters: owner 0 is 'a' */
    size_t len;
};

static struct owner *owner_of(struct kvr_stream *stream)
{
    return KVR_LIST_ENTRY(stream, struct owner, stream);
}

static size_t on_space(struct kvr_stream *stream, char **memory)
{
    struct owner *owner = owner_of(stream);
    assert_false(stream->closing);
    *memory = owner->own;
    return owner->own ? owner->room : 0;
}

static void on_data(struct kvr_stream *stream, char *data, size_t len)
{
    struct owner *owner = owner_of(stream);
    struct rig *rig = owner->rig;
    assert_false(stream->closing);
    assert_int_equal(owner->end_code, 0);
    assert_true(len > 0);
    kvr_buffer_append(&owner->got, data, len);
    owner->pieces++;
    if (data == owner->own) {
        owner->owned += len;
        owner->own = NULL;
    }
    if (rig->len + 1 < sizeof rig->order)
        rig->order[rig->len++] = (char)('a' + (owner - rig->owners));
    if (owner->on_data)
        owner->on_data(owner);
}

static void on_end(struct kvr_stream *stream, int uv_code)
{
    struct owner *owner = owner_of(stream);
    assert_false(stream->closing);
    assert_int_equal(owner->end_code, 0);
    owner->end_code = uv_code;
    kvr_stream_close(stream);
}

static void on_closed(struct kvr_stream *stream)
{
    struct owner *owner = owner_of(stream);
    assert_false(owner->closed);
    owner->closed = true;
}

static const struct kvr_stream_events events = {
    .on_space = on_space, .on_data = on_data, .on_end = on_end, .on_closed = on_closed};

static void adopt(struct rig *rig, int ours, int peer)
{
    assert_true(rig->count < OWNERS_MAX);
    struct owner *owner = &rig->owners[rig->count++];
    owner->rig = rig;
    owner->peer = peer;
    kvr_stream_init(&owner->stream, &rig->net.loop, &events);
    assert_int_equal(uv_tcp_open(&owner->stream.tcp, ours), 0);
    kvr_stream_start(&owner->stream);
}

static void busy_turn(struct rig *rig)
{
    net_make_busy(&rig->net.loop);
    uv_run(&rig->net.uv, UV_RUN_NOWAIT);
}

static struct rig *new_rig(int count)
{
    struct rig *rig = calloc(1, sizeof *rig);
    net_fixture_init(&rig->net);
    for (int i = 0; i < count; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
                         0);
        adopt(rig, ends[0], ends[1]);
    }
    busy_turn(rig); /* from now on they are found in the order in which they become readable */
    return rig;
}

/* A pair over loopback: unlike the others it can be reset, and its buffers are small. */
static void add_tcp(struct rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int room = 4096;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &len), 0);
    int ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    assert_int_equal(connect(ours, (struct sockaddr *)&address, sizeof address), 0);
    int peer = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(peer >= 0);
    close(listening);
    adopt(rig, ours, peer);
}

static void end_rig(struct rig *rig)
{
    for (int i = 0; i < rig->count; i++)
        kvr_stream_close(&rig->owners[i].stream);
    for (int i = 0; i < 3; i++)
        busy_turn(rig);
    for (int i = 0; i < rig->count; i++) {
        struct owner *owner = &rig->owners[i];
        assert_true(owner->closed);
        if (owner->peer >= 0)
            close(owner->peer);
        kvr_buffer_deinit(&owner->got);
        kvr_buffer_deinit(&owner->sent);
    }
    net_fixture_deinit(&rig->net);
    free(rig);
}

/* ---- what the peers do ---- */

static const char *letters(size_t at, size_t len)
{
    static char text[200000];
    static const size_t round = 26 * 251;
    if (!text[0])
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)('a' + (i + i / 251) % 26);
    assert_true(at % round + len <= sizeof text);
    return text + at % round;
}

/* As much of it as its socket takes. */
static void peer_sends(struct owner *owner, size_t len)
{
    const char *bytes = letters(owner->sent.len, len);
    ssize_t sent = send(owner->peer, bytes, len, MSG_NOSIGNAL);
    if (sent > 0)
        kvr_buffer_append(&owner->sent, bytes, (size_t)sent);
}

static void peer_says(struct owner *owner, const char *text)
{
    assert_int_equal(send(owner->peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    kvr_buffer_append_text(&owner->sent, text);
}

static void peer_takes(struct owner *owner, size_t at_most)
{
    char bytes[32768];
    size_t want = at_most < sizeof bytes ? at_most : sizeof bytes;
    ssize_t len = recv(owner->peer, bytes, want, 0);
    if (len > 0)
        kvr_buffer_append(&owner->got, bytes, (size_t)len);
}

static void peer_resets(struct owner *owner)
{
    struct linger reset = {1, 0};
    setsockopt(owner->peer, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(owner->peer);
    owner->peer = -1;
}

static bool has_all(const struct owner *owner)
{
    return kvr_slice_equal(kvr_buffer_slice(&owner->got), kvr_buffer_slice(&owner->sent));
}

static void assert_prefix(const struct owner *owner)
{
    assert_true(owner->got.len <= owner->sent.len);
    if (owner->got.len)
        assert_memory_equal(owner->got.data, owner->sent.data, owner->got.len);
}

/* ---- reading ---- */

static void expect_the_others_read(struct owner *owner)
{
    for (int i = 0; i < owner->rig->count; i++)
        assert_int_equal(owner->rig->owners[i].stream.read, &owner->rig->owners[i] != owner);
}

static void all_are_read_before_one_is_served(void **state)
{
    (void)state;
    struct rig *rig = new_rig(5);
    rig->owners[4].on_data = expect_the_others_read;
    for (int i = 4; i >= 0; i--)
        peer_says(&rig->owners[i], "hello");
    busy_turn(rig);
    assert_string_equal(rig->order, "edcba");
    assert_int_equal(rig->net.loop.inbox.count, 0);
    for (int i = 0; i < 5; i++)
        assert_true(has_all(&rig->owners[i]));
    end_rig(rig);
}

/* Against a naive model: what a peer has sent, in one buffer. Random sizes, some far larger than a
 * read and some at its edge, owners that pause, resume and offer memory of their own, busy turns
 * and others. */
static void bytes_come_whole_and_in_order(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    struct rig *rig = new_rig(OWNERS_MAX);
    static char memory[OWNERS_MAX][40000];
    assert_true(OWNERS_MAX > 2 * KVR_INBOX_READS);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < OWNERS_MAX; i++) {
            struct owner *owner = &rig->owners[i];
            uint64_t what = kvr_rng_below(&rng, 16);
            if (what < 6)
                peer_sends(owner, 1 + kvr_rng_below(&rng, 3000));
            else if (what == 6)
                peer_sends(owner, KVR_INBOX_ROOM - 1 + kvr_rng_below(&rng, 3));
            else if (what == 7)
                peer_sends(owner, 1 + kvr_rng_below(&rng, 100000));
            else if (what == 8)
                kvr_stream_pause(&owner->stream);
            else if (what < 12)
                kvr_stream_resume(&owner->stream);
            if (what == 15 && !owner->own) {
                owner->own = memory[i];
                owner->room = 1 + kvr_rng_below(&rng, sizeof memory[i]);
            }
        }
        if (kvr_rng_below(&rng, 8))
            busy_turn(rig);
        else
            uv_run(&rig->net.uv, UV_RUN_NOWAIT);
        for (int i = 0; i < OWNERS_MAX; i++)
            assert_prefix(&rig->owners[i]);
    }
    for (int i = 0; i < OWNERS_MAX; i++)
        kvr_stream_resume(&rig->owners[i].stream);
    for (int turn = 0; turn < 20; turn++)
        busy_turn(rig);
    size_t owned = 0;
    for (int i = 0; i < OWNERS_MAX; i++) {
        assert_true(has_all(&rig->owners[i]));
        assert_int_equal(rig->owners[i].stream.bytes_in, rig->owners[i].sent.len);
        owned += rig->owners[i].owned;
    }
    assert_true(owned > 0);
    end_rig(rig);
}

static void close_the_others(struct owner *owner)
{
    for (int i = 1; i < owner->rig->count; i++) {
        assert_true(owner->rig->owners[i].stream.read);
        kvr_stream_close(&owner->rig->owners[i].stream);
    }
}

static void one_closed_by_another_gets_nothing_more(void **state)
{
    (void)state;
    struct rig *rig = new_rig(6);
    rig->owners[0].on_data = close_the_others;
    for (int i = 0; i < 6; i++)
        peer_says(&rig->owners[i], "hello");
    busy_turn(rig);
    assert_string_equal(rig->order, "a");
    for (int i = 1; i < 6; i++) {
        assert_int_equal(rig->owners[i].stream.bytes_in, 0);
        assert_true(rig->owners[i].closed);
        assert_int_equal(rig->owners[i].end_code, 0);
    }
    end_rig(rig);
}

static int foreign = -1; /* a descriptor of somebody else's, under the number of a closed stream */

static void close_the_last(struct owner *owner)
{
    struct owner *last = &owner->rig->owners[owner->rig->count - 1];
    int number = last->stream.fd;
    int ends[2];
    assert_false(last->stream.read);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(write(ends[1], "secret", 6), 6);
    kvr_stream_close(&last->stream);
    foreign = dup2(ends[0], number);
    assert_int_equal(foreign, number);
    close(ends[0]);
    close(ends[1]);
}

/* The inbox is full, so all in it are served for the sake of the next: the first of them closes
 * that one, and its descriptor's number is another's at once. */
static void one_closed_to_make_room_for_it_is_not_read(void **state)
{
    (void)state;
    struct rig *rig = new_rig(KVR_INBOX_READS + 1);
    rig->owners[0].on_data = close_the_last;
    for (int i = 0; i <= KVR_INBOX_READS; i++)
        peer_says(&rig->owners[i], "hello");
    busy_turn(rig);
    const struct owner *last = &rig->owners[KVR_INBOX_READS];
    assert_int_equal(last->pieces, 0);
    assert_int_equal(last->end_code, 0);
    assert_int_equal(rig->owners[KVR_INBOX_READS - 1].pieces, 1);
    char bytes[16];
    assert_int_equal(recv(foreign, bytes, sizeof bytes, MSG_DONTWAIT), 6);
    close(foreign);
    end_rig(rig);
}

static void pause_the_second(struct owner *owner)
{
    kvr_stream_pause(&owner->rig->owners[1].stream);
}

static void a_paused_one_gets_no_more_than_was_read(void **state)
{
    (void)state;
    struct rig *rig = new_rig(2);
    struct owner *second = &rig->owners[1];
    rig->owners[0].on_data = pause_the_second;
    peer_says(&rig->owners[0], "hello");
    peer_sends(second, 100000);
    assert_true(second->sent.len > 2 * KVR_INBOX_ROOM);
    for (int turn = 0; turn < 3; turn++)
        busy_turn(rig);
    assert_int_equal(second->got.len, KVR_INBOX_ROOM);
    kvr_stream_resume(&second->stream);
    busy_turn(rig);
    assert_true(has_all(second));
    end_rig(rig);
}

static void read_the_third(struct owner *owner)
{
    struct owner *third = &owner->rig->owners[2];
    assert_true(third->stream.read);
    kvr_stream_read(&third->stream);
    assert_false(third->stream.read);
    assert_true(has_all(third));
    kvr_stream_read(&third->stream); /* there is no more */
    if (owner->pieces == 1)
        assert_string_equal(owner->rig->order, "ac"); /* nobody else, yet */
}

/* What is asked for by kvr_stream_read comes at once and not again, and no other's with it: whoever
 * walks a list of streams to read each must not see the others move. */
static void one_is_read_before_its_turn(void **state)
{
    (void)state;
    struct rig *rig = new_rig(4);
    rig->owners[0].on_data = read_the_third;
    for (int i = 0; i < 4; i++)
        peer_says(&rig->owners[i], "hello");
    busy_turn(rig);
    assert_string_equal(rig->order, "acbd");
    for (int i = 0; i < 4; i++)
        assert_true(has_all(&rig->owners[i]));

    peer_says(&rig->owners[0], "again"); /* and what is still in the socket with it */
    peer_sends(&rig->owners[2], 3 * KVR_INBOX_ROOM);
    busy_turn(rig);
    assert_true(has_all(&rig->owners[2]));
    end_rig(rig);
}

static void data_comes_before_its_end(void **state)
{
    (void)state;
    struct rig *rig = new_rig(40);
    for (int i = 0; i < 40; i++) {
        peer_sends(&rig->owners[i], i % 2 ? KVR_INBOX_ROOM : 100);
        shutdown(rig->owners[i].peer, SHUT_WR);
    }
    for (int turn = 0; turn < 3; turn++)
        busy_turn(rig);
    for (int i = 0; i < 40; i++) {
        assert_true(has_all(&rig->owners[i]));
        assert_int_equal(rig->owners[i].end_code, UV_EOF);
    }
    end_rig(rig);
}

/* The peer answers without having read all, and goes: in one turn there are bytes to read and a
 * write that fails. The bytes were first. */
static void data_comes_before_a_failed_write(void **state)
{
    (void)state;
    struct rig *rig = new_rig(1);
    add_tcp(rig);
    struct owner *owner = &rig->owners[1];
    uv_buf_t much = uv_buf_init((char *)letters(0, 190000), 190000);
    while (!kvr_stream_unsent(&owner->stream))
        kvr_stream_write(&owner->stream, &much, 1);
    busy_turn(rig);
    assert_true(kvr_stream_unsent(&owner->stream) > 0);
    peer_says(&rig->owners[0], "hello");
    peer_says(owner, "too large");
    peer_resets(owner);
    for (int turn = 0; turn < 100 && !owner->end_code; turn++)
        busy_turn(rig);
    assert_true(has_all(owner));
    assert_true(owner->end_code < 0 && owner->end_code != UV_EOF);
    end_rig(rig);
}

static char place[8];

static void offer_memory(struct owner *owner)
{
    struct owner *second = &owner->rig->owners[1];
    second->own = place;
    second->room = sizeof place;
}

/* An owner's memory is read to at once, past the inbox; what was read before it was offered comes
 * from there all the same. */
static void an_owners_memory_is_read_to(void **state)
{
    (void)state;
    struct rig *rig = new_rig(2);
    struct owner *second = &rig->owners[1];
    offer_memory(&rig->owners[0]);
    for (int i = 0; i < 2; i++)
        peer_says(&rig->owners[i], "12345678");
    busy_turn(rig);
    assert_string_equal(rig->order, "ba"); /* the one in the inbox was later */
    assert_memory_equal(place, "12345678", 8);
    assert_int_equal(second->owned, 8);

    rig->owners[0].on_data = offer_memory;
    peer_says(&rig->owners[0], "offer");
    peer_says(second, "abc");
    busy_turn(rig);
    assert_true(has_all(second));
    assert_int_equal(second->owned, 8); /* not there */
    peer_says(second, "defgh");
    busy_turn(rig);
    assert_true(has_all(second));
    assert_memory_equal(place, "defgh", 5);
    end_rig(rig);
}

/* ---- writing ---- */

static void writes(struct owner *owner, size_t len)
{
    size_t at = owner->sent.len;
    size_t half = len / 2;
    uv_buf_t bufs[2] = {
        uv_buf_init((char *)letters(at, half), (unsigned)half),
        uv_buf_init((char *)letters(at + half, len - half), (unsigned)(len - half))};
    kvr_stream_write(&owner->stream, half ? bufs : bufs + 1, half ? 2 : 1);
    kvr_buffer_append(&owner->sent, letters(at, len), len);
}

/* Small writes wait for the end of the turn, large ones go at once, and behind what waits of their
 * stream. Peers that read slowly leave some of it unsent. */
static void writes_keep_their_order(void **state)
{
    (void)state;
    struct kvr_rng rng;
    kvr_rng_init(&rng, 11);
    struct rig *rig = new_rig(OWNERS_MAX);
    size_t unsent = 0;
    for (int round = 0; round < 120; round++) {
        busy_turn(rig);
        for (int n = 0; n < 200; n++) {
            struct owner *owner = &rig->owners[kvr_rng_below(&rng, OWNERS_MAX)];
            uint64_t what = kvr_rng_below(&rng, 20);
            if (owner->sent.len - owner->got.len < 600000 && what < 12)
                writes(owner, 1 + kvr_rng_below(&rng, 400));
            else if (owner->sent.len - owner->got.len < 600000 && what == 12)
                writes(owner, KVR_OUTBOX_WRITE_MAX - 1 + kvr_rng_below(&rng, 3));
            else if (owner->sent.len - owner->got.len < 600000 && what == 13)
                writes(owner, 1 + kvr_rng_below(&rng, 60000));
            else if (what == 14)
                kvr_stream_flush(&owner->stream);
            else
                peer_takes(owner, 20000);
            unsent += kvr_stream_unsent(&owner->stream) > 0;
            assert_prefix(owner);
        }
    }
    assert_true(unsent > 0);
    for (int turn = 0; turn < 200; turn++) {
        busy_turn(rig);
        for (int i = 0; i < OWNERS_MAX; i++)
            peer_takes(&rig->owners[i], SIZE_MAX);
    }
    for (int i = 0; i < OWNERS_MAX; i++) {
        assert_true(has_all(&rig->owners[i]));
        assert_int_equal(rig->owners[i].stream.bytes_out, rig->owners[i].sent.len);
    }
    end_rig(rig);
}

/* Nothing small leaves before the end of a busy turn, but with a FIN, a flush or a larger write. */
static void small_writes_wait_for_the_end_of_a_busy_turn(void **state)
{
    (void)state;
    struct rig *rig = new_rig(3);
    struct owner *one = &rig->owners[0], *two = &rig->owners[1], *three = &rig->owners[2];
    busy_turn(rig);
    writes(one, 10);
    writes(two, 10);
    peer_takes(one, SIZE_MAX);
    assert_int_equal(one->got.len, 0);
    writes(two, KVR_OUTBOX_WRITE_MAX + 1);
    peer_takes(two, SIZE_MAX);
    assert_true(has_all(two));
    writes(three, 10);
    kvr_stream_close(&three->stream);
    peer_takes(three, SIZE_MAX);
    assert_true(has_all(three));
    writes(one, 10);
    busy_turn(rig);
    peer_takes(one, SIZE_MAX);
    assert_true(has_all(one));
    uv_run(&rig->net.uv, UV_RUN_NOWAIT); /* not busy: at once */
    writes(one, 10);
    peer_takes(one, SIZE_MAX);
    assert_true(has_all(one));
    end_rig(rig);
}

/* ---- time ---- */

/* What is served in a turn had come when its poll returned; what a timer lets happen had not come
 * when some poll returned long before. */
static void a_turn_has_its_own_time(void **state)
{
    (void)state;
    struct rig *rig = new_rig(1);
    peer_says(&rig->owners[0], "hello");
    uint64_t before = kvr_loop_now();
    busy_turn(rig);
    uint64_t turn = kvr_loop_turn_ns(&rig->net.loop);
    assert_true(turn >= before && turn <= kvr_loop_now());
    assert_int_equal(kvr_loop_turn_ns(&rig->net.loop), turn);
    busy_turn(rig); /* brings nothing */
    uint64_t later = kvr_loop_now();
    assert_true(kvr_loop_turn_ns(&rig->net.loop) >= later);
    end_rig(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_read_before_one_is_served),
        cmocka_unit_test(bytes_come_whole_and_in_order),
        cmocka_unit_test(one_closed_by_another_gets_nothing_more),
        cmocka_unit_test(one_closed_to_make_room_for_it_is_not_read),
        cmocka_unit_test(a_paused_one_gets_no_more_than_was_read),
        cmocka_unit_test(one_is_read_before_its_turn),
        cmocka_unit_test(data_comes_before_its_end),
        cmocka_unit_test(data_comes_before_a_failed_write),
        cmocka_unit_test(an_owners_memory_is_read_to),
        cmocka_unit_test(writes_keep_their_order),
        cmocka_unit_test(small_writes_wait_for_the_end_of_a_busy_turn),
        cmocka_unit_test(a_turn_has_its_own_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
