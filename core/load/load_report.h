/* What a run has measured so far: sums and distributions, in fixed memory. Requests that began in
 * the warm-up are counted and otherwise left out; so are those that we cut ourselves. Percentiles
 * are over successes only. All times are simulated.
 *
 * The window, over which rates are taken, is closed loop: from the first measured request's start
 * to the last measured answer's end; open loop: from the first due time to the last, and a mean gap
 * more, whatever has become of the answers. */
#ifndef KVR_LOAD_REPORT_H
#define KVR_LOAD_REPORT_H

#include "load_goodput.h"
#include "load_request.h"
#include "sketch.h"

#define KVR_LOAD_STATUSES_MAX 16 /* different ones that are told apart; the rest is "other" */

/* Beyond these a run is flagged: what it says is about the driver, too. */
#define KVR_LOAD_LATE_OPEN_MS   100.0 /* simulated, p99 */
#define KVR_LOAD_LATE_CLOSED_MS 10.0
#define KVR_LOAD_FAILED_SHARE   0.01
#define KVR_LOAD_BUSY_SHARE     0.9 /* CPU of the driver over wall time */

enum kvr_load_flag {
    KVR_LOAD_FLAG_BEHIND = 1,      /* p99 of lateness over its limit */
    KVR_LOAD_FLAG_FAILURES = 2,    /* more than 1 % failed */
    KVR_LOAD_FLAG_NOTHING = 4,     /* nothing measured has succeeded */
    KVR_LOAD_FLAG_INTERRUPTED = 8, /* ended before its time */
    KVR_LOAD_FLAG_ROWS = 16,       /* rows could not be written */
    KVR_LOAD_FLAG_BUSY = 32,       /* the driver had no CPU to spare: it may have read late */
    KVR_LOAD_FLAG_LAST = KVR_LOAD_FLAG_BUSY,
};

struct kvr_load_status_count {
    uint16_t status;
    uint64_t count;
};

struct kvr_load_report {
    bool open; /* which driver */
    struct kvr_load_goodput goodput;
    uint64_t started;  /* also in the warm-up */
    uint64_t warmups;  /* began in the warm-up */
    uint64_t measured; /* ended, not in the warm-up, not cancelled */
    uint64_t succeeded;
    uint64_t good;                        /* of these, within the limits of goodput */
    uint64_t failures[KVR_LOAD_FAILURES]; /* of the measured; cancelled ones too */
    struct kvr_load_status_count statuses[KVR_LOAD_STATUSES_MAX]; /* of failures by status */
    uint64_t statuses_other;
    uint64_t input_tokens; /* of successes, as the engine counted */
    uint64_t output_tokens;
    uint64_t cached_tokens;
    uint64_t counted;        /* successes whose engine counted the prompt */
    uint64_t cached_counted; /* ... and told how much was cached */
    uint64_t body_hash;      /* sum of all hashes: the same for the same requests in any order */
    double first_ms;         /* of the window */
    double last_ms;
    uint32_t in_flight_most;                 /* in the window */
    struct kvr_sketch ttft, tpot, itl, e2el; /* ns */
    struct kvr_sketch late;                  /* ns */
    struct kvr_sketch gap; /* ns; closed: from an answer's end to the user's next request */
    double cpu_share;      /* of the driver; filled in at the end */
    double wall_s;
    bool interrupted;
    uint64_t rows_dropped; /* since the disk refused them */
};

void kvr_load_report_init(struct kvr_load_report *report, bool open,
                          const struct kvr_load_goodput *goodput);
void kvr_load_report_deinit(struct kvr_load_report *report);

/* A request has ended; `measure` by kvr_load_measure. Returns whether it was good. */
bool kvr_load_report_add(struct kvr_load_report *report, const struct kvr_load_clock *clock,
                         const struct kvr_load_request *request,
                         const struct kvr_load_measure *measure);

uint64_t kvr_load_report_failed(const struct kvr_load_report *report);
/* Seconds of the window. */
double kvr_load_report_window_s(const struct kvr_load_report *report);
/* So many a second of the window; NaN without one. */
double kvr_load_report_rate(const struct kvr_load_report *report, double count);
/* Of the prompts' tokens; NaN when the engine never told. */
double kvr_load_report_cached_share(const struct kvr_load_report *report);
/* enum kvr_load_flag, or-ed. */
unsigned kvr_load_report_flags(const struct kvr_load_report *report);
/* A word for one of them, and what it means. */
const char *kvr_load_flag_name(unsigned flag);
const char *kvr_load_flag_meaning(unsigned flag);

#endif
