/* Drives a workload against an endpoint and measures: closed loop or open loop, as the workload's
 * arrivals say. The two share how a request is sent and judged, and nothing of when:
 *
 *   closed (load_closed.c)  each user sends its next turn when the answer before it has ended, and
 *                           its think time is over: in the same turn of the loop as the last byte,
 *                           where that time is less than KVR_LOAD_WAIT_NS of the wall's. A user
 *                           that got no answer at all waits KVR_LOAD_RETREAT_NS first.
 *   open (load_open.c)      requests go out when they are due, whatever has become of those before.
 *
 * A run ends when the duration is over, or so many requests have been sent, or the workload has no
 * more, and then every answer has been waited for. kvr_load_driver_stop ends it at once: what is in
 * flight is cut and counted as cancelled. Either way on_ended comes from the loop, once, when all
 * connections are closed and all rows written.
 *
 * Failure modes: what befalls single requests is load_call.h's; rows that a full disk refuses are
 * dropped and counted; over `in_flight_max` the open driver drops requests and says so, since
 * holding them back would be another experiment.
 *
 * Memory: a request in flight costs about 1 KB and its gaps; finished ones are reused. */
#ifndef KVR_LOAD_DRIVER_H
#define KVR_LOAD_DRIVER_H

#include "alarm.h"
#include "load_body.h"
#include "load_client.h"
#include "load_report.h"
#include "row_log.h"
#include "workload.h"

#define KVR_LOAD_WAIT_NS    100000u    /* a shorter wait is over before it could be waited for */
#define KVR_LOAD_RETREAT_NS 100000000u /* after a refused connection, say */
#define KVR_LOAD_BURST                                                                             \
    64 /* requests that become due are sent in one go; then others'                                \
          answers are read */

struct kvr_load_options {
    struct kvr_workload *workload;    /* borrowed to the end */
    const struct kvr_load_body *body; /* borrowed to the end */
    struct kvr_load_client_options client;
    struct kvr_load_goodput goodput;
    double time_scale;      /* simulated seconds a wall second */
    double duration_ms;     /* simulated: nothing is sent after; 0: no such end */
    double warmup_ms;       /* simulated: what begins before is not measured */
    uint64_t requests_max;  /* 0: no such end */
    uint32_t in_flight_max; /* open loop; > 0 */
    const char *rows;       /* file, written anew; NULL: none */
};

struct kvr_load_user {
    uint64_t turn;      /* to send next */
    uint64_t before_ns; /* when the last answer ended; 0: none yet */
    uint64_t due_ns;    /* of the next turn */
};

/* Users that wait, in a heap by the time at which they wake. */
struct kvr_load_waiting {
    struct kvr_load_wake {
        uint64_t at_ns;
        uint32_t user;
    } * wakes;
    uint32_t len;
};

struct kvr_load_driver {
    struct kvr_loop *loop;
    struct kvr_load_options options;
    struct kvr_load_client client;
    struct kvr_load_clock clock;
    struct kvr_load_report report;
    struct kvr_alarm alarm;
    struct kvr_row_log rows;
    struct kvr_buffer row;         /* scratch */
    struct kvr_load_request *idle; /* free ones */
    uint64_t sent;                 /* requests begun, dropped ones too */
    bool open;
    bool stopping; /* nothing is sent any more */
    bool ending;   /* everything is being closed */

    struct kvr_workload_request ask; /* the last that the workload was asked for */
    bool asked;

    struct kvr_load_user *users; /* closed */
    struct kvr_load_waiting waiting;
    uint32_t users_left; /* closed: those with a turn to come or under way */

    struct kvr_arrival arrival; /* open: the next */
    bool arrives;

    double cpu_s;     /* of the process, when the run began */
    uint32_t closing; /* parts whose close callback is still to come */
    void *context;
    void (*on_ended)(void *context);
};

/* Begins at once. KVR_E_INVALID, KVR_E_IO: nothing has begun; the loop must run once more before
 * the memory goes. */
int kvr_load_driver_start(struct kvr_load_driver *driver, struct kvr_loop *loop,
                          const struct kvr_load_options *options, void *context,
                          void (*on_ended)(void *context), struct kvr_error *error) KVR_MUST_USE;
void kvr_load_driver_stop(struct kvr_load_driver *driver);
/* After on_ended. */
void kvr_load_driver_deinit(struct kvr_load_driver *driver);

/* ---- for the two drivers ---- */

/* Simulated time, since the run began, as wall time. */
uint64_t kvr_load_wall_ns(const struct kvr_load_driver *driver, double sim_ns);
/* The workload's request, which is asked for once however often it is written. False: that user
 * sends no more. */
bool kvr_load_ask(struct kvr_load_driver *driver, uint64_t user, uint64_t turn);
/* Sends what kvr_load_ask has found. False: it failed at once; it is reported, and neither
 * on_answer will come. */
bool kvr_load_send(struct kvr_load_driver *driver, uint64_t due_ns, uint64_t before_ns);
/* One more may be sent at this time? */
bool kvr_load_may_send(const struct kvr_load_driver *driver, uint64_t now_ns);
/* Ends the run if nothing is under way and nothing will come. */
void kvr_load_look_for_end(struct kvr_load_driver *driver);

void kvr_load_closed_start(struct kvr_load_driver *driver);
void kvr_load_closed_ring(struct kvr_load_driver *driver);
void kvr_load_closed_answer(struct kvr_load_driver *driver, const struct kvr_load_request *request);
void kvr_load_open_start(struct kvr_load_driver *driver);
void kvr_load_open_ring(struct kvr_load_driver *driver);

#endif
