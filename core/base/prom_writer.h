/* Writes a page in Prometheus's text format (0.0.4): families with their help and type, samples
 * with their labels. Escapes are its business, names and bounds are the caller's.
 *
 *   struct kvr_prom_writer prom = {.out = &page, .prefix = "kvroute_"};
 *   kvr_prom_family(&prom, "requests_total", KVR_PROM_COUNTER, "Requests that ended.");
 *   kvr_prom_label(&prom, "outcome", kvr_slice_of("success"));
 *   kvr_prom_uint(&prom, 17);
 *
 *   # HELP kvroute_requests_total Requests that ended.
 *   # TYPE kvroute_requests_total counter
 *   kvroute_requests_total{outcome="success"} 17
 *
 * A family is written once a page, with all its samples behind it; labels come before the value
 * they belong to. Label values may hold any bytes: what is not UTF-8, and control characters other
 * than the line feed, are written as U+FFFD, so that the page can always be read. */
#ifndef KVR_PROM_WRITER_H
#define KVR_PROM_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"
#include "histogram.h"
#include "slice.h"

enum kvr_prom_type { KVR_PROM_COUNTER, KVR_PROM_GAUGE, KVR_PROM_HISTOGRAM };

struct kvr_prom_writer {
    struct kvr_buffer *out; /* the caller's */
    const char *prefix;     /* of every family's name; constant */
    const char *family;     /* of the samples to come; constant */
    bool labelled;          /* the sample at hand has its opening brace */
    bool begun;             /* ... and its name */
};

/* `help` is one line without backslashes. */
void kvr_prom_family(struct kvr_prom_writer *prom, const char *name, enum kvr_prom_type type,
                     const char *help);
void kvr_prom_label(struct kvr_prom_writer *prom, const char *name, struct kvr_slice value);

/* The value ends the sample. */
void kvr_prom_uint(struct kvr_prom_writer *prom, uint64_t value);
/* No sample for NaN, which means "not known": labels given for it are taken back. */
void kvr_prom_double(struct kvr_prom_writer *prom, double value);

/* A family of one sample without labels. */
void kvr_prom_counter(struct kvr_prom_writer *prom, const char *name, uint64_t value,
                      const char *help);
void kvr_prom_gauge(struct kvr_prom_writer *prom, const char *name, double value, const char *help);

/* A whole histogram family in seconds, of samples that were counted in whole microseconds. A bound
 * of T us counts what lasted less than T: samples are cut to whole microseconds, so T - 1 is the
 * largest of them. Where T is no edge of the histogram's buckets, up to 3.2 % of T are left to the
 * next bound. */
void kvr_prom_histogram_us(struct kvr_prom_writer *prom, const char *name,
                           const struct kvr_histogram *histogram, const uint32_t *bounds_us,
                           uint32_t bounds, const char *help);

#endif
