/* The file of a script. A name is that of a file in the policies folder (NAME.lua; spill/NAME.lua
 * for spill rules), or a path if it has a slash. */
#ifndef KVR_SCRIPT_FILE_H
#define KVR_SCRIPT_FILE_H

#include <stdbool.h>

#include "buffer.h"
#include "error.h"
#include "role.h"

#define KVR_SCRIPT_FILE_MAX (256u << 10)

/* Letters, digits, '_' and '-': what rows and metrics call it, too. */
bool kvr_script_file_is_name(struct kvr_slice name);
/* The name of the file of this path: what stands between the last slash and .lua. Empty when that
 * is no name. */
struct kvr_slice kvr_script_file_name(const char *path);
/* Writes the path, of at most KVR_SCRIPT_PATH_MAX bytes. */
int kvr_script_file_path(const char *dir, enum kvr_script_role role, struct kvr_slice name,
                         char *path, struct kvr_error *error);
/* Appends its text; at most KVR_SCRIPT_FILE_MAX bytes. When a file of a name is not there, `error`
 * says what is. */
int kvr_script_file_find(const char *dir, enum kvr_script_kind kind, struct kvr_slice name,
                         const char *path, struct kvr_buffer *text, struct kvr_error *error);
/* The same by its path alone. */
int kvr_script_file_read(const char *path, struct kvr_buffer *text, struct kvr_error *error);

#endif
