/* Canned pictures of a fleet, on which a script is tried before it may decide anything: none, one,
 * all away, all equal, matches, many, extreme numbers. Each is shown three times, with other
 * serials; the second time the request has no session and no prompt. */
#ifndef KVR_STAGE_H
#define KVR_STAGE_H

#include "view.h"

#define KVR_STAGE_CHAIN 40
#define KVR_STAGE_STEPS 27 /* scenes times showings */

struct kvr_stage {
    struct kvr_picture picture;
    struct kvr_hash_ring ring;
    struct kvr_block_key chain[KVR_STAGE_CHAIN];
};

void kvr_stage_init(struct kvr_stage *stage);
void kvr_stage_deinit(struct kvr_stage *stage);

/* Fills the picture for step 0..KVR_STAGE_STEPS-1. The same every time. */
void kvr_stage_show(struct kvr_stage *stage, uint32_t step);
/* What is shown at that step, in words. */
const char *kvr_stage_scene(uint32_t step);
/* Fills picture.observation; kind as in abi.h. */
void kvr_stage_observe(struct kvr_stage *stage, uint32_t kind);

#endif
