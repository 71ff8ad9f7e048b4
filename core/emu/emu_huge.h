/* The body of the fault `huge`: filler of any size, made as fast as its client takes it and never
 * held. It has the looks of one endless event of a stream.
 *
 *   start ──> pump ──(enough is on its way)──> the client drains: pump
 *              ^ └──(others want the loop)──> `more`: pump
 */
#ifndef KVR_EMU_HUGE_H
#define KVR_EMU_HUGE_H

#include <stdint.h>

#include "emu_delay.h"
#include "emu_output.h"

struct kvr_emu_huge {
    uint64_t left;                 /* bytes still to make; 0: none, or not begun */
    struct kvr_emu_output *output; /* the owner's; has its head already */
    struct kvr_emu_delay more;     /* until the next piece */
};

void kvr_emu_huge_init(struct kvr_emu_huge *huge, struct kvr_emu_output *output);
/* The first bytes of so many. This and a pump finish the output, whose owner may then be gone. */
void kvr_emu_huge_start(struct kvr_emu_huge *huge, uint64_t bytes);
/* There is room for more, and some is left. */
void kvr_emu_huge_pump(struct kvr_emu_huge *huge);
/* No more of it, before the owner frees it. */
void kvr_emu_huge_stop(struct kvr_emu_huge *huge);

#endif
