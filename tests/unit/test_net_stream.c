/* core/net/stream and inbox: whatever a busy loop reads together, each stream's bytes come whole,
 * once and in order, before its end, and to nobody after it has closed. */
#include "rng.h"
#include "stream_fixture.h"

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
    run_until(rig, owner->end_code);
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
        cmocka_unit_test(a_turn_has_its_own_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
