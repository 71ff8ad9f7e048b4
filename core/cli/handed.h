/* Listening sockets that were opened by whoever has started this process, and handed to it: they
 * outlive it, so that a restart refuses no connection. By systemd's protocol for the activation of
 * services (sd_listen_fds(3)):
 *
 *   LISTEN_PID       whom they are for: another process leaves all of this alone
 *   LISTEN_FDS       how many there are, from descriptor 3 on
 *   LISTEN_FDNAMES   their names, with colons between; not needed
 *
 * The one named "admin" is the admin interface's, all others the ingress's. */
#ifndef KVR_HANDED_H
#define KVR_HANDED_H

#include <stdint.h>

#include "error.h"
#include "ingress.h"

struct kvr_handed {
    char listen[KVR_LISTENERS_MAX][16]; /* addresses, as kvr_listener_start takes them: "fd:3" */
    uint32_t listen_count;
    char admin[16]; /* empty: none */
};

/* Also marks them so that no child gets them. KVR_E_INVALID for variables that make no sense. */
int kvr_handed_take(struct kvr_handed *handed, struct kvr_error *error);

#endif
