/* The signals that tell a server to end, SIGTERM and SIGINT, and SIGHUP where it listens to it.
 *
 *   until kvr_signals_watch   the default action: nothing is served yet, the process just ends
 *   until kvr_signals_leave   the handler's business, on the loop
 *   from then on              ignored, to the very end of the process
 *
 * Signals are the process's: one server watches them, once. */
#ifndef KVR_SIGNALS_H
#define KVR_SIGNALS_H

#include <uv.h>

struct kvr_signals_handler {
    void *context; /* the server's; there until the loop has run for the last time */
    void (*on_end)(void *context, int number);
    void (*on_hangup)(void *context); /* NULL: SIGHUP keeps its default action */
};

/* Does not keep the loop alive. The loop cannot be closed any more, and must not go away. */
void kvr_signals_watch(uv_loop_t *uv, const struct kvr_signals_handler *handler);
void kvr_signals_leave(void);

#endif
