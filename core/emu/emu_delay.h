/* Things put off for a while, on one alarm: what a slow answer or a listener that comes back waits
 * on. Few at a time. */
#ifndef KVR_EMU_DELAY_H
#define KVR_EMU_DELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "alarm.h"
#include "list.h"

struct kvr_emu_delay {
    struct kvr_list link; /* unlinked: it is not waiting */
    uint64_t due_ns;      /* wall */
    void (*on_due)(struct kvr_emu_delay *delay);
};

struct kvr_emu_delays {
    struct kvr_alarm alarm;
    struct kvr_list waiting; /* first due first; of equal ones, in order of coming */
};

int kvr_emu_delays_init(struct kvr_emu_delays *delays, uv_loop_t *uv,
                        struct kvr_error *error) KVR_MUST_USE;
void kvr_emu_delays_deinit(struct kvr_emu_delays *delays);

void kvr_emu_delay_init(struct kvr_emu_delay *delay, void (*on_due)(struct kvr_emu_delay *delay));
/* From now on; one that waits already is moved. */
void kvr_emu_delay_start(struct kvr_emu_delays *delays, struct kvr_emu_delay *delay, double ms);
void kvr_emu_delay_stop(struct kvr_emu_delay *delay);

#endif
