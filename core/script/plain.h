/* Plain values (booleans, numbers, strings, and tables of them) carried from one VM to another as
 * bytes, so that what P.export returned outlives its VM. Depth and size are capped; anything else
 * than a plain value raises a Lua error that says where it was found. */
#ifndef KVR_PLAIN_H
#define KVR_PLAIN_H

#include <lua.h>

#include "buffer.h"

#define KVR_PLAIN_DEPTH_MAX 8
#define KVR_PLAIN_BYTES_MAX (1u << 20)

/* Appends the value at stack index `at`. Throws: call it protected; `out` belongs to the caller. */
void kvr_plain_write(lua_State *L, int at, struct kvr_buffer *out);
/* Pushes the value that was written. Throws only for want of memory. */
void kvr_plain_push(lua_State *L, struct kvr_slice bytes);

#endif
