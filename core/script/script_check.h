/* Tries a script before it may decide anything: evaluates it twice in scratch VMs, with every
 * instruction counted, shows it canned pictures of a fleet, and looks at what it answers. What it
 * reaches there is little; what it gets wrong there, it never gets wrong in traffic. */
#ifndef KVR_CHECK_SCRIPT_H
#define KVR_CHECK_SCRIPT_H

#include "script.h"

/* 0, or KVR_E_SCRIPT with the reason: it does not load, breaks the contract of sandbox.lua, does
 * not end, answers what is not allowed or not the same twice from one seed, or cannot take back
 * what it exports. */
int kvr_script_check(const struct kvr_script_source *source, size_t memory_bytes,
                     struct kvr_error *error);

#endif
