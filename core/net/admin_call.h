/* One request to the admin interface as its handlers see it, and how they answer. Every handler
 * answers exactly once. */
#ifndef KVR_ADMIN_CALL_H
#define KVR_ADMIN_CALL_H

#include "admin.h"
#include "admin_body.h"
#include "buffer.h"
#include "json_writer.h"
#include "prom_writer.h"

struct kvr_admin_call {
    struct kvr_admin *admin;
    struct kvr_ingress *ingress;
    struct kvr_client *client;
    const struct kvr_admin_body *body;
    uint64_t now_ns;
};

/* 200 with a JSON text, or with text of another type. */
void kvr_admin_answer(struct kvr_admin_call *call, const struct kvr_buffer *json);
void kvr_admin_answer_as(struct kvr_admin_call *call, const char *content_type,
                         const struct kvr_buffer *text);
/* `param` may be NULL. */
void kvr_admin_refuse(struct kvr_admin_call *call, uint16_t status, const char *code,
                      const char *param, const char *format, ...) KVR_PRINTF(5, 6);
/* The status that goes with error->code. */
void kvr_admin_refuse_error(struct kvr_admin_call *call, const char *param,
                            const struct kvr_error *error);

/* For an answer that is made later: who waits for it, to be handed around until then. The client's
 * `user`, which goes with it: on_gone of admin.c tells whoever holds it. */
struct kvr_admin_waiter;
struct kvr_admin_waiter *kvr_admin_wait(struct kvr_admin_call *call);
/* A call that can be answered now; the waiter is gone. It has no body any more. */
struct kvr_admin_call kvr_admin_resume(struct kvr_admin_waiter *waiter);

/* ---- handlers, by file ---- */

void kvr_admin_metrics(struct kvr_admin_call *call);

void kvr_admin_status(struct kvr_admin_call *call);
void kvr_admin_index(struct kvr_admin_call *call);
void kvr_admin_requests(struct kvr_admin_call *call);
void kvr_admin_log(struct kvr_admin_call *call);

void kvr_admin_replicas(struct kvr_admin_call *call);
void kvr_admin_add(struct kvr_admin_call *call);
void kvr_admin_remove(struct kvr_admin_call *call);
void kvr_admin_drain(struct kvr_admin_call *call);
void kvr_admin_restore(struct kvr_admin_call *call);
void kvr_admin_weight(struct kvr_admin_call *call);

void kvr_admin_scripts(struct kvr_admin_call *call);
void kvr_admin_policy(struct kvr_admin_call *call);
void kvr_admin_spill(struct kvr_admin_call *call);
void kvr_admin_canary(struct kvr_admin_call *call);
void kvr_admin_params(struct kvr_admin_call *call);
void kvr_admin_reload(struct kvr_admin_call *call);

void kvr_admin_shadow(struct kvr_admin_call *call);
void kvr_admin_set_shadow(struct kvr_admin_call *call);

void kvr_admin_gate(struct kvr_admin_call *call);
void kvr_admin_load_gate(struct kvr_admin_call *call);
void kvr_admin_gate_off(struct kvr_admin_call *call);
/* What is in force and whether it is left; null: nothing is. */
void kvr_admin_write_gate(const struct kvr_ingress *ingress, struct kvr_json_writer *json,
                          const char *key);

void kvr_admin_explain(struct kvr_admin_call *call);

/* Those that make a plan answer when it has been judged, those that load a gate when it is read. */
void kvr_admin_plan(struct kvr_admin_call *call);
void kvr_admin_load_plan(struct kvr_admin_call *call);
void kvr_admin_plan_now(struct kvr_admin_call *call);
void kvr_admin_plan_off(struct kvr_admin_call *call);
void kvr_admin_plan_on(struct kvr_admin_call *call);

/* Name, generation, hash and health of each role's script, as `status` shows them. */
void kvr_admin_write_scripts(const struct kvr_ingress *ingress, struct kvr_json_writer *json,
                             const char *key);

/* Samples of GET /metrics: how often each limit of the ingress was reached. */
void kvr_admin_write_limits(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom);
/* The plan in force, and plannings. */
void kvr_admin_write_plan(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom);
/* And what each client with a key has had; nothing when clients need none. */
void kvr_admin_write_clients(const struct kvr_ingress *ingress, struct kvr_prom_writer *prom);

#endif
