/* Where the files are that come with the binary: the shipped policies, and the Lua library of the
 * laboratory. Beside the binary as installed, or in the sources it was built from. */
#ifndef KVR_HOME_H
#define KVR_HOME_H

#include <limits.h>

#include "error.h"

struct kvr_home {
    char binary[PATH_MAX];   /* this program */
    char policies[PATH_MAX]; /* holds NAME.lua and spill/NAME.lua */
    char library[PATH_MAX];  /* holds kvroute/NAME.lua */
};

/* KVR_E_NOT_FOUND, with what is missing. */
int kvr_home_find(struct kvr_home *home, struct kvr_error *error);
/* The policies alone: who routes needs no library. */
int kvr_home_find_policies(struct kvr_home *home, struct kvr_error *error);

#endif
