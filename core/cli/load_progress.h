/* How far a load run is, on stderr: one line that is rewritten on a terminal, a plain line a minute
 * elsewhere. */
#ifndef KVR_LOAD_PROGRESS_H
#define KVR_LOAD_PROGRESS_H

#include <uv.h>

#include "load_driver.h"

struct kvr_load_progress {
    uv_timer_t timer;
    const struct kvr_load_driver *driver;
    bool terminal;
    bool shown; /* something stands on the terminal's line */
};

/* Does not keep the loop alive. */
void kvr_load_progress_start(struct kvr_load_progress *progress, uv_loop_t *uv,
                             const struct kvr_load_driver *driver);
/* Clears the line. The loop must run once more before the memory goes. */
void kvr_load_progress_stop(struct kvr_load_progress *progress);

#endif
