/* core/net/outbox: whatever a busy loop writes together, each stream's bytes leave whole and in
 * order, the small ones at the end of the turn. */
#include "rng.h"
#include "stream_fixture.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_keep_their_order),
        cmocka_unit_test(small_writes_wait_for_the_end_of_a_busy_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
