/* What --profile takes: the name of a built-in profile, or the path of a file (it ends in .lua or
 * has a slash). */
#ifndef KVR_PROFILE_OPTION_H
#define KVR_PROFILE_OPTION_H

#include "profile.h"

/* KVR_E_NOT_FOUND with the names there are; KVR_E_IO, KVR_E_INVALID of a file. */
int kvr_profile_option(const char *value, struct kvr_profile *profile,
                       struct kvr_error *error) KVR_MUST_USE;

#endif
