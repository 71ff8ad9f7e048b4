/* Why an emulated replica refuses a request, and how each kind of engine says it: status, type and
 * shape of the body differ, the reason does not. */
#ifndef KVR_EMU_ERROR_H
#define KVR_EMU_ERROR_H

#include <stdint.h>

#include "api_request.h"
#include "buffer.h"
#include "check.h"

enum kvr_emu_flavour { KVR_EMU_VLLM, KVR_EMU_SGLANG, KVR_EMU_LLAMACPP };

enum kvr_emu_refusal {
    KVR_EMU_FINE,
    KVR_EMU_BAD_JSON,
    KVR_EMU_BAD_FIELD,    /* of a wrong type, or missing */
    KVR_EMU_BAD_VALUE,    /* of the right type */
    KVR_EMU_TOO_LONG,     /* over max_model_len */
    KVR_EMU_UNAUTHORIZED, /* no or a wrong key */
    KVR_EMU_UNKNOWN_MODEL,
    KVR_EMU_UNKNOWN_RESPONSE, /* previous_response_id */
    KVR_EMU_UNKNOWN_PATH,
    KVR_EMU_WRONG_METHOD,
    KVR_EMU_FULL,      /* the queue is at its limit */
    KVR_EMU_NOT_READY, /* starting up */
    KVR_EMU_DIED,      /* restarted under the request */
    KVR_EMU_ORDERED,   /* by a fault; status as given */
};

struct kvr_emu_problem {
    enum kvr_emu_refusal refusal;
    uint16_t status;   /* ORDERED only */
    char param[64];    /* the field it is about; empty: none */
    char message[256]; /* in words */
};

/* Fills it in and returns false, so that a reader can `return kvr_emu_refuse(...)`. */
bool kvr_emu_refuse(struct kvr_emu_problem *problem, enum kvr_emu_refusal refusal,
                    const char *param, const char *format, ...) KVR_PRINTF(4, 5);

uint16_t kvr_emu_error_status(enum kvr_emu_flavour flavour, const struct kvr_emu_problem *problem);
/* The body of the answer; `api` decides between the shapes of OpenAI and of Anthropic. */
void kvr_emu_error_body(enum kvr_emu_flavour flavour, enum kvr_api api,
                        const struct kvr_emu_problem *problem, struct kvr_buffer *out);

#endif
