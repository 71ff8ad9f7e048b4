/* The endpoint that is driven: http://HOST:PORT, with a path before /v1 where it has one. A name is
 * looked up once, at the start. */
#ifndef KVR_LOAD_TARGET_H
#define KVR_LOAD_TARGET_H

#include <sys/socket.h>

#include "error.h"
#include "loop.h"

#define KVR_LOAD_AUTHORITY_MAX 270
#define KVR_LOAD_PATH_MAX      256

struct kvr_load_target {
    struct sockaddr_storage address;
    char authority[KVR_LOAD_AUTHORITY_MAX]; /* for Host: host:port */
    char base[KVR_LOAD_PATH_MAX];           /* before /v1: "" or "/some/path" */
};

/* "http://" may be left out, and so may port 80, a slash at the end and a /v1 there. KVR_E_INVALID
 * with the reason, also for a name that leads nowhere. */
int kvr_load_target_find(struct kvr_load_target *target, struct kvr_loop *loop, const char *url,
                         struct kvr_error *error) KVR_MUST_USE;

#endif
