/* The names of the scripts that are there: those of NAME.lua in the policies folder, and in its
 * folder spill/ for spill rules. For people: a script is put in force by its path, without this. */
#ifndef KVR_SCRIPT_NAMES_H
#define KVR_SCRIPT_NAMES_H

#include "error.h"
#include "slot.h"

#define KVR_SCRIPT_NAMES_MAX 128 /* further ones are not told of */

struct kvr_script_names {
    uint32_t count;
    char list[KVR_SCRIPT_NAMES_MAX][KVR_SCRIPT_NAME_MAX]; /* ascending */
};

/* Empty when the folder cannot be read. `dir` is the policies folder. Blocks for as long as that
 * takes, as reading a script does. */
void kvr_script_names_read(struct kvr_script_names *names, const char *dir,
                           enum kvr_script_kind kind);
/* Why there is no script of this name, and what there is instead. Returns KVR_E_NOT_FOUND. */
int kvr_script_names_miss(const char *dir, enum kvr_script_kind kind, const char *name,
                          struct kvr_error *error);

#endif
