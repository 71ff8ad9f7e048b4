/* Reads an engine's metrics page (Prometheus text) in one pass, without a tree. Which series makes
 * which signal stands in the tables of metrics_page.c, a table a dialect.
 *
 * Series of several engines behind one page (labels `engine`, `dp_rank`) are added up, usages are
 * averaged; ranks that repeat the same engine's figures (tp_rank and pp_rank above 0) are left out.
 * Where an old and a new name stand side by side the new one counts, never both.
 *
 * Meanings are the same for all dialects: prompt_tokens counts cached tokens too where the page
 * says how many they are; an engine that does not count look-ups in its prefix cache (sglang,
 * llamacpp) has looked up its prompt tokens and found its cached ones.
 *
 * What the page does not say stays NaN: unknown is not zero, and neither is a gauge that engines
 * set to -1 for "not available". Any bytes may come in; lines that are no samples are passed over.
 */
#ifndef KVR_METRICS_PAGE_H
#define KVR_METRICS_PAGE_H

#include "load.h"
#include "slice.h"

enum kvr_metrics_dialect {
    KVR_METRICS_UNKNOWN, /* no series of an engine we know */
    KVR_METRICS_VLLM,
    KVR_METRICS_SGLANG,
    KVR_METRICS_LLAMACPP,
};

struct kvr_metrics_page {
    enum kvr_metrics_dialect dialect;
    struct kvr_engine_signals signals;
};

/* Constant name: "vllm", "sglang", "llamacpp", "unknown". */
const char *kvr_metrics_dialect_name(enum kvr_metrics_dialect dialect);

/* Fills all of `page`. */
void kvr_metrics_page_read(struct kvr_metrics_page *page, struct kvr_slice text);

#endif
