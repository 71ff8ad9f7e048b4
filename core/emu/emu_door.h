/* The listening socket of an emulated replica, which can be shut and opened again at the same
 * address while the process lives: how a replica refuses connections, dies and comes back.
 *
 * Shutting lets answers under way finish and closes idle connections; cutting resets everything.
 * A listener that was shut is freed when its last client has left. */
#ifndef KVR_EMU_DOOR_H
#define KVR_EMU_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "emu_delay.h"
#include "listener.h"

#define KVR_EMU_RETIRED_MAX 32 /* shut, with clients that have not left */

struct kvr_emu_retired {
    struct kvr_listener *listener; /* owned */
    bool closing;                  /* its last handles are; free at the next look */
};

struct kvr_emu_door {
    struct kvr_loop *loop;
    struct kvr_emu_delays *delays;
    struct kvr_handler handler;
    struct kvr_listener_options options;
    struct kvr_listener *listener; /* owned; NULL: it is shut */
    char address[64];              /* as first bound */
    struct kvr_emu_delay opening;  /* when it is shut for a time */
    struct kvr_emu_delay reaping;  /* while there are retired ones */
    struct kvr_emu_retired retired[KVR_EMU_RETIRED_MAX];
    uint32_t retired_len;
};

/* Opens it. KVR_E_INVALID, KVR_E_IO; then kvr_emu_door_deinit is still due, after the loop has
 * turned. */
int kvr_emu_door_init(struct kvr_emu_door *door, struct kvr_loop *loop,
                      struct kvr_emu_delays *delays, const char *address,
                      const struct kvr_handler *handler, const struct kvr_listener_options *options,
                      struct kvr_error *error) KVR_MUST_USE;
/* Shuts it, for ms if that is not negative. `cut`: connections are reset; the handler hears nothing
 * of that. KVR_E_LIMIT when too many clients of earlier times are still there. */
int kvr_emu_door_shut(struct kvr_emu_door *door, bool cut, double ms,
                      struct kvr_error *error) KVR_MUST_USE;
/* Opens it again; an address that is taken is tried again until it is free. */
void kvr_emu_door_open(struct kvr_emu_door *door);

/* Cuts everything, for good. The loop must run until nothing is left in it, then deinit. */
void kvr_emu_door_close(struct kvr_emu_door *door);
void kvr_emu_door_deinit(struct kvr_emu_door *door);

#endif
