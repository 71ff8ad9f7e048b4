/* What a script can call in C: orders and scans of rows, the key windows, numbers that are the same
 * on any machine. Each is a leaf (guard.h): it may be left anywhere. sandbox.lua wraps them. */
#ifndef KVR_HELPERS_H
#define KVR_HELPERS_H

#include "vm.h"

/* Pushes a table of light userdata by name: these functions, and the views of vm->picture. Throws.
 */
void kvr_helpers_push(lua_State *L, struct kvr_vm *vm);

#endif
