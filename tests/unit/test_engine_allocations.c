/* core/engine allocates nothing once it is warm: this program's malloc counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine_driver.h"

static uint64_t allocations;

/* Sanitizers bring their own allocator, which must not be replaced. */
#if defined(__SANITIZE_ADDRESS__)
#define COUNTS false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTS false
#endif
#endif

#ifndef COUNTS
#define COUNTS true
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    allocations++;
    return __libc_realloc(memory, size);
}
#endif

static void test_warm_engine(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct kvr_profile profile = *kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
        profile.blocks = 1500; /* so that it also preempts and blocks */
        struct loop loop;
        loop_init(
            &loop,
            &(struct kvr_engine_options){
                .profile = &profile, .seed = 3, .token_events = way == 1, .kv_events = way == 2},
            40);
        loop.turns = 2;
        loop.rows_capacity = 1u << 16; /* the driver's own */
        loop.rows = kvr_alloc(loop.rows_capacity * sizeof *loop.rows);
        loop_run(&loop, UINT64_C(400000000000));
        uint64_t before = allocations;
        uint32_t rows = loop.rows_len;
        struct kvr_tokens tokens;
        kvr_tokens_init(&tokens, profile.bytes_per_token);
        kvr_tokens_begin(&tokens, 0, false);
        kvr_tokens_segment(&tokens, 1, 8192);
        uint64_t own = allocations - before;
        loop_go(&loop, &tokens, UINT64_C(800000000000));
        if (COUNTS) {
            assert_true(own > 0); /* the counter counts */
            assert_int_equal(allocations - before, own);
        }
        assert_true(loop.rows_len > rows + 500);
        assert_true(loop.engine.counters.preemptions > 0);
        kvr_tokens_deinit(&tokens);
        loop_deinit(&loop);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
