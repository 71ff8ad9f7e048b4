/* Profiles as text: the form of core/engine/profiles/NAME.lua, for a user's own machine. Read like
 * a configuration, with key, value and line in what is refused; written by `kvroute calibrate`.
 *
 *   name = "my-card"
 *   step_floor_ms = 7.3    -- where the number comes from */
#ifndef KVR_PROFILE_TEXT_H
#define KVR_PROFILE_TEXT_H

#include "buffer.h"
#include "error.h"
#include "profile.h"
#include "slice.h"

/* `path` is for messages only. KVR_E_INVALID. */
int kvr_profile_text_read(const char *path, struct kvr_slice text, struct kvr_profile *profile,
                          struct kvr_error *error) KVR_MUST_USE;
/* Appends it, without the settings that are at their defaults. Reads back to the same. */
void kvr_profile_text_write(const struct kvr_profile *profile, struct kvr_buffer *out);

#endif
