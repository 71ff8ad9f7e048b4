/* What the files that read heads share (http.c, http_find.c, http_plain.c), and nobody else. */
#ifndef KVR_HTTP_PARTS_H
#define KVR_HTTP_PARTS_H

#include "http.h"

/* First byte at or after `i` that is a control character but no tab, or DEL; or `len`. */
size_t kvr_http_skip_plain(const char *data, size_t len, size_t i);

/* Empties a head, all but its headers' array. */
void kvr_http_clear(struct kvr_http_head *head, size_t size);
/* Trims the values and reads those that say how the message is framed. `minor` is set. */
int kvr_http_read_framing(struct kvr_http_head *head, struct kvr_slice *host,
                          struct kvr_error *error);
/* Splits the target into path and, for the absolute form, host. */
int kvr_http_read_target(struct kvr_http_head *head, struct kvr_slice host,
                         struct kvr_error *error);

#endif
