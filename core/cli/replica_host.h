/* The process that hosts emulated replicas: one loop, one or many servers in it, their addresses on
 * stdout, until a signal.
 *
 *   replica 0 127.0.0.1:8001
 *   replica 1 127.0.0.1:8002
 *   control 127.0.0.1:39127
 *   ready
 *
 * On SIGTERM or SIGINT connections are cut, as an engine's are, and the process ends well. */
#ifndef KVR_REPLICA_HOST_H
#define KVR_REPLICA_HOST_H

#include <stdint.h>

#include "replica_server.h"

struct kvr_replica_host_options {
    struct kvr_replica_server_options server; /* of each; without address, index, fleet and log */
    const char *host;                         /* to listen on */
    uint32_t port;                            /* of the first, the others follow; 0: any */
    uint32_t replicas;
    const char *control;       /* a listener for orders alone, host:port; NULL: none */
    const char *const *faults; /* set on each from the start */
    uint32_t faults_len;
    const char *log;    /* file; NULL: none */
    uint32_t log_lines; /* kept in memory */
};

/* Runs until it is told to stop; returns the status to exit with. */
int kvr_replica_host_run(const struct kvr_replica_host_options *options);

#endif
