/* Why a listener refuses a request by itself, before any handler sees it. Each cause but the first
 * is a limit with a name: the setting that an operator would turn. */
#ifndef KVR_REFUSAL_H
#define KVR_REFUSAL_H

#include <stdint.h>

enum kvr_refusal {
    KVR_REFUSE_MALFORMED,
    KVR_REFUSE_HEADER_BYTES,
    KVR_REFUSE_HEADER_COUNT,
    KVR_REFUSE_BODY_BYTES,
    KVR_REFUSE_BODIES_TOTAL,
    KVR_REFUSE_SLOW,
    KVR_REFUSE_EXPECT,
    KVR_REFUSALS
};

struct kvr_refusal_answer {
    uint16_t status;
    const char *code;
    const char *reason;  /* in words; of malformed ones the parser knows better */
    const char *setting; /* NULL: none */
    /* The same where it is no setting, but a fixed limit of so many: "BEFORE 100 AFTER". NULL: as
     * `reason`. */
    const char *before, *after;
};

const struct kvr_refusal_answer *kvr_refusal_answer(enum kvr_refusal refusal);

#endif
