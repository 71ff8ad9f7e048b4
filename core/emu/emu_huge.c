#include "emu_huge.h"

#include <string.h>

#define FRAME_BYTES  (16u << 10)  /* of one event */
#define UNSENT_BYTES (256u << 10) /* on their way at a time */
#define ROUNDS       64           /* events written at a time */

static const char *filler(void)
{
    static const char opening[] = "data: {\"filler\":\"";
    static const char closing[] = {'"', '}', '\n', '\n'};
    static char text[FRAME_BYTES];
    if (!text[0]) {
        memset(text, 'x', sizeof text);
        memcpy(text, opening, sizeof opening - 1);
        memcpy(text + sizeof text - sizeof closing, closing, sizeof closing);
    }
    return text;
}

void kvr_emu_huge_pump(struct kvr_emu_huge *huge)
{
    struct kvr_emu_output *output = huge->output;
    for (int i = 0; i < ROUNDS; i++) {
        if (kvr_emu_output_unsent(output) >= UNSENT_BYTES)
            return;
        size_t n = huge->left < FRAME_BYTES ? (size_t)huge->left : FRAME_BYTES;
        kvr_emu_output_frame(output, kvr_slice_make(filler(), n), 0);
        huge->left -= n;
        bool last = huge->left == 0;
        if (last)
            kvr_emu_output_finish(output);
        kvr_emu_output_flush(output);
        if (last)
            return;
    }
    kvr_emu_delay_start(output->delays, &huge->more, 0);
}

static void on_more(struct kvr_emu_delay *delay)
{
    kvr_emu_huge_pump(KVR_LIST_ENTRY(delay, struct kvr_emu_huge, more));
}

void kvr_emu_huge_init(struct kvr_emu_huge *huge, struct kvr_emu_output *output)
{
    *huge = (struct kvr_emu_huge){.output = output};
    kvr_emu_delay_init(&huge->more, on_more);
}

void kvr_emu_huge_start(struct kvr_emu_huge *huge, uint64_t bytes)
{
    huge->left = bytes;
    kvr_emu_huge_pump(huge);
}

void kvr_emu_huge_stop(struct kvr_emu_huge *huge)
{
    kvr_emu_delay_stop(&huge->more);
}
