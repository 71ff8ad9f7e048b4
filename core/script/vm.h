/* One Lua VM: a state with a memory cap, the ABI declared and compared, the sandbox in place, and
 * one way to run code in it: guarded, under pcall, with a traceback. A VM holds one script and
 * dies with it. Only core/script includes this.
 *
 * After KVR_E_RUNAWAY the VM was left in the middle of anything: it is buried by the call that
 * reports it, and its owner must forget the pointer (kvr_vm_destroy knows and does nothing). */
#ifndef KVR_VM_H
#define KVR_VM_H

#include <stdbool.h>
#include <stdint.h>

#include <lua.h>

#include "error.h"
#include "heap.h"
#include "rng.h"
#include "view.h"

#define KVR_VM_MEMORY_DEFAULT (32u << 20)
#define KVR_VM_LOG_MAX        200
#define KVR_VM_ERROR_MAX      400

struct kvr_vm_options {
    struct kvr_picture *picture; /* the memory its script reads; outlives the VM */
    uint64_t seed;               /* of math.random */
    size_t memory_bytes;         /* cap of the Lua heap; 0: KVR_VM_MEMORY_DEFAULT */
    bool counted;                /* instructions are counted against kvr_vm.instructions; the
                                    compiler stays off, since its loops run no hooks */
    int64_t instructions;        /* where they are counted: for the load */
    const char *abi;             /* instead of the compiled-in abi.h: tests of drift */
};

/* What kvr_vm_create left on the Lua stack, for ever. Slots past these belong to script.c. */
enum { KVR_VM_HANDLER = 1, KVR_VM_ADOPT = 2, KVR_VM_BASE = 2 };

struct kvr_vm {
    lua_State *L;
    struct kvr_picture *picture;
    struct kvr_rng rng;
    struct kvr_heap heap;
    bool left;                     /* a guarded call was left: never touch L again */
    int64_t instructions;          /* left to run, where they are counted; set it before a call */
    uint32_t log_lines;            /* log(...) calls since the holder last looked */
    char log_text[KVR_VM_LOG_MAX]; /* the last of them */
    char error[KVR_VM_ERROR_MAX];  /* the last failure, "file:line: what (called from file:line)" */
};

/* Returns NULL when the ABI does not fit or memory is short; the reason is in `error`. */
struct kvr_vm *kvr_vm_create(const struct kvr_vm_options *options, struct kvr_error *error);
/* NULL is allowed. */
void kvr_vm_destroy(struct kvr_vm *vm);

/* Calls the function that lies under `args` arguments on top of the stack. Returns 0 with `results`
 * values on top, or KVR_E_SCRIPT, KVR_E_LIMIT (memory) or KVR_E_RUNAWAY with the reason in
 * vm->error and the function and arguments gone. */
int kvr_vm_call(struct kvr_vm *vm, int args, int results);
/* The same for a C function that gets `argument` as light userdata and may throw. */
int kvr_vm_protect(struct kvr_vm *vm, lua_CFunction function, void *argument);

/* Control characters become spaces: what scripts say must not forge lines of the log. */
void kvr_vm_one_line(char *text);

#endif
