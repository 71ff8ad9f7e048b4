/* Which of a listener's clients have had their time: idle too long, too slow with a request, taking
 * nothing of an answer, or done and still there. */
#ifndef KVR_LISTENER_SWEEP_H
#define KVR_LISTENER_SWEEP_H

#include "listener.h"

/* Closes or refuses those. `now` is kvr_loop_now(). */
void kvr_listener_sweep(struct kvr_listener *listener, uint64_t now);

/* Of those that have just come, or been answered, the next request is likely to be on its way; of
 * the others it may have come, and nothing has read it yet. */
void kvr_listener_dismiss_idle(struct kvr_listener *listener, uint64_t now);
/* All in the list, whose answers nobody waits for any more. */
void kvr_listener_lose(struct kvr_listener *listener, struct kvr_list *list);

#endif
