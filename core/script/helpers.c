#include "helpers.h"

#include <string.h>

#include "guard.h"
#include "real.h"

#define LEAF(type, call)                                                                           \
    kvr_guard_enter_leaf();                                                                        \
    type result = call;                                                                            \
    kvr_guard_exit_leaf();                                                                         \
    return result

static uint32_t ring_order(struct kvr_picture *picture, uint32_t key, uint32_t salt, uint32_t limit)
{
    LEAF(uint32_t, kvr_picture_ring_order(picture, key, salt, limit));
}

static uint32_t hrw_order(struct kvr_picture *picture, uint32_t key, uint32_t salt, uint32_t limit)
{
    LEAF(uint32_t, kvr_picture_hrw_order(picture, key, salt, limit));
}

static int32_t least(const struct kvr_picture *picture, uint32_t offset, uint32_t blocks,
                     uint32_t except, uint32_t assigned, double recent_ms)
{
    LEAF(int32_t, kvr_picture_least(picture, offset, blocks, except, assigned, recent_ms));
}

static int32_t nth_available(const struct kvr_picture *picture, uint32_t n)
{
    LEAF(int32_t, kvr_picture_nth_available(picture, n));
}

static int32_t first_available(const struct kvr_picture *picture, uint32_t except)
{
    LEAF(int32_t, kvr_picture_first_available(picture, except));
}

static double share(const struct kvr_picture *picture, uint32_t key)
{
    LEAF(double, kvr_picture_share(picture, key));
}

static double opening_share(const struct kvr_picture *picture, uint32_t blocks)
{
    LEAF(double, kvr_picture_opening_share(picture, blocks));
}

static uint32_t rare_opening(const struct kvr_picture *picture, double share, uint32_t least_blocks)
{
    LEAF(uint32_t, kvr_picture_rare_opening(picture, share, least_blocks));
}

static double exponential(double x)
{
    LEAF(double, kvr_real_exp(x));
}

static double logarithm(double x)
{
    LEAF(double, kvr_real_log(x));
}

static double power(double x, double y)
{
    LEAF(double, kvr_real_pow(x, y));
}

static double random_unit(struct kvr_vm *vm)
{
    LEAF(double, kvr_rng_double(&vm->rng));
}

/* Uniform in 0..bound-1. The sandbox has checked 1 <= bound <= 2^53. */
static double random_below(struct kvr_vm *vm, double bound)
{
    LEAF(double, (double)kvr_rng_below(&vm->rng, (uint64_t)bound));
}

/* Only remembers: no I/O happens while the guard is armed. */
static void log_line(struct kvr_vm *vm, const char *text, size_t len)
{
    kvr_guard_enter_leaf();
    if (len >= sizeof vm->log_text)
        len = sizeof vm->log_text - 1;
    memcpy(vm->log_text, text, len);
    vm->log_text[len] = '\0';
    kvr_vm_one_line(vm->log_text);
    vm->log_lines++;
    kvr_guard_exit_leaf();
}

static void set_pointer(lua_State *L, const char *name, const void *pointer)
{
    lua_pushlightuserdata(L, (void *)(uintptr_t)pointer);
    lua_setfield(L, -2, name);
}

static void set_function(lua_State *L, const char *name, void (*function)(void))
{
    set_pointer(L, name, (const void *)(uintptr_t)function);
}

#define SET_FUNCTION(L, name, function) set_function(L, name, (void (*)(void))(function))

void kvr_helpers_push(lua_State *L, struct kvr_vm *vm)
{
    lua_createtable(L, 0, 32); /* pointers */
    set_pointer(L, "vm", vm);
    set_pointer(L, "picture", vm->picture);
    set_pointer(L, "request", &vm->picture->request);
    set_pointer(L, "view", &vm->picture->view);
    set_pointer(L, "order", &vm->picture->order);
    set_pointer(L, "observation", &vm->picture->observation);
    SET_FUNCTION(L, "ring_order", ring_order);
    SET_FUNCTION(L, "hrw_order", hrw_order);
    SET_FUNCTION(L, "least", least);
    SET_FUNCTION(L, "nth_available", nth_available);
    SET_FUNCTION(L, "first_available", first_available);
    SET_FUNCTION(L, "share", share);
    SET_FUNCTION(L, "opening_share", opening_share);
    SET_FUNCTION(L, "rare_opening", rare_opening);
    SET_FUNCTION(L, "random_unit", random_unit);
    SET_FUNCTION(L, "random_below", random_below);
    SET_FUNCTION(L, "log_line", log_line);
    SET_FUNCTION(L, "exp", exponential);
    SET_FUNCTION(L, "log", logarithm);
    SET_FUNCTION(L, "pow", power);
}
