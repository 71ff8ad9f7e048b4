/* Files that are read: while traffic flows, and by commands for the people who name them.
 *
 * A pipe or a device under a name would hold up a loop for as long as it likes, so there only
 * regular files are opened. A command may also be given a pipe, as a shell's `<(...)` is one, but
 * no device: /dev/zero never ends. A pipe that nobody writes to is given up. Whole files have a
 * most, so that no pipe that never ends takes all memory. */
#ifndef KVR_FILE_H
#define KVR_FILE_H

#include <stdio.h>

#include "buffer.h"
#include "check.h"
#include "error.h"

#define KVR_FILE_WRITER_MS 2000 /* so long a pipe is waited for that has no writer yet */

/* Opens for reading; the caller closes it. KVR_E_NOT_FOUND, or KVR_E_IO for all else, with the
 * reason. Never waits for a writer. */
int kvr_file_open(const char *path, FILE **file, struct kvr_error *error) KVR_MUST_USE;
/* The same for what a command was given: pipes as well. */
KVR_EXPORT int kvr_file_open_given(const char *path, FILE **file,
                                   struct kvr_error *error) KVR_MUST_USE;

/* Appends all of it. KVR_E_LIMIT: it has more than `most` bytes. */
int kvr_file_read(const char *path, size_t most, struct kvr_buffer *text,
                  struct kvr_error *error) KVR_MUST_USE;
int kvr_file_read_given(const char *path, size_t most, struct kvr_buffer *text,
                        struct kvr_error *error) KVR_MUST_USE;
/* The rest of an open one, which errors call `name`. */
int kvr_file_read_rest(FILE *file, const char *name, size_t most, struct kvr_buffer *text,
                       struct kvr_error *error) KVR_MUST_USE;

#endif
