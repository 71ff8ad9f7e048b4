/* The memory of one Lua state: counted and capped. Wraps the allocator that LuaJIT started the
 * state with, which must be in place again when the state is closed, since it frees its arena then.
 */
#ifndef KVR_HEAP_H
#define KVR_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include <lua.h>

struct kvr_heap {
    lua_Alloc allocate; /* LuaJIT's own */
    void *state;        /* of it */
    size_t bytes;       /* in use */
    size_t bytes_max;
    bool hit; /* the cap refused an allocation; cleared by whoever looks */
};

/* From now on `L` allocates through `heap`. A state half made cannot be closed: do this with
 * bytes_max SIZE_MAX for as long as libraries are opened. */
void kvr_heap_attach(struct kvr_heap *heap, lua_State *L, size_t bytes_max);
/* Closes the state. */
void kvr_heap_close(struct kvr_heap *heap, lua_State *L);

#endif
