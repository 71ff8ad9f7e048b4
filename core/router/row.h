/* One finished request as a line of JSON: the system of record. Fields that have no value are left
 * out, but for cached_tokens, which is null when the engine did not say. Names and units stand in
 * README.md beside this file. */
#ifndef KVR_ROW_H
#define KVR_ROW_H

#include "router.h"

/* Appends the row to router->rows. */
void kvr_row_write(struct kvr_router *router, uint64_t now_ns,
                   const struct kvr_request_record *record, const struct kvr_ending *ending);

/* Fills script->row from its info. */
void kvr_row_describe(struct kvr_script_record *script);

#endif
