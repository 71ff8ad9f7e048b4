/* An emulated inference engine behind a real socket: an OpenAI-shaped server whose answers come
 * from the engine model at the engine's pace, and which fails when told to.
 *
 * Happy path: a request is read (emu_ask), its prompt becomes tokens and block hashes, one engine
 * request an output is submitted (live_engine); tokens come back as events, are worded (emu_shape)
 * and sent (emu_output). Everything else is a page (replica_pages.c) or an order to the emulator
 * itself (replica_control.c).
 *
 * Failure modes: bodies that engines refuse are refused in their words (emu_error); a full queue is
 * 503; a client that goes away aborts its engine requests at once; a reader too slow for its answer
 * is cut at KVR_EMU_UNSENT_MAX or by the listener's stall limit; faults happen as emu_fault.h has
 * them. Nothing is retried here.
 *
 * Many servers share one loop and one log; each has its own engine and listener. */
#ifndef KVR_REPLICA_SERVER_H
#define KVR_REPLICA_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "emu_answer.h"
#include "emu_call.h"
#include "emu_connection.h"
#include "emu_delay.h"
#include "emu_door.h"
#include "emu_fault.h"
#include "emu_log.h"
#include "emu_metrics.h"
#include "emu_shape.h"
#include "emu_store.h"
#include "live_engine.h"

#define KVR_EMU_UNSENT_MAX (64u << 20) /* bytes of one answer that wait for a slow reader */

struct kvr_replica_server_options {
    const struct kvr_profile *profile; /* copied */
    const char *address;               /* host:port; port 0: any free one */
    const char *const *models;         /* served names, the first is the model's own */
    uint32_t models_len;               /* 0: the profile's name */
    const char *const *loras;          /* adapters: children of the first model */
    uint32_t loras_len;
    const char *key;  /* asked for on every path; NULL: none */
    const char *host; /* the only Host that is served; NULL: any */
    enum kvr_emu_flavour flavour;
    enum kvr_emu_details details;
    enum kvr_emu_alphabet alphabet;
    double time_scale;                       /* engine seconds a wall second; 0: 1 */
    uint64_t seed;                           /* of the engine's jitter */
    double early_share;                      /* of answers that stop before max_tokens */
    uint32_t default_max_tokens;             /* where none is stated; 0: 64 */
    uint32_t max_waiting;                    /* requests queued; 0: the engine's default */
    uint64_t max_waiting_tokens;             /* prompt tokens queued; 0: unlimited */
    uint64_t idle_ns;                        /* keep-alive; 0: 5 s */
    uint32_t requests_per_connection;        /* then it closes, unannounced; 0: no limit */
    uint32_t embedding_size;                 /* 0: 64 */
    uint32_t stored_responses;               /* remembered for previous_response_id; 0: none */
    bool echo_request_id;                    /* X-Request-Id in the answer's head */
    bool late_head;                          /* of streams: with the first token, not before */
    struct kvr_emu_log *log;                 /* shared; outlives the server */
    struct kvr_replica_server *const *fleet; /* all of the process, this one too; NULL: only it */
    uint32_t fleet_len;
    uint32_t index; /* of this replica among them */
};

struct kvr_replica_server {
    struct kvr_replica_server_options options; /* defaults filled in */
    struct kvr_profile profile;
    struct kvr_loop *loop;
    struct kvr_emu_door door;
    struct kvr_live_engine live;
    struct kvr_emu_delays delays;
    struct kvr_emu_delay sweeping; /* while the fault `idle` is set */
    double idle_ms;                /* of that fault */
    struct kvr_emu_faults faults;
    struct kvr_emu_metrics metrics;
    struct kvr_emu_store store;
    struct kvr_emu_connections connections;
    bool started;
    const char *own_name[1];             /* served when no other name is given */
    struct kvr_replica_server *alone[1]; /* the fleet when there is no other */
    struct kvr_list calls;               /* answers under way */
    uint32_t calls_len;
    uint64_t serial;          /* answers begun: makes their ids */
    uint64_t created_s;       /* wall clock at the start */
    struct kvr_tokens tokens; /* scratch, of the prompt being read */
    struct kvr_buffer scratch;
    struct kvr_buffer wire;   /* spare memory of outputs */
    struct kvr_emu_sink sink; /* scratch, of the event being worded */
};

/* KVR_E_INVALID, KVR_E_IO: the reason in `error`; stop and deinit are due all the same. */
int kvr_replica_server_start(struct kvr_replica_server *server, struct kvr_loop *loop,
                             const struct kvr_replica_server_options *options,
                             struct kvr_error *error) KVR_MUST_USE;
/* Cuts every connection and stops. The loop must run until nothing is left in it, then deinit. */
void kvr_replica_server_stop(struct kvr_replica_server *server);
void kvr_replica_server_deinit(struct kvr_replica_server *server);
/* Sets a fault, or commits it at once if it is of the replica. */
int kvr_replica_server_fault(struct kvr_replica_server *server, const struct kvr_emu_fault *fault,
                             struct kvr_error *error) KVR_MUST_USE;
/* Takes all of them back: it listens, at full speed. */
void kvr_replica_server_heal(struct kvr_replica_server *server);

/* ---- for the files of this server ---- */

/* One request on its way through them. */
struct kvr_emu_visit {
    struct kvr_client *client;
    const struct kvr_request *request;
    struct kvr_emu_entry *entry;       /* in the log; may be NULL */
    const struct kvr_emu_fault *fault; /* meant for it; NULL: none */
    uint32_t nth;                      /* of its connection */
};

/* Of the listener (replica_request.c); context: the server. */
extern const struct kvr_handler kvr_replica_requests;
/* Pages: models, health, metrics and the like. False: no page has that path. */
bool kvr_replica_server_page(struct kvr_replica_server *server, const struct kvr_emu_visit *visit);
/* Orders to the emulator: /fault and /log. False: it is none. `replicas` are those of the process,
 * `self` the one that is meant when the request names none. */
bool kvr_replica_server_control(struct kvr_replica_server *const *replicas, uint32_t replicas_len,
                                uint32_t self, struct kvr_client *client,
                                const struct kvr_request *request);
/* Whether the server answers to that name of a model. `lora`: it is an adapter. */
bool kvr_replica_server_serves(const struct kvr_replica_server *server, const char *name,
                               bool *lora);

#endif
