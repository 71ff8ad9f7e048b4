/* The bytes of one answer on their way to the client, and the place where faults of bytes happen.
 *
 *   head ─┐
 *   frame ┼─> [ wire: made, not sent ] ──gate──> client
 *   frame ┘                              |
 *                                   the fault: wait, then go on, hold, reset or close
 *
 * The gate is an offset of the wire that bytes may not pass before the fault has acted. Without a
 * fault it is never there, and a flush is one write of all that was made since the last.
 *
 * An output ends once, by on_end: all is sent, or the fault broke it. It may end inside
 * kvr_emu_output_flush, and its owner may then free it: a flush is the last thing to do with it.
 * When the client is gone its owner calls kvr_emu_output_drop instead, and no on_end comes. */
#ifndef KVR_EMU_OUTPUT_H
#define KVR_EMU_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "client.h"
#include "emu_delay.h"
#include "emu_fault.h"

enum kvr_emu_ending {
    KVR_EMU_SENT,   /* complete */
    KVR_EMU_BROKEN, /* reset or closed early, by its fault */
};

#define KVR_EMU_SIZED   0 /* framing of the body: by the length in its head */
#define KVR_EMU_CHUNKED 1
#define KVR_EMU_BARE    2 /* by the end of the connection */

/* What each token needs comes first: with thousands of streams, a token costs little but the memory
 * that it has to fetch. */
struct kvr_emu_output {
    struct kvr_client *client;
    struct kvr_buffer wire;   /* owned */
    size_t wire_at;           /* bytes of it that are sent */
    uint64_t sent;            /* wire bytes in all */
    struct kvr_buffer *spare; /* the caller's: memory for the wire, which an empty one gives back */
    const struct kvr_emu_fault *fault; /* the caller's; NULL: none of bytes */
    struct kvr_buffer gates;           /* owned; wire offsets to come, uint64_t each, ascending */
    uint64_t body_bytes;               /* payload so far */
    uint32_t tokens;                   /* in frames so far */
    uint8_t framing;
    bool keep;     /* the connection stays after it */
    bool started;  /* it has a head */
    bool complete; /* no frame follows */
    bool aiming;   /* a gate goes inside the next frame that suits */
    bool held;     /* for ever */
    bool waiting;  /* the fault's time runs */
    struct kvr_emu_delays *delays;
    void (*on_end)(struct kvr_emu_output *output, enum kvr_emu_ending ending);
    struct kvr_emu_delay delay; /* runs while the fault waits */
};

/* `fault` may be NULL, and stays as long as the output. `spare` is shared by all outputs of a
 * server. */
void kvr_emu_output_init(struct kvr_emu_output *output, struct kvr_client *client,
                         struct kvr_emu_delays *delays, struct kvr_buffer *spare,
                         const struct kvr_emu_fault *fault,
                         void (*on_end)(struct kvr_emu_output *output, enum kvr_emu_ending ending));

/* `length` < 0: the size of the body is not known yet. */
void kvr_emu_output_head(struct kvr_emu_output *output, uint16_t status, struct kvr_slice headers,
                         struct kvr_slice content_type, int64_t length);
/* One piece of the body, with so many tokens in it. */
void kvr_emu_output_frame(struct kvr_emu_output *output, struct kvr_slice payload, uint32_t tokens);
void kvr_emu_output_finish(struct kvr_emu_output *output);
void kvr_emu_output_flush(struct kvr_emu_output *output);

/* Bytes made that have not left this process. */
size_t kvr_emu_output_unsent(const struct kvr_emu_output *output);
/* The client is gone. */
void kvr_emu_output_drop(struct kvr_emu_output *output);

#endif
