/* The admin interface: what an operator sees and sets, as JSON over a listener of its own, and the
 * Prometheus page. `kvroute ctl` is its client.
 *
 *   GET  /metrics                  what happened, in Prometheus's text format
 *   GET  /admin                    these paths
 *   GET  /admin/status             a summary
 *   GET  /admin/replicas           the fleet; removed ones too while requests are open on them
 *   POST /admin/replicas           {"url", "weight", "capacity", "key", "rank", "any_model",
 *                                   "models"}: add; only url is needed
 *   POST /admin/replicas/remove    {"replica"}
 *   POST /admin/replicas/drain     {"replica"}: no new requests; open ones end by themselves
 *   POST /admin/replicas/restore   {"replica"}: the reverse of drain
 *   POST /admin/replicas/weight    {"replica", "weight"}
 *   GET  /admin/scripts            what is in force for each role, and what went wrong
 *   POST /admin/policy             {"name", "params"}
 *   POST /admin/spill              {"name", "params"}; an empty name: the policy's default
 *   POST /admin/canary             {"name", "share", "params"}; an empty name: none
 *   POST /admin/params             {"role", "params"}: of what is in force
 *   GET  /admin/shadow             what shadows would have done, against what was done
 *   POST /admin/shadow             {"shadows": ["NAME" or {"name", "params"}, ...]}: all of them;
 *                                   an empty list: none
 *   GET  /admin/gate               what vouches for the policy, and live traffic against it
 *   POST /admin/gate               {"file"}: that kvroute gate wrote, in force; a path there
 *   POST /admin/gate/off           none: nothing is guarded
 *   POST /admin/explain            {"path", "headers", "body"} of a request: what would happen to
 *                                   it, and why; nothing is sent. Only body is needed
 *   GET  /admin/plan               the plan in force, and what became of the last planning
 *   POST /admin/plan               {"file"}: a plan that was written, in force; a path there
 *   POST /admin/plan/now           a plan from the traffic so far
 *   POST /admin/plan/off           {"why"}: the plan goes, and none comes until
 *   POST /admin/plan/on            ... they may come again
 *   POST /admin/reload             reads all scripts again
 *   POST /admin/log                {"level"}: error, warn, info, debug
 *   GET  /admin/index              the prefix index
 *   GET  /admin/requests           open requests, the oldest first
 *
 * A replica is named in the body, by its name (host:port or host:port#rank) or its 16-digit id, so
 * that no name has to be squeezed into a path. A POST answers with the state it led to, as the GET
 * beside it would. Errors have the API's own shape and name the field and the value.
 *
 * With a token, every path needs it as a bearer token. Without one the listener must be on a
 * loopback address, and what a browser sends for a page of some site (it carries Origin) is
 * refused: a page must not be able to drain a fleet. Tokens and keys of replicas go in and never
 * come out. */
#ifndef KVR_ADMIN_H
#define KVR_ADMIN_H

#include <stdint.h>

#include "error.h"
#include "ingress.h"
#include "listener.h"
#include "loop.h"

#define KVR_ADMIN_LISTEN_DEFAULT "127.0.0.1:8081"
#define KVR_ADMIN_MARK           "x-kvroute-admin" /* header of every answer, so that it is known */

struct kvr_admin_options {
    const char *listen; /* "host:port"; NULL or empty: KVR_ADMIN_LISTEN_DEFAULT */
    const char *token;  /* bearer token, copied; NULL or empty: none */
};

struct kvr_admin_counters {
    uint64_t requests;
    uint64_t denied; /* 401 and 403 */
};

struct kvr_admin {
    struct kvr_ingress *ingress;
    struct kvr_listener listener;
    struct kvr_admin_counters counters;
    char *token; /* NULL: none */
};

/* Listens. KVR_E_INVALID for an address that is none, KVR_E_DENIED for one beyond loopback without
 * a token. `ingress` must outlive it. */
int kvr_admin_start(struct kvr_admin *admin, struct kvr_loop *loop, struct kvr_ingress *ingress,
                    const struct kvr_admin_options *options, struct kvr_error *error);
/* As bound. */
const char *kvr_admin_address(const struct kvr_admin *admin);
/* The router drains: leaves a socket that was handed to it to whoever has it next. */
void kvr_admin_hand_over(struct kvr_admin *admin);
/* Closes everything, after a start that went well. The loop must run until its handles are closed
 * before the memory goes. */
void kvr_admin_close(struct kvr_admin *admin);

#endif
