#include "scraper.h"

#include <math.h>

#define DEFAULT_PATH        "/metrics"
#define DEFAULT_INTERVAL_NS 1000000000u
#define LONGEST_TIMEOUT_NS  5000000000u

static enum kvr_round_verdict on_page(void *context, uint32_t slot,
                                      const struct kvr_fetch_result *result)
{
    struct kvr_scraper *scraper = context;
    struct kvr_metrics_page page;
    kvr_metrics_page_read(&page, result->body);
    /* A start time alone is worth reading, of whatever engine: it tells a restart. */
    if (page.dialect == KVR_METRICS_UNKNOWN && isnan(page.signals.process_start_s)) {
        scraper->unread++;
        return KVR_ROUND_ABSENT;
    }
    if (scraper->events.on_dialect)
        scraper->events.on_dialect(scraper->events.context, slot, page.dialect);
    scraper->events.on_signals(scraper->events.context, slot, &page.signals);
    return KVR_ROUND_OK;
}

void kvr_scraper_start(struct kvr_scraper *scraper, struct kvr_loop *loop,
                       const struct kvr_replica_table *replicas,
                       const struct kvr_scraper_options *options,
                       const struct kvr_target_source *source,
                       const struct kvr_scraper_events *events)
{
    *scraper = (struct kvr_scraper){.events = *events};
    struct kvr_rounds_options rounds = {.staggered = true};
    if (options) {
        rounds.path = options->path;
        rounds.interval_ns = options->interval_ns;
        rounds.timeout_ns = options->timeout_ns;
        rounds.max_bytes = options->max_bytes;
    }
    if (!rounds.path)
        rounds.path = DEFAULT_PATH;
    if (rounds.interval_ns == 0)
        rounds.interval_ns = DEFAULT_INTERVAL_NS;
    if (rounds.timeout_ns == 0)
        rounds.timeout_ns = rounds.interval_ns / 5 * 4;
    if (rounds.timeout_ns > LONGEST_TIMEOUT_NS)
        rounds.timeout_ns = LONGEST_TIMEOUT_NS;
    struct kvr_rounds_events asked = {.context = scraper, .on_answer = on_page};
    kvr_rounds_start(&scraper->rounds, loop, replicas, &rounds, source, &asked);
}

void kvr_scraper_wake(struct kvr_scraper *scraper)
{
    kvr_rounds_wake(&scraper->rounds);
}

void kvr_scraper_close(struct kvr_scraper *scraper)
{
    kvr_rounds_close(&scraper->rounds);
}
