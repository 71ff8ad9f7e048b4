/* What the router knows, as families of a Prometheus page: everything but sockets and the process,
 * which the ingress adds. Reads only; a page of 64 replicas and 128 models is about 150 KB.
 *
 * Labels are bounded: replica (members of the fleet), model (names that a member lists; every other
 * name is "other"), reason (KVR_REASONS_MAX), and fixed sets: outcome, code, state, role, kind.
 * Nothing a client sends becomes a label. */
#ifndef KVR_METRICS_TEXT_H
#define KVR_METRICS_TEXT_H

#include <stdint.h>

#include "buffer.h"
#include "prom_writer.h"
#include "router.h"

#define KVR_METRICS_PREFIX "kvroute_"

/* Appends the router's part of a page. `now_ns` is for ages. */
void kvr_metrics_text_write(const struct kvr_router *router, uint64_t now_ns,
                            struct kvr_buffer *out);

/* Values of the label `code`, constant: also the error code that the client of a refused request
 * sees. */
const char *kvr_metrics_rejection_name(enum kvr_rejection rejection);

/* ---- its parts ---- */

void kvr_metrics_text_requests(const struct kvr_router *router, struct kvr_prom_writer *prom);
void kvr_metrics_text_models(const struct kvr_router *router, struct kvr_prom_writer *prom);
void kvr_metrics_text_fleet(const struct kvr_router *router, uint64_t now_ns,
                            struct kvr_prom_writer *prom);
void kvr_metrics_text_index(const struct kvr_router *router, struct kvr_prom_writer *prom);
void kvr_metrics_text_scripts(const struct kvr_router *router, struct kvr_prom_writer *prom);
void kvr_metrics_text_shadows(const struct kvr_router *router, struct kvr_prom_writer *prom);
void kvr_metrics_text_gate(const struct kvr_router *router, uint64_t now_ns,
                           struct kvr_prom_writer *prom);

#endif
