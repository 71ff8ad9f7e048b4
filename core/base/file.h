/* Files that are read while traffic flows. A pipe or a device under such a name would hold up the
 * loop for as long as it likes; only regular files are opened. */
#ifndef KVR_FILE_H
#define KVR_FILE_H

#include <stdio.h>

#include "error.h"

/* Opens for reading; the caller closes it. KVR_E_NOT_FOUND, or KVR_E_IO for all else, with the
 * reason. Never waits for a writer. */
int kvr_file_open(const char *path, FILE **file, struct kvr_error *error);

#endif
