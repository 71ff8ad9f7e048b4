/* Reads each replica's metrics page at an interval, spread over it, and reports what its engine
 * says. A replica without such a page, or with a page of no known engine, is asked ever more rarely
 * (up to once a minute); one that is down is not asked. */
#ifndef KVR_SCRAPER_H
#define KVR_SCRAPER_H

#include <stdint.h>

#include "load.h"
#include "metrics_page.h"
#include "rounds.h"

struct kvr_scraper_options {
    const char *path;     /* default "/metrics"; must live as long as the scraper */
    uint64_t interval_ns; /* default 1 s */
    uint64_t timeout_ns;  /* default 0.8 of the interval; at most 5 s */
    size_t max_bytes;     /* of one page; default 4 MiB */
};

struct kvr_scraper_events {
    void *context;
    void (*on_signals)(void *context, uint32_t slot, const struct kvr_engine_signals *signals);
    /* Which engine it is, at each reading. Optional. */
    void (*on_dialect)(void *context, uint32_t slot, enum kvr_metrics_dialect dialect);
};

struct kvr_scraper {
    struct kvr_rounds rounds; /* its counters are the scraper's */
    struct kvr_scraper_events events;
    uint64_t unread; /* pages of no known engine */
};

/* `options` may be NULL. */
void kvr_scraper_start(struct kvr_scraper *scraper, struct kvr_loop *loop,
                       const struct kvr_replica_table *replicas,
                       const struct kvr_scraper_options *options,
                       const struct kvr_target_source *source,
                       const struct kvr_scraper_events *events);
/* The fleet changed. */
void kvr_scraper_wake(struct kvr_scraper *scraper);
/* The loop must run once more before the memory of the scraper goes. */
void kvr_scraper_close(struct kvr_scraper *scraper);

#endif
