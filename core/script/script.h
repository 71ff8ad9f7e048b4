/* One script in one VM: evaluated, its contract checked, its functions at hand. What a call decides
 * is read strictly: anything but nil, a reserved result or the index of an available row is
 * refused. A failed call leaves the reason in vm->error. */
#ifndef KVR_SCRIPT_H
#define KVR_SCRIPT_H

#include "buffer.h"
#include "slot.h"
#include "vm.h"

#define KVR_SCRIPT_REASONS 64 /* different reason strings remembered by address */

/* A Lua string that is kept alive in the VM, so that its address stays its name. */
struct kvr_script_reason {
    const char *text; /* NULL: free */
    uint16_t reason;
};

struct kvr_script {
    enum kvr_script_kind kind;
    struct kvr_vm *vm; /* owned; NULL once left behind */
    struct kvr_script_info info;
    char shown[KVR_SCRIPT_NAME_MAX]; /* what messages call it: the end of its path, or its name */
    bool exports;
    bool imports;
    uint32_t reasons_count;
    struct kvr_script_reason reasons[2 * KVR_SCRIPT_REASONS];
};

struct kvr_script_source {
    enum kvr_script_kind kind;
    struct kvr_slice name; /* empty: what the text says */
    struct kvr_slice path; /* for messages and info; may be empty */
    struct kvr_slice text;
    const struct kvr_script_param *params;
    uint32_t params_count;
};

/* Makes a VM and evaluates the text in it, init included. NULL on failure. */
struct kvr_script *kvr_script_create(const struct kvr_script_source *source,
                                     const struct kvr_vm_options *options, struct kvr_error *error);
/* NULL is allowed. */
void kvr_script_destroy(struct kvr_script *script);

/* pick (preferred is ignored) or spill. 0 and a decision; KVR_E_INVALID: a result that the contract
 * does not allow; else as kvr_vm_call. */
int kvr_script_decide(struct kvr_script *script, uint32_t preferred, struct kvr_decision *decision);
/* Hands picture->observation over; 0 where there is no P.observe. */
int kvr_script_observe(struct kvr_script *script);
/* Appends what P.export returns, as kvr_plain_write does. */
int kvr_script_export(struct kvr_script *script, struct kvr_buffer *out);
int kvr_script_import(struct kvr_script *script, struct kvr_slice state);

#endif
