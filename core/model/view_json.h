/* The picture that a decision sees (abi.h), as members of a JSON object: every field under its own
 * name, but for pointers. NaN and infinity are null. */
#ifndef KVR_VIEW_JSON_H
#define KVR_VIEW_JSON_H

#include "abi.h"
#include "json_writer.h"

void kvr_view_write_request(struct kvr_json_writer *json, const struct kvr_request_view *request);
/* All but the rows. */
void kvr_view_write_totals(struct kvr_json_writer *json, const struct kvr_view *view);
void kvr_view_write_row(struct kvr_json_writer *json, const struct kvr_replica_view *row);

#endif
