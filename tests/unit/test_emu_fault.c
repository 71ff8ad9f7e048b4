/* core/emu/emu_fault and emu_text: every fault reads back as it is written, and every cut of a text
 * falls between characters. */
#include "emu_fault.h"
#include "emu_text.h"
#include "rng.h"
#include "unit.h"
#include "utf8.h"

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "none",
        "stall",
        "stall;after=3",
        "stall;at=body;ms=500",
        "stall;ms=0.25;path=/health",
        "reset;after=3;in=utf8",
        "close;bytes=100",
        "cut;after=0;in=newline;every=1;ms=5",
        "drip;bytes=1;ms=2",
        "drip;at=body;bytes=7",
        "error;after=2",
        "status;code=503;retry_after=7;times=2;path=*;marker=a=b c",
        "huge;bytes=20000000;sized=1",
        "race;orderly=1",
        "refuse;ms=30",
        "idle;ms=40",
        "slow;factor=2.5",
        "restart;orderly=1;ms=80",
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct kvr_emu_fault fault;
        struct kvr_emu_fault again;
        struct kvr_error error;
        struct kvr_buffer out = {0};
        assert_int_equal(kvr_emu_fault_parse(kvr_slice_of(faults[i]), &fault, &error), 0);
        kvr_emu_fault_write(&fault, &out);
        assert_int_equal(kvr_emu_fault_parse(kvr_buffer_slice(&out), &again, &error), 0);
        assert_memory_equal(&fault, &again, sizeof fault);
        if (fault.kind != KVR_EMU_FAULT_HUGE) /* whose size is also a place */
            assert_true(kvr_slice_is(kvr_buffer_slice(&out), faults[i]));
        kvr_buffer_deinit(&out);
    }
}

static void test_nonsense(void **state)
{
    (void)state;
    static const char *const faults[] = {"",
                                         "stal",
                                         "stall;after",
                                         "stall;after=-1",
                                         "stall;after=1x",
                                         "stall;at=",
                                         "stall;in=none",
                                         "status",
                                         "status;code=99",
                                         "huge",
                                         "idle",
                                         "slow",
                                         "slow;factor=0",
                                         "cut",
                                         "drip;bytes=0",
                                         "stall;=1",
                                         "stall;ms=",
                                         "status;code=503;x=1"};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct kvr_emu_fault fault;
        struct kvr_error error = {0};
        assert_int_equal(kvr_emu_fault_parse(kvr_slice_of(faults[i]), &fault, &error),
                         KVR_E_INVALID);
        assert_true(error.text[0]);
    }
    static const char key[] = "stall;marker=";
    char text[KVR_EMU_FAULT_TEXT_MAX + 32];
    struct kvr_emu_fault fault;
    memset(text, 'x', sizeof text);
    memcpy(text, key, strlen(key));
    assert_int_equal(kvr_emu_fault_parse(kvr_slice_make(text, sizeof text), &fault, NULL),
                     KVR_E_INVALID);
}

static bool take(struct kvr_emu_faults *faults, const char *path, const char *body, bool generates,
                 bool reused)
{
    struct kvr_emu_fault fault;
    return kvr_emu_faults_take(faults, kvr_slice_of(path), kvr_slice_of(body), generates, reused,
                               &fault);
}

static void add(struct kvr_emu_faults *faults, const char *text)
{
    struct kvr_emu_fault fault;
    struct kvr_error error;
    assert_int_equal(kvr_emu_fault_parse(kvr_slice_of(text), &fault, &error), 0);
    assert_int_equal(kvr_emu_faults_add(faults, &fault, &error), 0);
}

static void test_which_requests(void **state)
{
    (void)state;
    struct kvr_emu_faults faults = {0};
    assert_false(take(&faults, "/v1/completions", "", true, false));
    add(&faults, "stall;marker=XY;times=1");
    assert_false(take(&faults, "/v1/completions", "xXxY", true, false));
    assert_false(take(&faults, "/health", "XY", false, false));
    assert_true(take(&faults, "/v1/completions", "aXYb", true, false));
    assert_false(take(&faults, "/v1/completions", "aXYb", true, false)); /* used up */
    assert_int_equal(faults.len, 0);
    add(&faults, "race");
    add(&faults, "stall;path=/health");
    add(&faults, "idle;ms=3"); /* no request's */
    assert_false(take(&faults, "/v1/completions", "", true, false));
    assert_true(take(&faults, "/v1/completions", "", true, true));
    assert_true(take(&faults, "/health", "", false, true));
    assert_int_equal(faults.committed, 3);
    while (faults.len < KVR_EMU_FAULTS_MAX)
        add(&faults, "stall");
    struct kvr_error error;
    assert_int_equal(kvr_emu_faults_add(&faults, &faults.items[0], &error), KVR_E_LIMIT);
}

static void test_text(void **state)
{
    (void)state;
    enum { LEN = 600 };
    struct kvr_rng rng;
    kvr_rng_init(&rng, 5);
    for (int alphabet = KVR_EMU_ASCII; alphabet <= KVR_EMU_MIXED; alphabet++) {
        enum kvr_emu_alphabet a = (enum kvr_emu_alphabet)alphabet;
        char whole[LEN];
        kvr_emu_text_bytes(a, 42, 0, LEN, whole);
        uint64_t wide = 0;
        for (size_t at = 0; at < LEN;) {
            size_t len = kvr_utf8_length(kvr_slice_make(whole + at, LEN - at));
            assert_true(len > 0);
            assert_int_equal(kvr_emu_text_cut(a, 42, at), at);
            for (size_t inside = 1; inside < len; inside++)
                assert_int_equal(kvr_emu_text_cut(a, 42, at + inside), at);
            wide += len > 1;
            at += len;
        }
        assert_true(a == KVR_EMU_ASCII ? wide == 0 : wide >= LEN / 4);
        for (int i = 0; i < 200; i++) { /* any range alone */
            size_t from = kvr_rng_below(&rng, LEN);
            size_t len = kvr_rng_below(&rng, LEN - from + 1);
            char part[LEN];
            kvr_emu_text_bytes(a, 42, from, len, part);
            assert_memory_equal(part, whole + from, len);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_which_requests),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
