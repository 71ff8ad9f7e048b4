#include "heap.h"

static void *allocate_capped(void *state, void *block, size_t old_size, size_t new_size)
{
    struct kvr_heap *heap = state;
    if (new_size > old_size && new_size - old_size > heap->bytes_max - heap->bytes) {
        heap->hit = true;
        return NULL;
    }
    void *result = heap->allocate(heap->state, block, old_size, new_size);
    if (result || new_size == 0)
        heap->bytes += new_size - old_size;
    return result;
}

void kvr_heap_attach(struct kvr_heap *heap, lua_State *L, size_t bytes_max)
{
    int kib = lua_gc(L, LUA_GCCOUNT, 0);
    *heap = (struct kvr_heap){.bytes = (size_t)kib * 1024 + (size_t)lua_gc(L, LUA_GCCOUNTB, 0),
                              .bytes_max = bytes_max};
    heap->allocate = lua_getallocf(L, &heap->state);
    lua_setallocf(L, allocate_capped, heap);
}

void kvr_heap_close(struct kvr_heap *heap, lua_State *L)
{
    lua_setallocf(L, heap->allocate, heap->state);
    lua_close(L);
}
